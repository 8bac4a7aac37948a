// Where a frame belongs. Pure: no DOM.

export const OVER = ["finished", "stopped", "failed"];        // how a race ends
export const isRecorded = ({ ribbon }) => Boolean(ribbon?.includes("RECORDED"));

// "anew": its race takes the screen; "on": it continues the race on the screen; "card": it is about a race that waits
// for the device, over the one on the screen; "link": it is an example's, but the page's link brings a prompt to race;
// "none": it was seen already.
// id, seq: of the last frame of the race on the screen; waiting: the last frame of the race that waits, or null;
// isFirst: nothing has been shown yet; isLinked: the page's address brings a prompt.
export function placeOf(frame, { id, seq, waiting, isFirst, isLinked }) {
  const goesOn = waiting?.race === frame.race;
  if (goesOn && frame.seq <= waiting.seq && frame.seq > 0) return "none";
  if (frame.state === "waiting" || (goesOn && frame.state === "stopped")) return "card";
  if (isFirst && isLinked && isRecorded(frame)) return "link";
  if (frame.race !== id || (frame.seq === 0 && seq > 0)) return "anew";
  return frame.seq > seq ? "on" : "none";
}
