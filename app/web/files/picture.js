// A picture of a race, 1200 by 630 for link previews: the board's words at the finish, and a bar for each lane's tokens
// per second. Drawn on a canvas, in the page's colours and type.

import { cut, make, oneLine } from "../base/text.js";
import { stopAutoplay } from "../board/deck.js";
import { paint } from "../board/paint.js";
import { board, refs, replay, root, S } from "../board/screen.js";
import { handOver } from "./files.js";
import { leadNow, leadWords, racedWords, raceTitle, taskWords } from "./result.js";

export const SHOT = { width: 1200, height: 630, pad: 64 };
export const EDGE = SHOT.width - SHOT.pad;
const SEGMENTS = new Intl.Segmenter("en", { granularity: "word" });
const TURNED = /^\P{L}*[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}]/u;
export const words = (ref) => refs[ref].textContent.trim();

export class Pen {
  constructor() {
    this.canvas = Object.assign(make("canvas"), { width: SHOT.width, height: SHOT.height });
    this.pen = this.canvas.getContext("2d", { alpha: false });
    this.style = getComputedStyle(root);
  }

  // Whether the browser hands out what is drawn: against fingerprinting, some hand out noise or white.
  get isReadable() { return this.pen.getImageData(0, 0, 8, 1).data.every((value, i) => i % 4 === 3 || value < 64); }

  colour(name) { return this.style.getPropertyValue(`--${name}`).trim(); }

  box(x, y, width, height, name) {
    this.pen.fillStyle = this.colour(name);
    this.pen.fillRect(x, y, width, height);
  }

  size(size, weight = 400) { this.pen.font = `${weight} ${size}px ${this.style.fontFamily}`; }

  // One line, cut to its room. Returns its width.
  say(line, x, y, size, name, { weight = 400, align = "left", room = EDGE - x } = {}) {
    this.size(size, weight);
    Object.assign(this.pen, { fillStyle: this.colour(name), textAlign: align });
    let shown = line;
    while (this.pen.measureText(shown).width > room && shown.length > 1)
      shown = `${cut(shown, shown.length - 2).trimEnd()}\u2026`;
    this.pen.fillText(shown, x, y);
    return this.pen.measureText(shown).width;
  }

  // A line of a text that may run from right to left.
  write(line, y, size, name) {
    const isTurned = TURNED.test(line);
    this.pen.direction = isTurned ? "rtl" : "ltr";
    this.say(line, isTurned ? EDGE : SHOT.pad, y, size, name, { align: "start", room: EDGE - SHOT.pad });
    this.pen.direction = "ltr";
  }

  // The text as lines that fit the room at this size.
  lines(text, size, weight, room = EDGE - SHOT.pad) {
    this.size(size, weight);
    const fits = (line) => this.pen.measureText(line.trimEnd()).width <= room;
    const parts = (word) => (fits(word) ? [word] : [...SEGMENTS.segment(word)].map(({ segment }) => segment));
    return text.split("\n").flatMap((paragraph) => paragraph.split(/(?<= )/).flatMap(parts).reduce((lines, part) =>
      (fits(lines.at(-1) + part) ? [...lines.slice(0, -1), lines.at(-1) + part] : [...lines, part]), [""])
      .map((line) => line.trimEnd()));
  }

  // The brand, the ribbon, and what raced.
  head(title, task) {
    this.box(0, 0, SHOT.width, SHOT.height, "board");
    this.say("Photofinish", SHOT.pad, 72, 34, "board-ink", { weight: 700 });
    if (!refs.ribbon.hidden) this.say(refs.ribbon.dataset.words.replaceAll(",", " "), EDGE, 72, 24, "ribbon",
      { weight: 700, align: "right", room: 500 });
    this.say(title, SHOT.pad, 108, 26, "board-soft");
    this.say(task, SHOT.pad, 140, 22, "board-soft");
  }

  // A lane's name, its progress and a figure.
  lane(y, name, share, colour, figure) {
    const from = SHOT.pad + 180, room = EDGE - from - 190;
    this.say(name, SHOT.pad, y + 25, 26, "board-ink", { room: 170 });
    this.box(from, y, room, 32, "rail");
    this.box(from, y, room * Math.min(1, share), 32, colour);
    this.say(figure, EDGE, y + 25, 26, "board-ink", { align: "right", weight: 700, room: 180 });
  }
}

export const COLOURS = ["baseline", "speculative"];

// The canvas; undefined, and says why, if the browser does not give it out.
export function drawPicture() {
  stopAutoplay();
  replay.pause();
  replay.seek(replay.duration);
  paint();                                             // the board now shows the end of the race
  const pen = new Pen(), speeds = ["left", "right"].map((side) => Number(words(`${side}Figure`)) || 0);
  pen.head(raceTitle(), taskWords());
  const ink = root.dataset.sense === "slower" || root.hasAttribute("data-doubted") ? "caution" : "board-ink";
  const wide = pen.say(words("ratio"), SHOT.pad - 8, 282, root.hasAttribute("data-no-result") ? 100 : 168, ink,
    { weight: 700 });
  words("ratioWords").split(/[,;] /).toReversed().forEach((line, i) =>
    pen.say(line, SHOT.pad + wide + 24, 282 - 36 * i, 26, "board-ink"));
  ["left", "right"].forEach((side, i) => pen.lane(316 + 50 * i, words(`${side}Name`),
    speeds[i] / (Math.max(...speeds) || 1), COLOURS[i], `${words(`${side}Figure`)} tok/s`));
  pen.box(SHOT.pad, 414, SHOT.width - 2 * SHOT.pad, 1, "board-line");
  const verdict = pen.say(words("verdictWord"), SHOT.pad, 454, 30, "board-ink", { weight: 700 });
  pen.say(words("verdictRows"), SHOT.pad + verdict + 20, 454, 20, "board-soft");
  const caution = words("caution"), lead = leadNow();
  let y = 464;
  const put = (text, most, size, name, weight) => {
    const all = pen.lines(text, size, weight), lines = all.slice(0, most);
    if (all.length > most) lines[most - 1] = lines[most - 1].replace(/\W*\s\S*$/, "\u2026");
    for (const line of lines) pen.say(line, SHOT.pad, y += 26, size, name, { weight });
    return lines.length;
  };
  const num = put(caution || leadWords(lead, "a server can run "), 3, 22, caution ? "caution" : "board-ink", 700);
  const { model, device, created } = S.header ?? {};
  const date = String(created ?? "").slice(0, 10);
  const where = [model && `${model.name} in ${model.dtype}`, device?.name, "one user", date];
  put(racedWords(lead) || `${words("rightKind")}.`, 5 - num, 20, "board-soft");
  pen.say(oneLine(where.filter(Boolean).join("; ")), SHOT.pad, y + 26, 20, "board-soft");
  if (pen.isReadable) return pen.canvas;
  return board.alert("To hide who you are, this browser gives out noise in place of pictures. Allow this page to extract "
    + "canvas data (at the left of its address), then save again.");
}

refs.picture.addEventListener("click", () =>
  drawPicture()?.toBlob((blob) => handOver(blob, "png", refs.picture), "image/png"));
