// The answer of a race: what could be deployed, at its best fixed length, and how fast that was. Verdict, money,
// command and the sentence of "What if" all take it from here (docs/yours.md). Pure: no DOM.

import { SAYS } from "../host.js";
import { cautionsOf, isNoise, isOfServers, metricsOf, raceSpeedup, ratioNoise } from "../base/model.js";
import { capital, cut, differs, drafterName, draftWords, noResult, oneLine, RANDOM_WEIGHTS, sentence, shortDrafter,
  times } from "../base/text.js";
import { wasteWords } from "./money.js";
import { canServe, drafterOf, isShipped, partsOf, serverRule, undrawn } from "./production.js";
import { laneOf } from "./whatif.js";

const TEXTS_DIFFER = "The texts differ, so the speeds are not of quite the same work.";
const isLittle = (ratio) => Number(ratio.toFixed(2)) < SAYS.threshold;
const toneWords = (tone, ratio) => capital(SAYS.pays[tone === "differ" && isLittle(ratio) ? "little_differ" : tone]);

// An option: {drafter, k, lane (its name, if it raced), isMeasured, tokensPerS, prefillS, perStep (tokens a step),
// perBlock (the same of drafts by probability that are verified as a block),
// steps (of one that raced), ratio (over plain, as shown everywhere), canServe, isShared (its drafter draws with the
// target's random numbers, as on no server)}.
//
// {plain, options, best, engine, alone, subject, isChosen, caution, tone, noise, isEvidence, not, saves, scope, work,
// rules (see rulesOf)};
// null without a plain lane or anything to compare with it. best: the fastest option that a server can run; engine: the
// fastest of the others, if it is faster; alone: see aloneOf; subject: the option that verdict, money and command are
// about: the one chosen in "What if", else `best`, else `engine`. tone: a key of SAYS.pays; "little" is a gain that the
// verdict on many prompts calls too small, "differ" one on servers whose texts differ; noise: of the ratio, null if
// unknown; not: why its gain is no result, "" if it may be one, then isEvidence; saves: a server can run it, and its
// saving may be quoted; work: words for what the gain saves, for wasteWords.
//
// race: lanes as run; first: by role; whatIf: null without tables; chosen: {drafter, k}.
export function answerOf(header, race, first, { whatIf = null, chosen = null } = {}) {
  const plain = [first.plain, first.baseline].flatMap((name) => {
    const lane = race.lane(name), timing = lane && metricsOf(lane);
    return timing?.tokens_per_s > 0 ? [{ name, tokensPerS: timing.tokens_per_s, prefillS: timing.prefill_s ?? 0,
      steps: lane.steps }] : [];
  }).sort((a, b) => b.tokensPerS - a.tokensPerS)[0];
  const options = plain ? [...measured(header, race, first, plain)] : [];
  if (!options.length) return null;
  for (const { drafter, k, seconds, numSteps, blockSteps } of [...whatIf?.all() ?? [], ...whatIf?.expected() ?? []]) {
    const lane = laneOf(drafter, k), tokensPerS = whatIf.tokens.length / seconds;
    if (options.some((option) => option.drafter === lane.drafter && option.k === lane.k)) continue;
    options.push({ ...lane, lane: null, isMeasured: false, tokensPerS,
      prefillS: (options.find((option) => option.drafter === undrawn(lane.drafter)) ?? options[0]).prefillS,
      get perStep() { return whatIf.tokens.length / (numSteps ?? whatIf.steps(drafter, k).length); },
      perBlock: whatIf.tokens.length / blockSteps,
      ratio: tokensPerS / plain.tokensPerS,
      canServe: canServe(header, lane) });
  }
  const draws = header.spec?.params.temperature > 0;
  for (const option of options)
    option.isShared = draws && !/^(ngram|server)\b/.test(option.drafter) && !serverRule(option.drafter);
  const fastest = (some) => some.reduce((top, option) => (top && top.ratio >= option.ratio ? top : option), null);
  const best = fastest(options.filter((option) => option.canServe));
  const engine = fastest(options.filter((option) => !option.canServe && !(option.ratio <= best?.ratio)));
  const choice = options.find((option) => option.drafter === chosen?.drafter && option.k === chosen?.k);
  const subject = choice ?? best ?? engine;
  return { plain, options, best, engine, subject, isChosen: Boolean(choice), scope: scopeOf(header),
    alone: [...aloneOf(header, options, [subject, best].map((option) => undrawn(option?.drafter ?? "")))],
    rules: rulesOf(options, fastest),
    ...judged(header, plain, subject, options) };
}

// The lanes that raced, as options.
function* measured(header, race, first, plain) {
  for (const { name, role, drafter, k } of header.spec?.lanes ?? []) {
    const lane = race.lane(name), timing = lane && metricsOf(lane);
    if (role !== "speculative" || !(timing?.tokens_per_s > 0) || lane.failed) continue;
    yield { drafter, k, lane: name, isMeasured: true, tokensPerS: timing.tokens_per_s, prefillS: timing.prefill_s ?? 0,
      steps: lane.steps, perStep: lane.tokens.at(-1) / lane.steps.length,
      ratio: raceSpeedup(race, first, lane) ?? timing.tokens_per_s / plain.tokensPerS,
      canServe: isOfServers(header) || canServe(header, { drafter, k }) };
  }
}

// What the two ways in which servers draft give, each at its best length, for the drafter that is fastest with one of
// them; "" if that is not known.
function rulesOf(options, fastest) {
  const served = options.filter((option) => option.canServe && serverRule(option.drafter));
  const name = undrawn(fastest(served.filter(({ drafter }) => serverRule(drafter) === "probabilistic"))?.drafter ?? "");
  const words = (rule) => {
    const { k, ratio, perStep, perBlock } = fastest(served.filter(({ drafter }) => drafter === `${name}~${rule}`));
    const block = perBlock ? `; ${perBlock.toFixed(2)} verified as a block, by vLLM on GPUs alone` : "";
    return `${times(ratio)} (k = ${k}, ${perStep.toFixed(2)} tokens a step${block})`;
  };
  return name && `How servers draft with ${shortDrafter(name)}, computed: greedily, by default, ${words("greedy")}; by `
    + `probability ${words("probabilistic")}.`;
}

// The race's other drafters, and parts of a hybrid, that a server can run, and heads that none can: {drafter, isServed,
// best: the fastest option, undefined without figures}. known: drafters that the answer names anyway.
function* aloneOf(header, options, known) {
  const raced = (header.spec?.lanes ?? []).filter(({ role }) => role === "speculative").map(({ drafter }) => drafter);
  for (const name of new Set(raced.flatMap((whole) => [whole, ...partsOf(whole)]))) {
    const like = options.filter((option) => undrawn(option.drafter) === name && option.canServe);
    const [best] = like.sort((a, b) => b.ratio - a.ratio), isHybrid = partsOf(name).length > 0;
    const isServed = Boolean(best) || canServe(header, { drafter: name, k: 1 });
    if (known.includes(name) || !(isServed || (!isHybrid && isShipped(drafterOf(name))))) continue;
    yield { drafter: best?.drafter ?? name, isServed, best };
  }
}

// What limits the answer. A computed race has no noise of its own; it takes that of a lane that raced.
function judged(header, plain, { drafter, ratio, lane, canServe: isServed }, options) {
  const like = options.find((raced) => raced.lane === lane && lane) ?? options.find((raced) => raced.isMeasured
    && raced.drafter === undrawn(drafter)) ?? options[0];
  const noise = ratioNoise(plain.steps, like.steps), isEven = isNoise(ratio, noise);
  const { whole: disturbed, loop, copies } = cautionsOf(header, like.lane), verdict = header.verdicts?.[like.lane];
  const isOther = differs(verdict), none = noResult(verdict);
  const limits = [isEven && `The difference is within the noise (${noiseWords(noise)}).`,
    disturbed && `${disturbed} Do not quote these figures.`, loop, copies, none && `No result: ${none}.`,
    isOther && !none && TEXTS_DIFFER,
    drafter.startsWith("synthetic") && "The drafts are made up: this is what a real drafter of that accuracy would "
      + "save.",
    RANDOM_WEIGHTS.test(header.model.name) && "These are random weights: which guesses were kept means nothing."]
    .filter(Boolean);
  const isOnlyOther = isOfServers(header) && limits.every((limit) => limit === TEXTS_DIFFER);
  const tone = isEven ? "even" : toneOf(ratio, limits.length > 0 && !isOnlyOther, isOther);
  const why = none || (tone === "doubtful" && loop && SAYS.loops), not = why ? `no result: ${why}` : "";
  if (["little", "differ"].includes(tone) && isLittle(ratio)) limits.push(SAYS.rule);
  const work = isOfServers(header) ? " time per answer after its first text, one user: load may change it" :
    isOther ? " machine time" : undefined;
  return { caution: limits.join(" "), tone, noise, isEvidence: !not, not,
    saves: isServed && !not && !isEven && !disturbed, work };
}

function toneOf(ratio, isDoubtful, isOther) {
  if (ratio < 1) return "loses";
  if (isDoubtful) return "doubtful";
  if (isOther) return "differ";
  return isLittle(ratio) ? "little" : "pays";
}

// "±3 %"; "" of noise that is not known.
export const noiseWords = (noise) =>
  (typeof noise === "number" ? `\u00b1${(100 * noise).toFixed(noise < 0.01 ? 1 : 0)} %` : "");

// What the answer holds for: "gemma-3-270m on a CPU (AMD EPYC, 2 cores), one user". Twin of `scope` in
// engine/recordings/words.py; compared by test_both_sides_name_the_same_scope.
export function scopeOf({ model, device }) {
  const where = device.type === "cpu" ? `a CPU (${device.name})` : device.type === "cuda" ? `one ${device.name}` :
    device.name;
  return cut(oneLine(`${model.name} on ${where}, one user`), 300);
}

// "n-gram (copies earlier text), k = 5".
export function choiceWords({ drafter, k, lane }) {
  return drafter === "server" ? cut(oneLine(`lane ${lane}, on a server`), 80) : draftWords({ drafter, k });
}

// The same without the brackets.
export const shortChoice = (option) =>
  choiceWords(option).replace(drafterName(option.drafter), () => shortDrafter(option.drafter));

// "1.87× as fast as Plain (computed)", the same wherever it is said.
export function gainWords({ ratio, isMeasured, isShared, canServe: isServed }) {
  return `${ratio.toFixed(2)}\u00d7 as fast as Plain (${isMeasured ? "measured" : "computed"}${isShared && isServed ?
    ", with shared random numbers, as on no server" : ""})`;
}

// The verdict. Only what a server can run saves a share of anything. what: put before the drafter.
export function verdictWords({ subject, isChosen, tone, not, saves, work }, what = "") {
  const claim = `${what}${choiceWords(subject)}${isChosen ? " (chosen in What if)" : ""}: ${gainWords(subject)}`;
  if (not) return `${sentence(not)} ${what ? sentence(claim) : `${claim}.`}`;
  if (!subject.canServe)
    return `${["even", "loses"].includes(tone) ? `${toneWords(tone)}, this` : "This"} engine alone: ${claim}.`;
  return `${toneWords(tone, subject.ratio)}: ${claim}${saves ? `, ${wasteWords(subject.ratio, work)}` : ""}.`;
}

// Whether it pays, without what was raced.
export const payWords = ({ subject, tone, saves, work }) =>
  `${toneWords(tone, subject.ratio)}${saves ? `: ${wasteWords(subject.ratio, work)}` : ""}.`;

// What the verdict is not about: the best that a server can run if another option was chosen, other drafters, and this
// engine's best.
export function othersWords({ subject, best, engine, alone, rules }) {
  return [best && best !== subject && `Best that a server can run: ${choiceWords(best)}, ${gainWords(best)}.`,
    ...alone.map(aloneWords),
    engine && engine !== subject && `This engine alone: ${choiceWords(engine)}, ${gainWords(engine)}.`,
    rules].filter(Boolean).join(" ");
}

function aloneWords({ drafter, best, isServed }) {
  const name = drafter.startsWith("hybrid:") ? drafterName(drafter) :
    shortDrafter(drafter).replace(/(, drafted .*)?$/s, " alone$1");
  if (!isServed) return `${name}: no server runs this head, which ships with Photofinish.`;
  return best ? `${name}, k = ${best.k}: ${times(best.ratio)} (${best.isMeasured ? "measured" : "computed"}).` :
    `${name}: no figures at a fixed length in this race; race it to get them.`;
}

// Why there is nothing to serve; "" if there is something, or if it was chosen all the same.
export function nothingWords({ tone, noise, not, isChosen, options }) {
  const why = !not ? { even: `the difference is within the noise (${noiseWords(noise)})`,
    loses: "guessing is slower here" }[tone] : not;
  return !why || isChosen ? "" : `Nothing to put into production: ${why}.${options.every(({ lane }) => lane) ? "" :
    " Choose an option in What if to see its commands all the same."}`;
}
