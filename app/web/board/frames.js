// Puts a race on the screen, frame by frame or whole from a file.

import { scrollDown } from "../base/dom.js";
import { firstByRole, isOfServers, Race, sides } from "../base/model.js";
import { startOf } from "../base/text.js";
import { callUp, endWaiting, waiting } from "./card.js";
import { autoplaySoon, cancelAutoplay, refresh } from "./deck.js";
import { isLinked, pageButton } from "./page.js";
import { announcement } from "./paint.js";
import { isRecorded, OVER, placeOf } from "./place.js";
import { board, emit, mark, newState, popover, refs, replay, root, S, still, views } from "./screen.js";

const AFTER_RACE_MS = 1500;

const clearTexts = () => Object.values(views).forEach((view) => view.clear());

export function clear(id, seq = -1) {
  if (S) emit("leaving");
  cancelAutoplay();
  replay.pause();
  popover.close();
  clearTexts();
  newState(id, seq);
  replay.load(0, [0]);
  board.alert("");
  setHeader(null);
  emit("cleared");
  refresh();
}

// The page stays hidden (first.html) so long after its first frame, and until its last button is there.
const LAY_MS = 50;
let laid = null;
function lay() {
  if (!pageButton("settings")) return setTimeout(lay, LAY_MS / 5);
  emit("laid");
  return mark("laid", true);
}

// Show one frame of the protocol.
export function onFrame(frame) {
  const screen = { id: S.id, seq: S.seq, waiting, isFirst: laid === null, isLinked: isLinked() };
  laid ??= setTimeout(lay, LAY_MS);
  if (emit("frame", frame)) return undefined;
  const place = placeOf(frame, screen);
  if (place === "none") return undefined;
  if (place === "link") return board.title("From a link: not raced yet. Race runs it here", null);
  if (place === "card") {
    callUp(frame);
    return refresh();
  }
  if (!isRecorded(frame)) endWaiting();          // an example is shown meanwhile
  if (place === "anew") clear(frame.race);
  const before = S.state, first = S.race.numEvents === 0;
  Object.assign(S, { seq: frame.seq, state: frame.state, status: frame.status ?? null, ribbon: frame.ribbon ?? "",
    key: frame.race, complete: frame.complete });
  if (frame.name) S.name = frame.name;
  if (frame.again) S.again = frame.again;
  if (frame.header) {
    setHeader(frame.header);
    emit("header");
  }
  if (!frame.recording) (frame.events ?? []).forEach((event) => S.race.add(event));
  if (frame.recording) setRecording(frame.recording);
  else if (frame.complete && S.recording) emit("recording");
  if (OVER.includes(frame.state) && S.live) over(frame.state === "finished", first ? 0 : AFTER_RACE_MS);
  if (before !== frame.state) board.announce(announcement());
  if (before !== frame.state && frame.state === "running") intoView();
  return refresh();
}

export function setHeader(header) {
  S.header = header;
  const lanes = header?.spec?.lanes ?? [];
  Object.assign(S, { sides: sides(lanes), first: firstByRole(lanes) });
  board.title(S.name || startOf(header?.prompt?.text), header);
  board.names(header, S.sides, S.first);
  board.facts(header);
}

// The whole race as in its file. Called again once it has tables and candidates.
export function setRecording(text, recording = JSON.parse(text)) {
  const isFirst = S.recording === null;
  Object.assign(S, { recording, raw: text, asked: {} });
  if (isFirst) {         // steps of servers are only known now
    if (recording.events.length < S.race.numEvents || isOfServers(recording)) clearTexts();
    S.race = new Race(recording.events);
    setHeader(recording);
  } else if (!S.computed) S.whatIf = undefined;
  emit("recording");
}

// From now on the lanes follow the replay clock. A finished race plays once by itself.
export function over(playIt, wait) {
  S.live = false;
  replay.load(S.race.duration(S.sides), S.race.times(S.sides));
  if (!emit("over") && playIt && S.recording && !still.matches) autoplaySoon(wait);
}

// On a small screen, scroll to the race if its texts are out of sight. Elsewhere Race and Stop stay in sight.
function intoView() {
  if (root.dataset.size === "narrow" && refs.leftText.getBoundingClientRect().bottom > window.innerHeight)
    scrollDown(root.getBoundingClientRect().top, still.matches ? "auto" : "smooth");
}
