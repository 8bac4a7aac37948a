// The tab "What if": replays the race as it would have gone with longer or shorter drafts. The texts stay; marks,
// figures, tracks and clock are computed from its tables. Leaving the tab restores the race.

import { isOnServer, laneSpec, metricsOf, ruleOf, sum } from "../base/model.js";
import { stepSeconds } from "../base/steps.js";
import { drafterName, make, oneLine, percent, write } from "../base/text.js";
import { clearRight, refresh, stopAutoplay } from "../board/deck.js";
import { on, root } from "../board/root.js";
import { board, refs, replay } from "../board/screen.js";
import { S, verdictOn } from "../board/state.js";
import { laneOf, offeredTo, sizeOf, WhatIf } from "./whatif.js";

const NO_TABLES = "This race has no tables, so other draft lengths cannot be computed. The page makes them after a "
  + "race, the command line with --tables.";
const NO_TABLES_BY_ODDS = "Under the rule \u201csame probabilities (rejection)\u201d the text depends on the "
  + "guesses, so other lengths cannot be computed. Race with \u201csame tokens (coupled)\u201d.";
const BEING_MADE = "Computing the guesses at every position \u2026";

// The race's WhatIf, or a sentence why there is none. Made at the first call.
export function whatIfOf() {
  if (S.whatIf !== undefined) return S.whatIf;
  if (!S.recording) return "Available after the race.";
  if (ruleOf(S.recording) === "rejection") return NO_TABLES_BY_ODDS;
  if (!S.recording.tables || !S.recording.costs)
    return S.fromFile || S.complete ? NO_TABLES : BEING_MADE;
  if (isOnServer(S.recording, S.sides[1])) return "Not available: a server does not reveal its guesses.";
  if (!verdictOn(S.sides[1])?.kind.startsWith("identical"))
    return "Only available if both texts are identical.";
  S.raced = { race: S.race, metrics: S.metrics, speedup: S.speedup };
  const whatIf = new WhatIf(S.recording, S.race, S.first, S.sides[1]);
  return S.whatIf = whatIf.offered.size ? whatIf : NO_TABLES;
}

// The speed-up over plain of a race of so many seconds, in words; "" if unknown.
export function timesPlain(whatIf, seconds) {
  const { race, metrics } = S.raced, numbers = metrics ??
    Object.fromEntries([...race.lanes.values()].map((lane) => [lane.name, metricsOf(lane, lane.steps.length)]));
  const plain = Math.max(...[S.first.plain, S.first.baseline].map((name) => numbers[name]?.tokens_per_s ?? 0));
  return plain > 0 ? `${(whatIf.tokens.length / seconds / plain).toFixed(2)}\u00d7` : "";
}

// The sentence at the slider: the best choice against plain, and the raced lane's share of the oracle.
function bestWords(whatIf) {
  const best = whatIf.all().reduce((one, other) => (other.seconds < one.seconds ? other : one));
  const times = timesPlain(whatIf, best.seconds), ratio = times ? `, ${times} as fast as Plain` : "";
  const share = S.recording.oracles?.[S.sides[1]]?.share;
  const asRaced = timesPlain(whatIf, sum(S.raced.race.lane(S.sides[1]).steps.map(stepSeconds)));
  const reached = typeof share === "number" ?
    ` This race: ${asRaced}, ${percent(share)} of the best possible (the oracle).` : "";
  const { drafter, k } = laneOf(best.drafter, best.k);
  return `Best fixed draft length: ${drafter} with k = ${k}${ratio}.${reached}`;
}

function openWhatIf() {
  const whatIf = whatIfOf(), usable = whatIf instanceof WhatIf;
  for (const name of ["whatIfDrafter", "whatIfK", "whatIfRaced"]) refs[name].disabled = !usable;
  write(refs.whatIfWords, usable ? bestWords(whatIf) : whatIf);
  if (!usable) return refs.whatIfDrafter.replaceChildren();
  const choice = (value, words) => Object.assign(make("option", "", oneLine(words)), { value });
  const offered = [...whatIf.offered.keys()].map((drafter) => choice(drafter, drafterName(drafter)));
  refs.whatIfDrafter.replaceChildren(...(offeredTo(racedLane(), whatIf.offered) ? [] :
    [choice("", "as raced")]), ...offered);
  offerRaced();
  return undefined;
}

export function racedLane() { return laneSpec(S.recording, S.sides[1]); }

// Select what was raced; "" for a drafter without tables of its own.
function offerRaced() {
  refs.whatIfDrafter.value = offeredTo(racedLane(), S.whatIf.offered) ?? "";
  offerLengths(racedLane().k);
}

// The slider's drafter; the last one if none is chosen.
export function chosenDrafter() { return refs.whatIfDrafter.value || [...S.whatIf.offered.keys()].at(-1); }

// The slider offers the lengths in the drafter's tables.
export function offerLengths(k) {
  const ks = S.whatIf.offered.get(chosenDrafter()), place = ks.indexOf(sizeOf(k));
  refs.whatIfK.max = String(ks.length - 1);
  refs.whatIfK.value = String(place >= 0 ? place : ks.length - 1);
  write(refs.whatIfShown, "as raced");
}

export function showChosen() {
  const drafter = refs.whatIfDrafter.value = chosenDrafter();
  const k = S.whatIf.offered.get(drafter)[Number(refs.whatIfK.value)];
  const lanes = S.recording.spec.lanes.map((lane) =>
    (lane.name === S.sides[1] ? { ...lane, ...laneOf(drafter, k) } : lane));
  write(refs.whatIfShown, `${k}: ${timesPlain(S.whatIf, S.whatIf.seconds(drafter, k))}`);
  refs.whatIfK.setAttribute("aria-valuetext", `${k} tokens`);
  replaceRace({ race: S.whatIf.at(drafter, k), header: { ...S.recording, spec: { ...S.recording.spec, lanes } },
    metrics: null, speedup: null, computed: true });
}

// Restore the race as run.
export function endWhatIf() {
  if (S.computed) replaceRace({ ...S.raced, header: S.recording, computed: false });
  if (S.whatIf instanceof WhatIf) offerRaced();
}

function replaceRace(now) {
  stopAutoplay();
  replay.pause();
  clearRight();
  Object.assign(S, now);
  board.names(S.header, S.sides, S.first);
  replay.load(S.race.duration(S.sides), S.race.times(S.sides));
  refresh();
}

refs.whatIfDrafter.addEventListener("change", () => {
  if (!refs.whatIfDrafter.value) return endWhatIf();
  offerLengths(null);
  return showChosen();
});
refs.whatIfK.addEventListener("input", showChosen);
refs.whatIfRaced.addEventListener("click", endWhatIf);
for (const name of ["cleared", "recording"]) on(name, () => { if (root.dataset.tab === "whatif") openWhatIf(); });
on("tab", (name) => { if (name === "whatif" && !S.live) openWhatIf(); });
on("leavingTab", ({ from, to }) => { if (from === "whatif" && to !== "whatif") endWhatIf(); });
on("leavingLane", () => { if (S.computed) endWhatIf(); });
