// The race view's element and the board's events. Features listen; the board imports none of them. Listeners are called
// in the order of the imports in main.js.
//
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
import { leaving } from "../base/dom.js";

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
// composition first; its Enter still has the code of an input method's keys.
window.addEventListener("keydown", (event) => {
  if (event.isComposing || event.keyCode === 229) event.stopImmediatePropagation();
}, true);

// True if any listener returned true.
export function emit(name, detail) {
  return !root.dispatchEvent(new CustomEvent(`photofinish:${name}`, { bubbles: true, cancelable: true, detail }));
}
