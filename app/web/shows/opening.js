// The opening: on the first visit the page's recorded race plays slowly. Both texts are written, guesses stay or fall
// off, one lane finishes first, and the texts move onto each other. It drives the replay clock; any key or click ends
// it and still takes effect.

import { numDrafted, tokensOf } from "../base/steps.js";
import { remember, remembered } from "../base/storage.js";
import { make, makeUnheard, putText, seconds } from "../base/text.js";
import { announcement, showVerdict } from "../board/paint.js";
import { emit, mark, on, root } from "../board/root.js";
import { board, refs, replay, still, views } from "../board/screen.js";
import { S, verdictOn } from "../board/state.js";
import { showTexts } from "../board/tabs.js";

const OPENING_KEY = "photofinish.opening";
// Wall time for the two parts of the race; their replay speeds follow from it.
const WRITE_S = 4.5;
const REST_S = 2;
const LEAD_MS = 500;
const BEHIND_MS = 600;
const MET_MS = 1200;
// Acts that end by a timer: [next act, ms]. "write", and "behind" after it, when the first lane is done, end by the
// replay clock.
const ACTS = { whole: ["meet", 400], meet: ["part", 2000], part: ["done", 300] };
const SKIPS = ["pointerdown", "click", "keydown"];
// act: "" when it is not playing; guess: the step whose draft is being checked, and its node.
export const opening = { first: true, act: "", cue: 0, guess: null };

// Whether to play the opening: for the page's first race, if its texts are identical and the address has no settings
// (parameters that begin with __ are Gradio's).
function opens() {
  const begins = opening.first && S.id?.startsWith("recorded-") && verdictOn(S.sides[1])?.kind.startsWith("identical");
  opening.first = false;
  if (!begins || [...new URLSearchParams(location.search).keys()].some((name) => !name.startsWith("__"))) return false;
  if (remembered(OPENING_KEY) !== null) return false;
  if (still.matches) emit("opened");
  return !still.matches;
}

function playOpening() {
  S.autoplayed = S.verdictWaits = true;
  root.dataset.view = "plain";
  root.classList.add("pf-opens");
  SKIPS.forEach((name) => window.addEventListener(name, skipOpening, true));
  enter("write");
  replay.setSpeed(speedFor(S.race.lane(S.sides[1]).clock, WRITE_S));
  replay.seek(0);
  whenSeen();
}

function whenSeen() {
  if (!opening.act) return undefined;
  if (document.hidden) return document.addEventListener("visibilitychange", whenSeen, { once: true });
  remember(OPENING_KEY, "seen");
  opening.cue = setTimeout(() => { board.announce(""); replay.play(); }, LEAD_MS);
  return undefined;
}

// The smallest power of two at which lane_s plays within wall_s.
function speedFor(lane_s, wall_s) { return 2 ** Math.ceil(Math.log2(lane_s / wall_s)); }

function enter(act) {
  const [next, ms] = ACTS[act] ?? [];
  clearTimeout(opening.cue);
  root.dataset.opening = opening.act = act;
  mark("opened", act === "done");
  if (act === "meet") meet();
  if (next) opening.cue = setTimeout(() => enter(next), ms);
  if (act !== "done") return;
  Object.values(views).forEach((view) => view.clear());     // laid out anew: words moved within a text shift the layout
  S.marked.clear();
  endOpening();
}

// Move the right text onto the left one.
function meet() {
  const [left, right] = [refs.leftText, refs.rightText].map((text) => text.getBoundingClientRect().left);
  root.style.setProperty("--meet", root.dataset.size === "narrow" ? "0px" : `${left - right}px`);
  setTimeout(() => { S.verdictWaits = false; showVerdict(); }, MET_MS);
  refs.leftText.scrollTop = refs.rightText.scrollTop;
}

export function skipOpening() {
  if (opening.act) endOpening();
  delete root.dataset.opening;
  mark("opened", false);
}

// Leave the race at its end, as after any replay.
function endOpening() {
  opening.act = "";
  S.verdictWaits = false;
  clearTimeout(opening.cue);
  SKIPS.forEach((name) => window.removeEventListener(name, skipOpening, true));
  root.classList.remove("pf-opens");
  land();
  root.querySelectorAll(".pf-fallen").forEach((node) => node.remove());
  replay.pause();
  replay.setSpeed(1);
  replay.seek(replay.duration);
  showTexts();
  Object.values(views).forEach((view) => view.toTop());
  board.announce(announcement());
  emit("opened");
}

// Show the draft that is being checked at the end of the text.
export function guessNow(lane) {
  const next = lane.steps[views.right.shown], step = next && replay.t >= next.clock_s - next.verify_s ? next : null;
  if (opening.guess?.step === step) return;
  land();
  if (!step || !numDrafted(step)) return;
  const node = makeUnheard("span", "pf-guess");
  const shown = tokensOf(step).slice(0, numDrafted(step)).filter(({ aside }) => !aside);
  node.append(...shown.map(({ text }) => putText(make("span"), text)));
  refs.rightText.append(node);
  opening.guess = { step, node };
}

// Remove that draft; in the opening, dropped tokens fall off.
export function land() {
  const { step, node } = opening.guess ?? {};
  if (opening.act && step) [...node.children].slice(step.num_accepted).forEach(fall);
  node?.remove();
  opening.guess = null;
}

function fall(token) {
  const fallen = putText(makeUnheard("span", "pf-fallen"), token.textContent.trim());
  fallen.style.left = `${token.offsetLeft}px`;
  fallen.style.top = `${token.offsetTop}px`;
  fallen.addEventListener("animationend", () => fallen.remove());
  refs.rightText.append(fallen);
}

on("leaving", skipOpening);
on("over", () => {
  const plays = opens();
  if (plays) playOpening();
  return plays;
});
on("painted", () => {
  if (!opening.act) return;
  const lane = S.race.lane(S.sides[1]);
  root.querySelector(".pf-ratio-board").dataset.clock = `${seconds(replay.t)} s`;
  guessNow(lane);
  if (opening.act === "write" && replay.t >= lane.clock) {
    enter("behind");
    opening.cue = setTimeout(() =>
      replay.setSpeed(Math.max(replay.speed, speedFor(replay.duration - replay.t, REST_S))), BEHIND_MS);
  }
  if (opening.act === "behind" && replay.t >= replay.duration) enter("whole");
});
