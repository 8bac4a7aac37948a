// What brings races to the screen: the page's button, an opened file, a tab that was loaded again.

import { props } from "../host.js";
import { cut, oneLine, sentence } from "../base/text.js";
import { onFrame } from "./frames.js";
import { board, emit, on, S } from "./screen.js";
import { served } from "./served.js";
import { BROKEN, isIdle, run } from "./stream.js";

let isCut = false;

function refused(words) {
  const says = cut(oneLine(words), 400);
  if (!emit("refused", says)) board.alert(sentence(says));
}

const race = (kind, order = {}) => run({ run: kind, order, heard: onFrame, refused });
export const raceNow = () => race("race");

// Race what is on the screen as it was recorded.
export async function raceAgain() {
  try { await race("again", { key: await served(), lane: S.sides[1] }); } catch ({ message }) { refused(message); }
}

// Where the page was left, and how its model is. An exported page has no first frame, and no server.
export async function comeBackToRace(id) {
  if (!props.value) return;
  if (id) await race("resume", { race: id });
  followModel();
}

function followModel() {
  if (isIdle()) run({ run: "model", order: {}, heard: () => {}, refused: () => {} });
}

document.addEventListener("photofinish:named", followModel);
on("cut", () => {
  isCut = true;
  if (!emit("refused", BROKEN)) board.alert(`${sentence(BROKEN)} The page tries again.`);
});
on("frame", () => {
  if (isCut) board.alert("");
  isCut = false;
});
