// The tab "What if": replays the race as it would have gone with longer or shorter drafts. The texts stay; marks,
// figures, tracks and clock are computed from its tables. Leaving the tab restores the race.

import { drafterName, isIdentical, make, oneLine, percent, put, times, write } from "../base/text.js";
import { isOfServers, laneSpec, ruleOf } from "../base/model.js";
import { clearRight, refresh, stopAutoplay } from "../board/deck.js";
import { board, on, refs, replay, root, S, verdictOn } from "../board/screen.js";
import { answerOf } from "./answer.js";
import { laneOf, offeredTo, sizeOf, WhatIf } from "./whatif.js";

const NO_TABLES = "This race has no tables, so other draft lengths cannot be computed. The page makes them after a "
  + "race, the command line with --tables.";
const NO_TABLES_BY_ODDS = "Under the rule \u201csame probabilities (rejection)\u201d the text depends on the "
  + "guesses, so other lengths cannot be computed. Race with \u201csame tokens (coupled)\u201d.";
const BEING_MADE = "Computing the guesses at every position \u2026";

// The race's WhatIf, or a sentence why there is none. Made at the first call.
export function whatIfOf() {
  if (S.whatIf !== undefined) return S.whatIf;
  if (!S.recording) return "Other draft lengths are computed after the race.";
  if (ruleOf(S.recording) === "rejection") return NO_TABLES_BY_ODDS;
  if (isOfServers(S.recording)) return "Other draft lengths are not known: a server does not reveal its guesses.";
  if (!S.recording.tables || !S.recording.costs) return S.fromFile || S.complete ? NO_TABLES : BEING_MADE;
  if (!isIdentical(verdictOn(S.sides[1])))
    return "Other draft lengths can only be computed if both texts are identical.";
  S.raced = S.race;
  const whatIf = new WhatIf(S.recording, S.race, S.first, S.sides[1]);
  return S.whatIf = whatIf.offered.size ? whatIf : NO_TABLES;
}

// Whether its tables are still to come.
export function isBeingMade() { return whatIfOf() === BEING_MADE; }

// The race's answer, as run; null if there is none. chosen: in What if.
export function answerNow(chosen = S.chosen) {
  const whatIf = whatIfOf(), race = S.computed ? S.raced : S.race, now = [race, whatIf, chosen];
  if (now.some((value, i) => value !== S.answer?.of[i])) S.answer = { of: now, is: answerOf(S.recording ?? S.header,
    race, S.first, { whatIf: whatIf instanceof WhatIf ? whatIf : null, chosen }) };
  return S.answer.is;
}

// The speed-up over plain of a race of so many seconds, in words; "" if unknown.
export function timesPlain(whatIf, seconds) {
  const plain = answerNow()?.plain.tokensPerS, speed = whatIf.tokens.length / seconds;
  return plain > 0 ? times(speed / plain) : "";
}

function openWhatIf() {
  const whatIf = whatIfOf(), usable = whatIf instanceof WhatIf;
  for (const name of ["whatIfDrafter", "whatIfK", "whatIfRaced"]) refs[name].disabled = !usable;
  if (!usable) return put(refs, { whatIfWords: whatIf, whatIfDrafter: [], whatIfCurve: [] });
  const share = S.recording.oracles?.[S.sides[1]]?.share, isOffered = offeredTo(racedLane(), whatIf.offered);
  const choice = (value, words) => Object.assign(make("option", "", oneLine(words)), { value });
  const offered = [...whatIf.offered.keys()].map((drafter) => choice(drafter, drafterName(drafter)));
  put(refs, { whatIfDrafter: isOffered ? offered : [choice("", "as raced"), ...offered], whatIfWords:
    typeof share === "number" ? `This race reached ${percent(share)} of the best possible (the oracle).` : "" });
  offerRaced();
  const chosen = S.chosen && offeredTo(S.chosen, whatIf.offered);
  if (!chosen) return undefined;
  refs.whatIfDrafter.value = chosen;
  offerLengths(S.chosen.k);
  return showChosen();
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
function offerLengths(k) {
  const ks = S.whatIf.offered.get(chosenDrafter()), place = ks.indexOf(sizeOf(k));
  refs.whatIfK.max = String(ks.length - 1);
  refs.whatIfK.value = String(place >= 0 ? place : ks.length - 1);
  write(refs.whatIfShown, "as raced");
  drawCurve();
}

export function showChosen() {
  const drafter = refs.whatIfDrafter.value = chosenDrafter();
  const k = S.whatIf.offered.get(drafter)[Number(refs.whatIfK.value)], raced = racedLane();
  const lane = S.chosen = laneOf(drafter, k);
  drawCurve();
  if (lane.drafter === raced.drafter && lane.k === raced.k) return restore();        // measured, not computed
  const lanes = S.recording.spec.lanes.map((spec) => (spec === raced ? { ...spec, ...lane } : spec));
  write(refs.whatIfShown, `${k}: ${answerNow()?.subject.ratio.toFixed(2) ?? "–"}\u00d7`);
  refs.whatIfK.setAttribute("aria-valuetext", `${k} tokens`);
  return replaceRace({ race: S.whatIf.at(drafter, k), header: { ...S.recording, spec: { ...S.recording.spec, lanes } },
    computed: true });
}

// A bar for each length of the chosen drafter, as high as its speed; the slider's is marked. A click chooses it.
function drawCurve() {
  const drafter = chosenDrafter(), all = S.whatIf.all().filter((choice) => choice.drafter === drafter);
  const least = Math.min(...all.map(({ seconds }) => seconds)), place = Number(refs.whatIfK.value);
  refs.whatIfCurve.replaceChildren(...all.map(({ k, seconds }, i) => {
    const bar = make("i");
    bar.style.height = `${(100 * least / seconds).toFixed(0)}%`;
    bar.title = `${k}: ${timesPlain(S.whatIf, seconds)} (computed)`;
    bar.toggleAttribute("data-on", i === place);
    bar.addEventListener("click", () => { refs.whatIfK.value = String(i); showChosen(); });
    return bar;
  }));
}

// Restore the race as run, and forget the choice.
export function endWhatIf() {
  S.chosen = null;
  leave();
}

// Restore the race as run.
function leave() {
  restore();
  if (S.whatIf instanceof WhatIf) offerRaced();
}

function restore() {
  if (S.computed) replaceRace({ race: S.raced, header: S.recording, computed: false });
  write(refs.whatIfShown, "as raced");
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
on("leavingTab", ({ from, to }) => { if (from === "whatif" && to !== "whatif") leave(); });
on("leavingLane", () => { if (S.computed) leave(); });
