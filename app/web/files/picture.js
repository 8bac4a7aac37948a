// A picture of a race, 1200 by 630 for link previews: the board's words at the finish, and a bar for each lane's tokens
// per second.

import { make, oneLine, startOf } from "../base/text.js";
import { stopAutoplay } from "../board/deck.js";
import { paint } from "../board/paint.js";
import { root } from "../board/root.js";
import { refs, replay } from "../board/screen.js";
import { S } from "../board/state.js";
import { handOver } from "./files.js";
import { leadNow, leadWords, racedWords, taskWords } from "./result.js";

const YOURS = "Your prompt";
const SHOT = { width: 1200, height: 630, pad: 64 };

function drawPicture() {
  stopAutoplay();
  replay.pause();
  replay.seek(replay.duration);
  paint();                                             // the board now shows the end of the race
  const canvas = Object.assign(make("canvas"), { width: SHOT.width, height: SHOT.height });
  const pen = canvas.getContext("2d"), style = getComputedStyle(root), right = SHOT.width - SHOT.pad;
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const box = (x, y, width, height, name) => { pen.fillStyle = colour(name); pen.fillRect(x, y, width, height); };
  const say = (words, x, y, size, name, { weight = 400, align = "left", room = right - x } = {}) => {
    pen.font = `${weight} ${size}px ${style.fontFamily}`;
    Object.assign(pen, { fillStyle: colour(name), textAlign: align });
    let shown = words;
    while (pen.measureText(shown).width > room && shown.length > 1) shown = `${shown.slice(0, -2).trimEnd()}\u2026`;
    pen.fillText(shown, x, y);
    return pen.measureText(shown).width;
  };
  const words = (ref) => refs[ref].textContent.trim();
  const speeds = ["left", "right"].map((side) => Number(words(`${side}Figure`)) || 0);

  box(0, 0, SHOT.width, SHOT.height, "board");
  say("Photofinish", SHOT.pad, 72, 34, "board-ink", { weight: 700 });
  if (!refs.ribbon.hidden) say(refs.ribbon.dataset.words.replaceAll(",", " "), right, 72, 24, "ribbon",
    { weight: 700, align: "right", room: 500 });
  const own = words("titleName") === YOURS && startOf(S.header?.prompt?.text);
  say([words("titleName"), own].filter(Boolean).join(": "), SHOT.pad, 108, 26, "board-soft");
  say(taskWords(), SHOT.pad, 140, 22, "board-soft");
  const ink = root.dataset.sense === "slower" || root.hasAttribute("data-doubted") ? "caution" : "board-ink";
  const wide = say(words("ratio"), SHOT.pad - 8, 282, root.hasAttribute("data-no-result") ? 100 : 168, ink,
    { weight: 700 });
  words("ratioWords").split(/[,;] /).toReversed().forEach((line, i) =>
    say(line, SHOT.pad + wide + 24, 282 - 36 * i, 26, "board-ink"));
  [["left", "baseline-run"], ["right", "speculative"]].forEach(([side, name], i) => {
    const y = 316 + 50 * i, from = SHOT.pad + 180, room = right - from - 190;
    say(words(`${side}Name`), SHOT.pad, y + 25, 26, "board-ink", { room: 170 });
    box(from, y, room, 32, "rail");
    box(from, y, room * (speeds[i] / (Math.max(...speeds) || 1)), 32, name);
    say(`${words(`${side}Figure`)} tok/s`, right, y + 25, 26, "board-ink", { align: "right", weight: 700, room: 180 });
  });
  box(SHOT.pad, 414, SHOT.width - 2 * SHOT.pad, 1, "board-line");
  const verdict = say(words("verdictWord"), SHOT.pad, 454, 30, "board-ink", { weight: 700 });
  say(words("verdictRows"), SHOT.pad + verdict + 20, 454, 20, "board-soft");
  const caution = words("caution"), lead = leadNow();
  let y = 464;
  const put = (line, most, size, ...look) => {
    pen.font = `${look[1]?.weight ?? 400} ${size}px ${style.fontFamily}`;
    const all = wrapped(pen, line, right - SHOT.pad), lines = all.slice(0, most);
    if (all.length > most) lines[most - 1] = lines[most - 1].replace(/\W*\s\S*$/, "\u2026");
    for (const text of lines) say(text, SHOT.pad, y += 26, size, ...look);
    return lines.length;
  };
  const num = put(caution || leadWords(lead, "a server can run "), 3, 22,
    caution ? "caution" : "board-ink", { weight: 700 });
  const { model, device, created } = S.header ?? {};
  const date = String(created ?? "").slice(0, 10);
  const where = [model && `${model.name} in ${model.dtype}`, device?.name, "one user", date];
  put(racedWords(lead) || `${words("rightKind")}.`, 5 - num, 20, "board-soft");
  say(oneLine(where.filter(Boolean).join("; ")), SHOT.pad, y + 26, 20, "board-soft");
  return canvas;
}

// The words as lines that the pen can write in so much room.
function wrapped(pen, words, room) {
  return words.split(" ").reduce((lines, word) => {
    const line = [lines.at(-1), word].filter(Boolean).join(" ");
    return pen.measureText(line).width > room ? [...lines, word] : [...lines.slice(0, -1), line];
  }, [""]);
}

refs.picture.addEventListener("click", () => {
  if (S.raw) drawPicture().toBlob((blob) => handOver(blob, "png", refs.picture), "image/png");
});
