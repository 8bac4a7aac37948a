// A live race on the stage. If it is refused or fails, or its server is gone, the recorded race of the same example
// takes its place.

import { fetchOurs, TYPED_MS, typeInto } from "../base/dom.js";
import { cut, fill, oneLine, write } from "../base/text.js";
import { endWaiting, waiting } from "../board/card.js";
import { autoplay, stopAutoplay } from "../board/deck.js";
import { examples, isOwnPrompt, pageButton, promptBox, RACING } from "../board/page.js";
import { showVerdict } from "../board/paint.js";
import { OVER } from "../board/place.js";
import { board, on, refs, replay, root, S } from "../board/screen.js";
import { abandon, BROKEN } from "../board/stream.js";
import { endWhatIf } from "../tabs/whatif_tab.js";
import { nameOf, showRecorded } from "./recorded.js";

const LOOK_MS = 200;
const SILENT_MS = 600;          // frames of a race come at least every 200 ms
const ANSWER_MS = 1100;         // a busy machine takes its time; the recorded race must begin within 2 s
const BEGIN_MS = 4000;
const INSTEAD = "Live race not possible";
// timer: looks for faults, 0 off stage; example: the last one chosen; race: id of the live race, "" once it is
// requested, null if there is none; asked, heard: when it was requested, and its last frame came; aside: id of the last
// one that a recorded race has replaced; stops: the presenter has stopped it; why: the last fault
export const live = { timer: 0, example: "", race: null, asked: 0, heard: 0, aside: null, stops: false, why: "" };

// on: board and texts; verdict: board and verdict.
export function showView(name) {
  root.dataset.stage = name;
  write(refs.stageView, name === "verdict" ? "the texts" : "the verdict");
}

export function watchLive() {
  const goesOn = waiting !== null || (S.live && RACING.includes(S.state));
  Object.assign(live, { timer: setInterval(lookForFaults, LOOK_MS), example: "", why: "", heard: performance.now(),
    stops: false, race: goesOn ? waiting?.race ?? S.id : null });
}

// Returns what went wrong meanwhile, as a sentence; "" if nothing did.
export function unwatchLive() {
  clearInterval(live.timer);
  refs.stageNote.hidden = true;
  Object.assign(live, { timer: 0, race: null });
  return live.why && `The live race was not possible: ${live.why}.`;
}

async function answers() {
  const options = { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) };
  return fetchOurs("robots.txt", options).then(({ ok }) => ok, () => false);
}

// own: a prompt to race; the page's prompt box and Settings have the rest.
export async function raceLive(own = "") {
  if (live.race !== null) return board.announce("A race is on already: X stops it.");
  Object.assign(live, { race: "", asked: performance.now(), heard: performance.now(), stops: false });
  refs.stageNote.hidden = true;
  showView("on");
  if (!await answers()) return instead(BROKEN);
  if (live.race !== "") return undefined;
  const isTyped = !live.example && isOwnPrompt();      // before the stage began
  if (!own) return (refs.liveHere.hidden || isTyped ? pageButton("race") : refs.liveHere)?.click();
  typeInto(promptBox(), own);
  return setTimeout(() => pageButton("race")?.click(), TYPED_MS);
}

export function stopLive() {
  const button = pageButton("stop");
  if (!button) return;
  live.stops = true;
  button.disabled = false;          // it is, as long as the page has seen no frame
  button.click();
}

// Whether the server of a silent race is still there.
async function lookForFaults() {
  const { heard } = live, now = performance.now();
  if (live.race === null || now - heard < SILENT_MS) return;
  if (!await answers()) { if (heard === live.heard) faulty(BROKEN); }
  else if (live.race === "" && now - live.asked > BEGIN_MS) faulty("the server did not begin it");
  else if (heard === live.heard) live.heard = now;
}

// A fault without a live race changes nothing on the screen.
function faulty(why) {
  live.why = why.replace(/\.$/, "");
  if (live.race !== null) instead(why);
}

// Stop the live race, and show nothing more of it.
function setAside() {
  if (live.race === null) return;
  stopLive();
  abandon();
  Object.assign(live, { aside: live.race, race: null });
  endWaiting();
}

// The recorded race of the example on the screen, from its beginning.
export async function recordedInstead() {
  const all = examples(), named = (name) => all.find((button) => nameOf(button) === name);
  const button = named(S.name) ?? named(live.example) ?? all[0];
  setAside();
  return button ? showExample(button) : false;
}

// Ready to run: at its beginning, at real speed, its result hidden.
export function armed() {
  stopAutoplay();
  replay.pause();
  replay.setSpeed(1);
  showView("on");
  Object.assign(S, { met: false, verdictWaits: true });
  replay.seek(0);
  showVerdict();
}

export async function showExample(button) {
  setAside();
  if (!await showRecorded(button)) return board.announce("This recorded race could not be fetched.");
  live.example = nameOf(button);
  refs.stageNote.hidden = true;
  endWhatIf();
  armed();
  return true;
}

async function instead(why) {
  live.why = why.replace(/\.$/, "");
  if (!await recordedInstead()) return;
  autoplay(true);                 // not where motion is reduced
  const { name, header: { device, created } } = S;
  const about = `${INSTEAD}. Recorded race: ${name}, ${device.name}, ${String(created).slice(0, 10)}`;
  fill(refs, { stageNote: oneLine(about) });
}

on("frame", ({ race, state, ribbon, status }) => {
  if (!live.timer || race === "none" || ribbon?.includes("RECORDED")) return false;
  Object.assign(live, { race: OVER.includes(state) ? null : race, heard: performance.now() });
  if (state !== "failed" && (state !== "stopped" || live.stops)) return false;        // a server that ends stops it
  live.aside = race;
  abandon();
  instead(cut(oneLine(status?.text ?? ""), 300));
  return true;
});
on("refused", (words) => {
  if (live.timer) faulty(words);
  return live.timer > 0;
});
on("over", () => {
  const lanes = [...S.race.lanes.values()], failed = lanes.find((lane) => lane.failed)?.failed;
  if (!live.timer || S.ribbon.includes("RECORDED")) return false;
  if (failed) instead(cut(oneLine(failed.message), 300));
  else if (S.state === "finished") showView("verdict");
  return true;
});
window.navigation?.addEventListener("navigate", (event) => {
  if (live.timer && event.navigationType === "reload" && !event.userInitiated) event.preventDefault();
});
