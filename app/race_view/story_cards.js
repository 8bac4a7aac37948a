// What the story says, a card at a time, and what each card sets up and lights. Its numbers are those of the race on
// the screen. At most 40 words a card.

// How the cards get at the tabs. `step` opens one step of the lane with guesses.
const STAGES = {
  text: () => choose("text"),
  rows: () => choose("steps"),
  step: (index) => (typeof openStep === "function" ? openStep(index) : choose("steps")),
  lengths: () => choose("whatif"),
};
const shownStep = (index) => views.right.nodes.find((node) => Number(node.dataset.step) === index);

// What guesses, by the names in a drafter's own.
const guesser = (drafter) => drafter.split(/[:+]/).map((part) => DRAFTER_NAMES[part]).filter(Boolean)
  .map((name) => `${/^[aeiou]/.test(name) ? "an" : "a"} ${name}`).join(", or ") || oneLine(drafter).slice(0, 30);

// What a race tells the story by: a usual step of plain decoding, a step with guesses right and wrong, and one that
// kept as few as any. null where the lanes do not promise the same text, or no step shows both.
function taleOf() {
  const [left, right] = S.sides.map((name) => S.race.lane(name));
  if (S.live || S.state !== "finished" || S.told || !left?.finished || !right?.finished
    || !verdictOn(S.sides[1])?.kind.startsWith("identical")) return null;
  const partly = right.steps.filter(({ num_accepted: kept, drafted_pieces: pieces, token_ids: ids }) =>
    kept && pieces.length > kept && ids.length > kept);
  // the clearest: a few guesses on either side, and words where the draft breaks
  const clear = partly.find(({ drafted, drafted_pieces: pieces, num_accepted: kept, pieces: own }) => kept > 1
    && drafted.length > kept + 1 && drafted.length < 9 && [pieces[kept], own.at(-1)].every((piece) => piece?.trim()));
  const drafts = right.steps.filter(numDrafted);
  return partly.length ? { left, right, step: clear ?? partly[0], plain_s: percentile(left.steps.map(stepSeconds), 0.5),
    poor: drafts.reduce((least, step) => (step.num_accepted < least.num_accepted ? step : least)),
    params: S.header.spec.params, lane: S.header.spec.lanes.find(({ name }) => name === S.sides[1]) } : null;
}

function storyPiece(piece) { return `\u201c${oneLine(piece).slice(0, 16)}\u201d`; }

// The lengths to name at the slider: shortest, best, longest, each with its speed against plain.
function lengthWords(whatIf) {
  const drafter = toldDrafter(), all = whatIf.all().filter((each) => each.drafter === drafter);
  const best = all.reduce((one, other) => (other.seconds < one.seconds ? other : one));
  const named = [...new Set([all[0], best, all.at(-1)])];
  return named.map((each, i) => `${timesPlain(whatIf, each.seconds)} at ${i ? "" : "k = "}${each.k}`
    + (each === best ? " (best)" : "")).join(", ");
}

// {title, stage, target, words}: `stage` sets the page up, `target` is what is lit then: the first one that is there.
const CARDS = [
  {
    title: "Alone, one token at a time",
    stage: ({ left }) => { STAGES.text(); replay.seek(left.steps[Math.min(40, left.steps.length) - 1].clock_s); },
    target: () => [refs.leftText.closest(".pf-lane"), root.querySelector("[data-board=left]")],
    words: ({ left, plain_s }) => "A language model writes text token by token: words, or parts of words. For each one "
      + `the whole model runs. So does Plain: ${left.steps.length} runs for ${left.tokens.at(-1)} tokens, about `
      + `${duration(plain_s)} each. The clock starts when the prompt is read.`,
  },
  {
    title: "A draft is a guess",
    stage: ({ right, step }) => { STAGES.text(); replay.seek(step.clock_s - step.verify_s); paint(); guessNow(right); },
    target: () => [opening.guess?.node],
    words: ({ step, lane }) => "The other lane guesses first. A fast drafter, here "
      + `${guesser(lane.drafter)}, proposes the ${plural(numDrafted(step), "pale token")} at the end: a draft. It took `
      + `${duration(step.draft_s)}; nothing is decided yet.`,
  },
  {
    title: "One run checks them all",
    stage: ({ step }) => { STAGES.text(); replay.seek(step.clock_s); },
    target: ({ step }) => [shownStep(step.index)],
    words: ({ step, plain_s }) => `One run of the model checks all ${numDrafted(step)} guesses at once. Kept: `
      + `${step.num_accepted}. New tokens: ${step.token_ids.length}, in ${duration(stepSeconds(step))}, guessing `
      + `included. Plain takes ${duration(plain_s * step.token_ids.length)} for as many.`,
  },
  {
    title: "Why the text stays the same",
    stage: () => { STAGES.text(); replay.seek(replay.duration); },
    target: () => [refs.verdict],
    words: ({ left, params }) => "A guess is kept only if it is the very token that the model picks itself. So both "
      + `lanes wrote the same ${left.tokens.at(-1)} tokens. ${params.temperature > 0 ?
        `Where chance picked, both threw the same dice (seed ${params.seed}).` :
        "Where chance picks, both throw the same dice."}`,
  },
  {
    title: "Why a guess is struck out",
    stage: ({ step }) => { STAGES.step(step.index); replay.seek(step.clock_s); },
    target: ({ step }) => [root.querySelector('.pf-one-place[data-verdict="no"]'), root.querySelector(".pf-one-row"),
      shownStep(step.index)],
    words: ({ step }) => `The draft said ${storyPiece(step.drafted_pieces[step.num_accepted])}; the model picks `
      + `${storyPiece(step.pieces.at(-1))}. So that guess is struck out, and those after it: they continue a text that `
      + "is not written. The model's own token stands instead, from the same run.",
  },
  {
    title: "When guessing loses",
    stage: () => { STAGES.rows(); replay.seek(replay.duration); },
    target: ({ poor }) => [shownStep(poor.index)],
    words: ({ poor, plain_s }) => `Step ${poor.index + 1} kept ${poor.num_accepted} of ${numDrafted(poor)}: `
      + `${plural(poor.token_ids.length, "token")} in ${duration(stepSeconds(poor))}. Plain takes `
      + `${duration(plain_s * poor.token_ids.length)}. With many such steps guessing is slower than plain. This whole `
      + `race was ${refs.ratio.textContent} as fast.`,
  },
  {
    title: "k: how many tokens to guess",
    stage: () => { STAGES.lengths(); replay.seek(replay.duration); },
    target: () => [S.whatIf instanceof WhatIf && refs.whatIfK.closest(".pf-whatif"),
      root.querySelector("[data-board=right]")],
    words: ({ right, lane }) => "k is how many tokens are guessed at once. Few win little; many cost more, and the "
      + `last are often wrong. ${S.whatIf instanceof WhatIf ?
        `With ${guesser(toldDrafter())} alone: ${lengthWords(S.whatIf)}.` :
        `Here k was ${lane.k === "auto" ? "automatic" : lane.k}: ${metricsOf(right, right.steps.length)
          .mean_acceptance_length.toFixed(2)} tokens a step.`}`,
  },
];
