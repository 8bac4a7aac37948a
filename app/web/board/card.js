// The card over the ratio while a race waits or is prepared: the reason, the time left and a progress bar. Until the
// device is free, the previous race stays on the screen.

import { oneLine, write } from "../base/text.js";
import { board, refs, S } from "./screen.js";

const SECONDS_SHOWN = 90;
export let waiting = null;         // the last frame of a race that is still queued
let longest = 0;            // the longest wait estimated for it
let estimate = {};              // the last estimate and when it arrived; counts down until the next one

// A frame of a race that is queued or has left the queue: the race on the screen stays.
export function callUp(frame) {
  if (frame.state !== "waiting") endWaiting();
  else {
    longest = Math.max(waiting?.race === frame.race ? longest : 0, frame.status?.left_s ?? 0);
    waiting = frame;
  }
  board.announce(oneLine(frame.status?.text ?? ""));
}

// Stop waiting for the queued race.
export function endWaiting() { waiting = null; }

export function showCard() {
  const status = waiting?.status ?? (S.state === "preparing" ? S.status : null);
  refs.card.hidden = !status;
  if (!status) return;
  const { left_s = null, share = null } = status, now = performance.now();
  if (estimate.left_s !== left_s || estimate.share !== share) estimate = { left_s, share, at: now };
  const left = left_s === null ? 0 : Math.ceil(left_s - (now - estimate.at) / 1000);     // below 1: unknown
  const done = waiting ? left > 0 && 1 - left / longest : share;
  write(refs.cardTitle, !waiting ? "Preparing" : left < 1 ? "Your race is waiting" : "Your race starts in");
  write(refs.cardLeft, left < 1 ? "" : `about ${left > SECONDS_SHOWN ? `${Math.round(left / 60)} min` : `${left} s`}`);
  write(refs.cardText, oneLine(status.text));
  if (typeof done === "number") refs.progress.value = Math.max(0.02, Math.min(1, done));
  else refs.progress.removeAttribute("value");
}
