// The tab "What if": the race on the screen at another length of guesses, replayed as it would have gone. The texts stay;
// marks, figures, tracks and the clock are those of the race that the tables tell. Leaving the tab brings the race back.

const NO_TABLES = "This race has no tables of guesses, so it cannot be told at another length. They are made after a "
  + "race on the page, or by race --tables, where guesses follow from the text.";

const NO_TABLES_BY_ODDS = "No tables of guesses are made under the rule \u201csame odds (rejection)\u201d: there the "
  + "text depends on the guesses. Race under \u201csame tokens (coupled)\u201d to see it at other lengths.";

const BEING_MADE = "The guesses at every position are being asked for now; a moment.";

// What came after the race: members for its recording, tables among them; none where there is nothing.
function addBeside(members, raw) {
  const some = Object.keys(members).length > 0;
  S.besideCame = true;
  if (some) S.recording = { ...S.recording, ...members };
  if (some) S.raw = `${S.raw.slice(0, S.raw.lastIndexOf("}"))},${raw.slice(raw.indexOf("{") + 1)}`;
  if (!S.told) S.whatIf = undefined;
  if (some) S.asked = {};
  askForFigures();
  if (root.dataset.tab === "whatif") openWhatIf();
}

// What S.recording tells of other lengths: a WhatIf, or a sentence why there is none. Made when it is first asked for.
function whatIfOf() {
  if (S.whatIf !== undefined) return S.whatIf;
  if (!S.recording) return "This can be asked when the race is over.";
  if (ruleOf(S.recording) === "rejection") return NO_TABLES_BY_ODDS;
  if (!S.recording.tables || !S.recording.costs)
    return S.fromFile || S.besideCame || S.state !== "finished" || S.ribbon.includes("RECORDED") ? NO_TABLES : BEING_MADE;
  if (isOnServer(S.recording, S.sides[1])) return "A server's drafter cannot be asked what it would have guessed.";
  if (!verdictOn(S.sides[1])?.kind.startsWith("identical"))
    return "Only a race whose texts are identical can be told at another length.";
  S.raced = { race: S.race, metrics: S.metrics, speedup: S.speedup };
  try { S.whatIf = new WhatIf(S.recording, S.race, S.first, S.sides[1]); } catch (error) {
    if (!(error instanceof Shapes.Unusable)) throw error;
    S.whatIf = oneLine(error.message);
  }
  return S.whatIf;
}

// How many times as fast as plain a race of so many seconds is; "" where nobody knows.
function timesPlain(whatIf, seconds) {
  const { race, metrics } = S.raced, numbers = metrics ??
    Object.fromEntries([...race.lanes.values()].map((lane) => [lane.name, metricsOf(lane, lane.steps.length)]));
  const plain = Math.max(...[S.first.plain, S.first.baseline].map((name) => numbers[name]?.tokens_per_s ?? 0));
  return plain > 0 ? `${(whatIf.tokens.length / seconds / plain).toFixed(2)}\u00d7` : "";
}

// The sentence beside the slider: the best of all choices against plain, and how near the raced lane came to the oracle.
function bestWords(whatIf) {
  const best = whatIf.all().reduce((one, other) => (other.seconds < one.seconds ? other : one));
  const times = timesPlain(whatIf, best.seconds), ratio = times ? `, ${times} plain` : "";
  const share = S.recording.oracles?.[S.sides[1]]?.share;
  const own = timesPlain(whatIf, sum(S.raced.race.lane(S.sides[1]).steps.map(stepSeconds)));
  const reached = typeof share === "number" ? ` As raced: ${own}, ${percent(share)} of perfect foresight (the oracle).` : "";
  return `Best fixed length: ${best.drafter} at ${best.k}${ratio}.${reached}`;
}

function openWhatIf() {
  const whatIf = whatIfOf(), usable = whatIf instanceof WhatIf;
  for (const name of ["whatIfDrafter", "whatIfK", "whatIfRaced"]) refs[name].disabled = !usable;
  write(refs.whatIfWords, usable ? bestWords(whatIf) : whatIf);
  if (!usable) return refs.whatIfDrafter.replaceChildren();
  const choice = (value, words) => Object.assign(make("option", "", oneLine(words)), { value });
  const offered = [...whatIf.offered.keys()].map((drafter) => choice(drafter, drafterName(drafter)));
  refs.whatIfDrafter.replaceChildren(...(whatIf.offered.has(racedLane().drafter) ? [] :
    [choice("", `as raced: ${guessWords(racedLane()).replace(/^guesses: /, "")}`)]), ...offered);
  offerRaced();
  return undefined;
}

function racedLane() { return S.recording.spec.lanes.find((lane) => lane.name === S.sides[1]); }

// What was raced: of a drafter without tables of its own, as a hybrid, a choice that tells no other length.
function offerRaced() {
  const { drafter, k } = racedLane();
  refs.whatIfDrafter.value = S.whatIf.offered.has(drafter) ? drafter : "";
  offerLengths(k);
}

// The drafter that the slider tells: where none is chosen, the last one.
function toldDrafter() { return refs.whatIfDrafter.value || [...S.whatIf.offered.keys()].at(-1); }

// The slider's places are the lengths that the drafter's tables serve.
function offerLengths(k) {
  const ks = S.whatIf.offered.get(toldDrafter()), place = ks.indexOf(Number(k));
  refs.whatIfK.max = String(ks.length - 1);
  refs.whatIfK.value = String(place >= 0 ? place : ks.length - 1);
  write(refs.whatIfShown, "as raced");
}

function tellWhatIf() {
  const drafter = refs.whatIfDrafter.value = toldDrafter(), k = S.whatIf.offered.get(drafter)[Number(refs.whatIfK.value)];
  const lanes = S.recording.spec.lanes.map((lane) => (lane.name === S.sides[1] ? { ...lane, drafter, k } : lane));
  write(refs.whatIfShown, `${k}: ${timesPlain(S.whatIf, S.whatIf.seconds(drafter, k))}`);
  refs.whatIfK.setAttribute("aria-valuetext", `${k} tokens`);
  show({ race: S.whatIf.at(drafter, k), header: { ...S.recording, spec: { ...S.recording.spec, lanes } },
    metrics: null, speedup: null, told: true });
}

// Back to what was raced.
function endWhatIf() {
  if (S.told) show({ ...S.raced, header: S.recording, told: false });
  if (S.whatIf instanceof WhatIf) offerRaced();
}

function show(now) {
  mine();
  replay.pause();
  popover.close();
  views.right.clear();
  S.marked.delete("right");
  chart.clear();
  Object.assign(S, now);
  board.names(S.header, S.sides, S.first);
  replay.load(S.race.duration(S.sides), S.race.times(S.sides));
  controls();
  schedule();
}

refs.whatIfDrafter.addEventListener("change", () => {
  if (!refs.whatIfDrafter.value) return endWhatIf();
  offerLengths(null);
  return tellWhatIf();
});
refs.whatIfK.addEventListener("input", tellWhatIf);
refs.whatIfRaced.addEventListener("click", endWhatIf);
