// A picture of a race, 1200 by 630 for link previews: the board's words at the finish, and a bar for each lane's tokens
// per second.

import { oneLine } from "../base/text.js";
import { stopAutoplay } from "../board/deck.js";
import { paint } from "../board/paint.js";
import { board, refs, replay, root, S } from "../board/screen.js";
import { handOver } from "./files.js";
import { Pen, SHOT, words } from "./pen.js";
import { leadNow, leadWords, racedWords, raceTitle, taskWords } from "./result.js";

export const COLOURS = ["baseline-run", "speculative"];

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
