// The answer of a race: what could be deployed, at its best fixed length, and how fast that was. Verdict, money,
// command and the sentence of "What if" all take it from here (docs/decide.md). Pure: no DOM.

import { isNoise, loopSentence, NO_EVIDENCE, ratioNoise, withCounters } from "../base/caveats.js";
import { isElsewhere, isOfServers, metricsOf, raceSpeedup } from "../base/model.js";
import { oneLine, percent, RANDOM_WEIGHTS, sentence } from "../base/text.js";
import { differs, draftWords } from "../base/words.js";
import { wasteWords } from "./money.js";
import { canServe } from "./production.js";
import { laneOf } from "./whatif.js";

const TONES = { __proto__: null, pays: "Pays", doubtful: "Doubtful", even: "No difference", loses: "Does not pay" };

// An option: {drafter, k, lane (its name, if it raced), isMeasured, tokensPerS, prefillS, steps, ratio (over plain, as
// shown everywhere), canServe}.
//
// {plain, options, best, engine, subject, isChosen, caution, tone, scope, work}. best: the fastest option that a server
// can run; engine: the fastest of the others, if it is faster; subject: what verdict, money and command are about: the
// option chosen in "What if", else `best`, else `engine`. tone: "pays", "doubtful", "even" or "loses"; isEvidence: its
// gain is not that of a text that repeats itself; work: what the gain is less of, for wasteWords. null if the race has
// no plain lane, or nothing to compare with it.
//
// race: lanes as run; first: by role; metrics: the server's, if any; whatIf: null without tables; chosen: {drafter, k}.
export function answerOf(header, race, first, { metrics = null, whatIf = null, chosen = null, disturbed = "" } = {}) {
  const numbers = (lane) => metrics?.[lane.name] ?? metricsOf(lane, lane.steps.length);
  const plain = [first.plain, first.baseline].flatMap((name) => {
    const lane = race.lane(name), found = lane && numbers(lane);
    return found?.tokens_per_s > 0 ? [{ name, tokensPerS: found.tokens_per_s, prefillS: found.prefill_s ?? 0,
      steps: lane.steps }] : [];
  }).sort((a, b) => b.tokensPerS - a.tokensPerS)[0];
  const options = plain ? [...measured(header, race, first, plain, numbers)] : [];
  if (!options.length) return null;
  for (const { drafter, k, seconds } of whatIf?.all() ?? []) {
    const lane = laneOf(drafter, k), tokensPerS = whatIf.tokens.length / seconds;
    if (options.some((each) => each.drafter === lane.drafter && each.k === lane.k)) continue;
    options.push({ ...lane, lane: null, isMeasured: false, tokensPerS,
      prefillS: (options.find((each) => each.drafter === lane.drafter) ?? options[0]).prefillS,
      get steps() { return whatIf.steps(drafter, k); },
      ratio: tokensPerS / plain.tokensPerS,
      canServe: canServe(header, lane) });
  }
  const fastest = (some) => some.reduce((one, other) => (one && one.ratio >= other.ratio ? one : other), null);
  const best = fastest(options.filter((each) => each.canServe));
  const engine = fastest(options.filter((each) => !each.canServe && !(each.ratio <= best?.ratio)));
  const choice = options.find((each) => each.drafter === chosen?.drafter && each.k === chosen?.k);
  const subject = choice ?? best ?? engine;
  return { plain, options, best, engine, subject, isChosen: Boolean(choice), scope: scopeOf(header),
    ...judged(header, plain, subject, options, disturbed) };
}

// The lanes that raced, as options.
function* measured(header, race, first, plain, numbers) {
  for (const { name, role, drafter, k } of header.spec?.lanes ?? []) {
    const lane = race.lane(name), found = lane && numbers(lane);
    if (role !== "speculative" || !(found?.tokens_per_s > 0) || lane.failed || isElsewhere(header, name)) continue;
    const speedup = raceSpeedup(race, first, lane, (each) => each.steps.length);
    yield { drafter, k, lane: name, isMeasured: true, tokensPerS: found.tokens_per_s, prefillS: found.prefill_s ?? 0,
      steps: lane.steps, ratio: speedup ?? found.tokens_per_s / plain.tokensPerS,
      canServe: isOfServers(header) || canServe(header, { drafter, k }) };
  }
}

// What limits the answer. A computed race has no noise of its own; that of a lane that raced stands for it.
function judged(header, plain, { drafter, ratio, lane, steps }, options, disturbed) {
  const like = options.find((each) => each.lane === lane && lane) ?? options.find((each) => each.drafter === drafter
    && each.isMeasured) ?? options[0], noise = ratioNoise(plain.steps, like.steps), isEven = isNoise(ratio, noise);
  const loop = loopSentence(withCounters(steps));
  const isOther = differs(header.verdicts?.[like.lane]);
  const caution = [isEven && `The difference is within the noise (\u00b1${(100 * noise).toFixed(0)} %).`,
    disturbed && "The machine was disturbed: do not quote these figures.", loop,
    isOther && "The texts differ, so the speeds are not of quite the same work.",
    drafter.startsWith("synthetic") && "The drafts are made up: this is what a real drafter of that accuracy would "
      + "save.",
    RANDOM_WEIGHTS.test(header.model.name) && "These are random weights: which guesses were kept means nothing."]
    .filter(Boolean).join(" ");
  const tone = isEven ? "even" : ratio < 1 ? "loses" : caution ? "doubtful" : "pays";
  const work = isOfServers(header) ? " time per answer, of one user: load may change it" :
    isOther ? " machine time" : undefined;
  return { caution, tone, isEvidence: !(loop && tone === "doubtful"), work };
}

// What the answer holds for: "gemma-3-270m on a CPU (AMD EPYC, 2 cores), one user". Twin of `scope` in
// engine/recordings/words.py; compared by test_both_sides_name_the_same_scope.
export function scopeOf({ model, device }) {
  const where = device.type === "cpu" ? `a CPU (${device.name})` : device.type === "cuda" ? `one ${device.name}` :
    device.name;
  return oneLine(`${model.name} on ${where}, one user`).slice(0, 300);
}

// "n-gram (copies earlier text), k = 5".
export function choiceWords({ drafter, k, lane }) {
  return drafter === "server" ? oneLine(`lane ${lane}, on a server`).slice(0, 80) : draftWords({ drafter, k });
}

// "1.87× as fast as Plain (computed)", the same wherever it is said.
export function gainWords({ ratio, isMeasured }) {
  return `${ratio.toFixed(2)}\u00d7 as fast as Plain (${isMeasured ? "measured" : "computed"})`;
}

// The verdict in one sentence.
export function verdictWords({ subject, isChosen, tone, isEvidence, work }) {
  const word = isEvidence ? `${subject.canServe ? TONES[tone] : "No command for this"}:` : sentence(NO_EVIDENCE);
  return `${word} ${choiceWords(subject)}${isChosen ? " (chosen in What if)" : ""}: ${gainWords(subject)}${
    isEvidence ? `, ${wasteWords(subject.ratio, work)}` : ""}.`;
}

// What the verdict is not about: the best that a server can run if another option was chosen, and this engine's best.
export function othersWords({ subject, best, engine }) {
  return [best && best !== subject && `Best that a server can run: ${choiceWords(best)}, ${gainWords(best)}.`,
    engine && engine !== subject && `This engine alone: ${choiceWords(engine)}, ${gainWords(engine)}.`]
    .filter(Boolean).join(" ");
}

// What the commands serve.
export function servedWords({ subject, isChosen, isEvidence }) {
  return `${choiceWords(subject)}: ${gainWords(subject)}, ${isChosen ? "chosen in What if" :
    "the fastest that a server can run"}.${isEvidence ? "" : ` ${sentence(NO_EVIDENCE)}`}`;
}

// The sentence at What if's slider. raced: the lane on the right; share: how much of the oracle's speed it reached.
export function bestWords(answer, raced, share) {
  const { best, engine, options } = answer, own = options.find((each) => each.lane === raced);
  return [best ? `Best that a server can run: ${choiceWords(best)}, ${gainWords(best)}.` :
    "No server runs a drafter of this race.",
  engine && engine !== own && `This engine alone: ${choiceWords(engine)}, ${gainWords(engine)}.`,
  own && own !== best && `This race: ${choiceWords(own)}, ${gainWords(own)}.`,
  typeof share === "number" && `This race reached ${percent(share)} of the best possible (the oracle).`]
    .filter(Boolean).join(" ");
}
