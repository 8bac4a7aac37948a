// The story's cards: text, setup and target of each. Numbers come from the race on the screen. At most 40 words a card.

import { keptOf, laneSpec, likeliest, metricsOf, numDrafted, reasonsOf, stepSeconds, sum,
  tokensOf } from "../base/model.js";
import { cut, drafterName, duration, isIdentical, makeUnheard, oneLine, plural, putText } from "../base/text.js";
import { paint } from "../board/paint.js";
import { refs, replay, root, S, shownLanes, verdictOn, views } from "../board/screen.js";
import { choose } from "../board/tabs.js";
import { openStep } from "../tabs/step_tab.js";
import { WhatIf } from "../tabs/whatif.js";
import { chosenDrafter, timesPlain } from "../tabs/whatif_tab.js";

// The draft that a card shows at the end of the text; null: none.
let guess = null;

function guessNow(lane) {
  land();
  const step = lane.steps[views.right.shown];
  const shown = tokensOf(step).slice(0, numDrafted(step)).filter(({ aside }) => !aside);
  guess = putText(makeUnheard("span", "pf-guess"), shown.map(({ text }) => text).join(""));
  refs.rightText.append(guess);
}

// Remove it.
export function land() {
  guess?.remove();
  guess = null;
}

const shownStep = (index) => views.right.nodes.find((node) => Number(node.dataset.step) === index);

// The dropped guess at the place where the text goes on; undefined if there is none.
const struckPiece = (step) => step.drafted_pieces[likeliest(step)[0]];

// What the story needs of a race: the time of a plain token, a step with right and wrong guesses, a chain if there is
// one, and one that kept the fewest. null if the texts are not identical or no step has both.
export function taleOf() {
  const [left, right] = shownLanes();
  if (S.live || S.state !== "finished" || S.computed || !left?.finished || !right?.finished
    || !isIdentical(verdictOn(S.sides[1]))) return null;
  const both = right.steps.filter((step) =>
    step.num_accepted && struckPiece(step) !== undefined && step.token_ids.length > step.num_accepted);
  const chains = both.filter((step) => !step.parents), partly = chains.length ? chains : both;
  // the clearest: a few right and wrong guesses, and visible text where the draft breaks
  const clear = partly.find((step) => step.num_accepted > 1 && step.drafted.length > step.num_accepted + 1
    && step.drafted.length < 9 && [struckPiece(step), step.pieces.at(-1)].every((piece) => piece?.trim()));
  const drafts = right.steps.filter(numDrafted);
  return partly.length ? { left, right, step: clear ?? partly[0], plain_s: metricsOf(left).tpot_s,
    poor: drafts.reduce((least, step) => (step.num_accepted < least.num_accepted ? step : least)),
    params: S.header.spec.params, lane: laneSpec(S.header, S.sides[1]) } : null;
}

// In a recording, the step that kept the most of a tree and needed it: a kept guess was not the first for its place, so
// a chain would have missed it. undefined if there is none.
export function treeOf({ spec, events }) {
  const { name } = spec.lanes.find(({ role }) => role === "speculative");
  const firstFor = ({ parents }, i) => parents.indexOf(parents[i]);
  return events.filter((step) => step.lane === name && step.parents).flatMap((step) =>
    keptOf(step).filter((i) => firstFor(step, i) < i).map((i) => ({ step, right: step.drafted_pieces[i],
      first: step.drafted_pieces[firstFor(step, i)] }))).sort((a, b) => b.step.num_accepted - a.step.num_accepted)[0];
}

const widthOf = (step) => step.width ?? numDrafted(step) + 1;
const mean = (steps) => sum(steps.map((step) => step.verify_s)) / steps.length;

// What a plain step spends on reading the weights, if the race's roofline is known.
function readingWords(plain_s) {
  const { bytes_per_step: bytes, bandwidth_bytes_per_s: speed } = S.recording.roofline ?? {};
  const plain = duration(plain_s);
  return bytes > 0 && speed > 0 ? `Reading the weights (${(bytes / 1e6).toFixed(0)} MB) takes at least `
    + `${duration(bytes / speed)} of a plain step's ${plain}.` :
    `Every pass reads all the weights from memory; a plain one took ${plain}.`;
}

function storyPiece(piece) { return `\u201c${cut(oneLine(piece), 16)}\u201d`; }

// The shortest, best and longest length, each with its speed-up over plain.
function lengthWords(whatIf) {
  const drafter = chosenDrafter(), all = whatIf.all().filter((choice) => choice.drafter === drafter);
  const best = all.reduce((fastest, choice) => (choice.seconds < fastest.seconds ? choice : fastest));
  const named = [...new Set([all[0], best, all.at(-1)])];
  const sizes = [`k = ${named[0].k}`, ...named.slice(1).map((choice) => choice.k)];
  return named.map((choice, i) => `${timesPlain(whatIf, choice.seconds)} at ${sizes[i]}`
    + (choice === best ? " (best)" : "")).join(", ");
}

// {title, stage, target, words}: `stage` prepares the page; the first visible node of `target` is highlighted.
// offersLoss: a race that loses is offered; isOfTree: a race with trees takes the screen.
export const CARDS = [
  {
    title: "Alone, one token at a time",
    stage: ({ left }) => { choose("text"); replay.seek(left.steps[Math.min(40, left.steps.length) - 1].clock_s); },
    target: () => [refs.leftText.closest(".pf-lane"), root.querySelector("[data-board=left]")],
    words: ({ left, plain_s }) => "A model writes tokens: words, or parts of words. Each needs one pass of the whole "
      + `model. Plain does just that: ${left.steps.length} passes for ${left.tokens.at(-1)} tokens, about `
      + `${duration(plain_s)} each. The clock starts once the prompt has been read.`,
  },
  {
    title: "A draft is a guess",
    stage: ({ right, step }) => {
      choose("text");
      replay.seek(step.clock_s - step.verify_s);
      paint();
      guessNow(right);
    },
    target: () => [guess],
    words: ({ step, lane }) => "The other lane guesses ahead. Something fast, the drafter "
      + `(${drafterName(lane.drafter)}, see Glossary), proposes ${plural(numDrafted(step), "token")}${step.parents ?
        " in a tree. One of its paths is" : ","} shown pale: a draft. It took `
      + `${duration(step.draft_s)}. Nothing is decided yet.`,
  },
  {
    title: "One pass checks them all",
    stage: ({ step }) => { choose("text"); replay.seek(step.clock_s); },
    target: ({ step }) => [shownStep(step.index)],
    words: ({ step, plain_s }) => `One pass of the model checks all ${numDrafted(step)} guesses at once. `
      + `${step.num_accepted} kept, ${plural(step.token_ids.length, "new token")} in ${duration(stepSeconds(step))}, `
      + `drafting included. Plain takes ${duration(plain_s * step.token_ids.length)} for as many.`,
  },
  {
    title: "Why checking many costs about as much as writing one",
    stage: ({ step }) => { choose("text"); replay.seek(step.clock_s); },
    target: ({ step }) => [shownStep(step.index)],
    words: ({ step, right, plain_s }) => `${readingWords(plain_s)} One reading serves every position of a pass: `
      + `${widthOf(step)} took ${duration(mean(right.steps.filter((pass) => widthOf(pass) === widthOf(step))))}. `
      + `Guessing saves time, not work: ${sum(right.steps.map((pass) => numDrafted(pass) - pass.num_accepted))} `
      + "guesses were checked in vain.",
  },
  {
    title: "Why the text stays the same",
    stage: () => { choose("text"); replay.seek(replay.duration); },
    target: () => [refs.verdict],
    words: ({ left, params }) => "A guess is kept only if the model would pick that very token. So both "
      + `lanes wrote the same ${left.tokens.at(-1)} tokens. With sampling, both use the same random numbers${
        params.temperature > 0 ? ` (seed ${params.seed})` : ""}: stricter than usual, equal text, not just equal odds.`,
  },
  {
    title: "Why a guess is dropped",
    stage: ({ step }) => { openStep(step.index); replay.seek(step.clock_s); },
    target: ({ step }) => [root.querySelector('.pf-one-place[data-verdict="no"]'), root.querySelector(".pf-one-row"),
      shownStep(step.index)],
    words: ({ step }) => `The draft said ${storyPiece(struckPiece(step))}, the model picks `
      + `${storyPiece(step.pieces.at(-1))}. So that guess is dropped, and all after it: they continued a text that `
      + "will never exist. The model's own token takes its place, from the same pass.",
  },
  {
    title: "When guessing loses",
    stage: () => { choose("steps"); replay.seek(replay.duration); },
    target: ({ poor }) => [shownStep(poor.index)],
    words: ({ poor, plain_s }) => `Step ${poor.index + 1} kept ${poor.num_accepted} of ${numDrafted(poor)}: `
      + `${plural(poor.token_ids.length, "token")} in ${duration(stepSeconds(poor))}. Plain takes `
      + `${duration(plain_s * poor.token_ids.length)}. If most steps were like this, guessing would be slower than `
      + `Plain. This race as a whole was ${refs.ratio.textContent} as fast.`,
  },
  {
    title: "k: the draft length",
    stage: () => { choose("whatif"); replay.seek(replay.duration); },
    target: () => [S.whatIf instanceof WhatIf && refs.whatIfK.closest(".pf-whatif"),
      root.querySelector("[data-board=right]")],
    words: ({ right, lane }) => "k is how many tokens are guessed at once. Short drafts save little; "
      + `long ones cost more and often end wrong. ${S.whatIf instanceof WhatIf ?
        `With ${drafterName(chosenDrafter())}: ${lengthWords(S.whatIf)}.` :
        `Here k was ${lane.k === "auto" ? "automatic" : lane.k}: ${
          metricsOf(right).mean_acceptance_length.toFixed(2)} tokens a step.`}`,
  },
  {
    title: "When not to guess",
    offersLoss: true,
    stage: () => { choose("text"); replay.seek(replay.duration); },
    target: () => [root.querySelector(".pf-ratio-board")],
    words: ({ right }) => `A step here costs ${reasonsOf(S.race, S.first, right)?.cost.toFixed(2) ?? "more than one"} `
      + "plain ones. It loses when it writes fewer tokens, as few guesses are right. Or when the server is busy: one "
      + "pass serves many users already, and checking guesses takes their time.",
  },
  {
    title: "More than one guess for a place",
    isOfTree: true,
    stage: ({ tree }) => { openStep(tree.step.index); replay.seek(tree.step.clock_s); },
    target: ({ tree }) => [root.querySelector(".pf-one-row"), shownStep(tree.step.index)],
    words: ({ tree: { step, right, first } }) => `A draft can branch. This one, in ${S.name}, is a tree of `
      + `${numDrafted(step)}, checked in one pass too: ${storyPiece(first)} and ${storyPiece(right)} compete for one `
      + "place. The latter was right; a line would have ended there.",
  },
];
