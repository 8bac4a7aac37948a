// The card over the ratio while a race waits or is prepared: what for, about how long still, and a bar that moves. Of a
// race that waits nothing else is shown: the one on the screen stays until the device is free.

const SECONDS_SHOWN = 90;
let waiting = null;         // the last frame of the server's race, while it waits
let longest = 0;            // the longest time that it was ever to wait
let told = {};              // the last estimate, and when it came: it is counted down until the next one

// Whether this frame is of a race that waits, or that gave up its place: then the race on the screen stays.
function waits(frame) {
  const goesOn = waiting?.race === frame.race;
  if (goesOn && frame.seq <= waiting.seq) return true;
  if (waiting && frame.ribbon?.includes("RECORDED")) return false;       // an example, looked at meanwhile
  waiting = frame.state === "waiting" ? frame : null;
  if (waiting) longest = Math.max(goesOn ? longest : 0, frame.status?.left_s ?? 0);
  else if (!goesOn || frame.state !== "stopped") return false;
  board.announce(oneLine(frame.status?.text ?? ""));
  controls();
  schedule();
  return true;
}

function showCard() {
  const status = waiting?.status ?? (S.state === "preparing" ? S.status : null);
  refs.card.hidden = !status;
  if (!status) return;
  const { left_s = null, share = null } = status, now = performance.now();
  if (told.left_s !== left_s || told.share !== share) told = { left_s, share, at: now };
  const left = left_s === null ? 0 : Math.ceil(left_s - (now - told.at) / 1000);     // below 1: nobody knows
  const done = waiting ? left > 0 && 1 - left / longest : share;
  write(refs.cardTitle, !waiting ? "Preparing" : left < 1 ? "Your race waits" : "Your race starts in");
  write(refs.cardLeft, left < 1 ? "" : `about ${left > SECONDS_SHOWN ? `${Math.round(left / 60)} min` : `${left} s`}`);
  write(refs.cardText, oneLine(status.text));
  if (typeof done === "number") refs.progress.value = Math.max(0.02, Math.min(1, done));
  else refs.progress.removeAttribute("value");
}
