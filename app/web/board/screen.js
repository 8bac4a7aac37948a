// The race on the screen: the race view's element and its events, all state in one object that a new race replaces, the
// parts and the replay clock. Features listen; the board imports none of them. Listeners are called in the order of the
// imports in main.js.
//
//   laid          the page's own buttons are there; never on an exported page
//   leaving       the race on the screen is about to be cleared
//   cleared       the screen shows a new race without events
//   frame         a frame of the protocol has come: the frame; a listener that returns true refuses it
//   header        the race's header has arrived
//   recording     the whole race is known, has new extras, or shows another lane
//   over          the race has ended; a listener that returns true replays it itself
//   racing        a race waits or runs; sent at every update of the buttons
//   leavingLane   another lane is about to take the place on the right
//   leavingTab    another tab is about to open: {from, to}
//   tab           a tab is open: its name
//   popover       a step's popover is filled, not yet placed: {step, box}
//   painted       the screen shows {race, seq} at lane time t

import { element } from "../host.js";
import { copy, leaving } from "../base/dom.js";
import { Race } from "../base/model.js";
import { Replay } from "../base/replay.js";
import { laneTitle } from "../base/text.js";
import { Board } from "./board.js";
import { LaneView, Popover } from "./lanes.js";

export const root = element.querySelector(".pf") ?? element;

export function on(name, listener) {
  root.addEventListener(`photofinish:${name}`, (event) => {
    if (listener(event.detail) === true) event.preventDefault();
  });
}

// Set an attribute on <html>, for style rules about what is outside the race view. With `:has` instead, the browser
// would search the whole page again for every word of a race.
export function mark(name, holds) { document.documentElement.toggleAttribute(`data-${name}`, holds); }

// In a frame, a dialog opens in the visible part, and stays there.
mark("framed", window !== window.top);
function noteSight() {
  const seen = ([{ intersectionRect: { top } }], observer) => {
    observer.disconnect();
    document.documentElement.style.setProperty("--seen", `${top}px`);
    document.querySelector("dialog[open]")?.scrollIntoView();       // Enter opens one before its place is known
  };
  if (!document.querySelector("dialog[open]")) new window.IntersectionObserver(seen).observe(document.body);
}
if (window !== window.top)
  for (const name of ["pointerdown", "keydown"]) document.addEventListener(name, noteSight, true);

window.addEventListener("beforeunload", leaving);

// A key that belongs to an input method, as the Enter that ends a composition, starts nothing. Safari ends the
// composition first; its Enter still has the code of an input method's keys. What a browser fills in has no key at all.
window.addEventListener("keydown", (event) => {
  if (event.isComposing || event.keyCode === 229 || !event.key) event.stopImmediatePropagation();
}, true);

// True if any listener returned true.
export function emit(name, detail) {
  return !root.dispatchEvent(new CustomEvent(`photofinish:${name}`, { bubbles: true, cancelable: true, detail }));
}

export let S;

export function newState(id, seq) {
  S = {
    // source: the server's id of the race, or a file
    id, fromFile: false, name: "",
    // the last frame: its number, and the race's state in it
    seq, state: "idle", status: null, ribbon: "",
    // the race's header, and its events by lane
    header: null, race: new Race(),
    // the numbers shown now
    shown: null,
    // the whole race once it is over: object, text to save, key on the server; whether its tables and candidates are
    // final
    recording: null, raw: null, key: "", complete: false,
    // by tab, the number of its request for figures
    asked: {},
    // What if: the WhatIf or why there is none (undefined: not tried yet), the race as run, whether a computed one is
    // shown
    whatIf: undefined, raced: null, computed: false,
    // the drafter and the k chosen in What if, which Decide takes over; the race's answer (tabs/answer.js)
    chosen: null, answer: undefined,
    // for a recorded race that was run again: whether the tokens were the same
    again: "",
    // position in the steps, see tabs/step_tab.js
    walk: undefined,
    // the screen: lanes left and right, the first lane of each role, live or a replay, whether it has played by itself,
    // whether both texts were complete since, whether a show holds the verdict back, whether the table has the final
    // times
    sides: [], first: {}, live: true, autoplayed: false, met: false, verdictWaits: false,
    timed: false,
  };
}

// The verdict on a lane; null if there is none.
export function verdictOn(name) {
  const verdicts = S.recording?.verdicts ?? {};
  return Object.hasOwn(verdicts, name) ? verdicts[name] : null;
}

export function shownLanes() { return S.sides.map((name) => S.race.lane(name)); }
export function titles() { return S.sides.map((name) => laneTitle(name, S.first)); }

export const board = new Board(root);
export const refs = board.refs;
export const views = { left: new LaneView(refs.leftText), right: new LaneView(refs.rightText) };
export const replay = new Replay();
const stepOf = ({ dataset: { lane, step } }) => S.race.lane(lane)?.steps.find(({ index }) => index === Number(step));
export const popover = new Popover(root, refs.pop, stepOf, (detail) => emit("popover", detail));
export const still = window.matchMedia("(prefers-reduced-motion: reduce)");

// Copy a text and say so, or what to do instead.
export const copyFrom = async (button, text, instead = "Select the text instead.") => (await copy(button, text) ?
  board.announce("Copied.") : board.alert(`This browser blocks copying. ${instead}`));

// How many steps of a lane are shown at lane time t: all of them once the lanes on the board are over.
export function countNow(lane, t) { return S.live || t >= replay.duration ? lane.steps.length : lane.countAt(t); }

new ResizeObserver(([entry]) => {
  const { width } = entry.contentRect;
  root.dataset.size = width < 720 ? "narrow" : width < 1100 ? "middle" : width < 1500 ? "wide" : "large";
}).observe(root);
