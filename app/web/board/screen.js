// The parts of the screen and the replay clock, one of each.

import { copy } from "../base/dom.js";
import { Replay } from "../base/replay.js";
import { Board } from "./board.js";
import { LaneView, Popover } from "./lanes.js";
import { root } from "./root.js";
import { S } from "./state.js";

export const board = new Board(root);
export const refs = board.refs;
export const views = { left: new LaneView(refs.leftText), right: new LaneView(refs.rightText) };
export const replay = new Replay();
export const popover = new Popover(root, refs.pop, (node) =>
  S.race.lane(node.dataset.lane)?.steps.find((step) => step.index === Number(node.dataset.step)));
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
