// Replay by mouse and keyboard, the choice of the lane on the right, and which buttons are enabled.

import { write } from "../base/text.js";
import { waiting } from "./card.js";
import { guessing, shortName } from "./more_lanes.js";
import { RACING, updatePageButtons } from "./page.js";
import { schedule, showVerdict } from "./paint.js";
import { board, emit, popover, refs, replay, S, still, views } from "./screen.js";

const SLOW = 0.25;
let later = 0;
let onceVisible = null;

// Play the race once from the start, unless the visitor has taken the controls. again: even if it has played.
export function autoplay(again = false) {
  if (document.hidden) {
    cancelAutoplay();
    onceVisible = () => autoplay(again);
    return document.addEventListener("visibilitychange", onceVisible, { once: true });
  }
  if (S.live || (again !== true && (S.autoplayed || replay.playing)) || still.matches) return undefined;
  S.autoplayed = true;
  S.met = false;
  replay.setSpeed(1);
  replay.seek(0);
  return replay.play();
}

// Without a wait it begins before the end of the race has been drawn.
export function autoplaySoon(wait) { if (wait) later = setTimeout(autoplay, wait); else Promise.resolve().then(autoplay); }
export function cancelAutoplay() {
  clearTimeout(later);
  document.removeEventListener("visibilitychange", onceVisible);
}

// The visitor took the controls: do not play by itself any more.
export function stopAutoplay() {
  cancelAutoplay();
  S.autoplayed = true;
}

// Update the state and the labels of all buttons.
export function controls() {
  updatePageButtons();
  showVerdict();
  const ready = !S.live && replay.duration > 0;
  for (const name of ["play", "back", "next", "scrub"]) refs[name].disabled = !ready;
  refs.ofRace.disabled = !S.raw;
  write(refs.liveHere, S.fromFile ? "Run it here" : `Race ${S.name || "it"} live`);
  refs.open.disabled = waiting !== null || RACING.includes(S.state);
  refs.scrub.max = String(Math.ceil(1000 * replay.duration));
  write(refs.play, replay.playing ? "Pause" : ready && replay.t >= replay.duration ? "Play again" : "Play");
  refs.slow.setAttribute("aria-pressed", String(replay.speed === SLOW));
}

export function refresh() {
  controls();
  schedule();
}

// Another race or lane takes the place on the right.
export function clearRight() {
  popover.close();
  views.right.clear();
}

// Show this lane on the right.
function watchLane(name) {
  emit("leavingLane");
  stopAutoplay();
  clearRight();
  Object.assign(S, { sides: [S.sides[0], name], whatIf: undefined, walk: undefined, asked: {}, timed: false });
  board.names(S.header, S.sides, S.first);
  if (!S.live) {
    const { t, duration } = replay;
    replay.load(S.race.duration(S.sides), S.race.times(S.sides));
    if (t < duration) replay.seek(t);
  }
  emit("recording");
  board.announce(`On the right: ${shortName(guessing().find((lane) => lane.name === name))}.`);
  refresh();
}

const SEEK_KEYS = {
  " ": () => replay.toggle(),
  ArrowRight: () => replay.step(1), ArrowUp: () => replay.step(1),
  ArrowLeft: () => replay.step(-1), ArrowDown: () => replay.step(-1),
  Home: () => { replay.pause(); replay.seek(0); }, End: () => { replay.pause(); replay.seek(replay.duration); },
};

refs.deck.addEventListener("keydown", (event) => {
  const button = event.target.closest("button");
  const act = SEEK_KEYS[event.key];
  if (!act || S.live || event.ctrlKey || event.metaKey || event.altKey || (event.key === " " && button)) return;
  event.preventDefault();
  stopAutoplay();
  act();
});
refs.play.addEventListener("click", () => { stopAutoplay(); replay.toggle(); });
refs.back.addEventListener("click", () => { stopAutoplay(); replay.step(-1); });
refs.next.addEventListener("click", () => { stopAutoplay(); replay.step(1); });
refs.scrub.addEventListener("input", () => {
  stopAutoplay();
  replay.pause();
  replay.seek(Number(refs.scrub.value) / 1000);
});
refs.slow.addEventListener("click", () => replay.setSpeed(replay.speed === SLOW ? 1 : SLOW));
refs.track.addEventListener("click", ({ target }) => {
  const row = target.closest("[data-watch]");
  if (row) watchLane(row.dataset.watch);
});
replay.onState = refresh;
