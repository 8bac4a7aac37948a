// One verification step in detail: each guess's source, confidence and outcome, the model's answer at every place, and
// the cost. Pure: no DOM.

import { depthsOf, followsOf, hasSteps, isOfServers, isRefuted, keptOf, laneSpec, likeliest, metricsOf, numDrafted,
  rowsOf, stepSeconds, tokensOf } from "../base/model.js";
import { cut, oneLine, plural } from "../base/text.js";

const SOURCES = { __proto__: null, ngram: "copied", eagle3: "EAGLE-3 head", dflash: "DFlash head",
  draft_model: "draft model", synthetic: "made up" };
const NUM_SHOWN = 3;          // answers per place, besides the guess and the choice
const CONTEXT_TOKENS = 14;
const CONTEXT_LETTERS = 48;

export class Walk {
  // recording: or the header, if there is none; race: its lanes; [plain, walked]: names of two of them.
  constructor(recording, race, [plain, walked]) {
    const { spec, prompt, candidates, table_pieces: words } = recording;
    const lane = race.lane(walked), { temperature = 0, top_k: topK, top_p: topP } = spec?.params ?? {};
    const { drafter = "", rule } = laneSpec(recording, walked) ?? {};
    Object.assign(this, { recording, lane, plain: race.lane(plain), candidates, temperature,
      steps: lane?.steps ?? [], onServer: isOfServers(recording), prompt: prompt ?? { text: "", token_ids: [] },
      filters: temperature > 0 && (topK > 0 || topP < 1), rejects: temperature > 0 && rule === "rejection",
      drafters: drafter.replace(/^hybrid:/, "").split("+") });
    this.pieces = this.steps.flatMap((step) => tokensOf(step).filter(({ kind }) => kind !== "rejected"));
    this.words = new Map(Object.entries(words ?? {}).concat(Object.entries(candidates?.pieces ?? {}))
      .map(([id, text]) => [Number(id), text]));
    for (const { steps } of race.lanes.values()) for (const step of steps) for (const { id, text } of tokensOf(step))
      if (step.pieces.length) this.words.set(id, text);
    this.tellsCopies = drafter === "ngram" || Boolean(candidates)
      || this.steps.some((step) => step.copied || step.sources);
  }

  text(id) { return this.words.get(id) ?? `#${id}`; }

  // all, some, none: how many guesses were kept (all: of a tree, to the end of a path); empty: no guess; cut: the text
  // ended within the draft.
  kind(step) {
    if (numDrafted(step) === 0) return "empty";
    if (step.token_ids.length === step.num_accepted) return "cut";
    return !isRefuted(step) ? "all" : step.num_accepted === 0 ? "none" : "some";
  }

  // The places of a step: {id, text, verdict, source, chance, row, depth, answers} of each guess, and at the end of the
  // place after the last one. id: of the guess; null if unknown, and at the last place. row: that decides there. depth:
  // how many guesses lead to it. verdict: ok, no or unused for a guess; extra, own or unused at the end.
  places(step) {
    const follows = followsOf(step), count = numDrafted(step), kept = keptOf(step), decided = rowsOf(step);
    const depths = depthsOf(step), rows = this.rows(this.lane.name)?.[step.index];
    const goesOn = step.token_ids.length > kept.length && !isRefuted(step);
    const verdictOf = (r, row) => {
      if (kept.includes(r)) return "ok";
      if (r < count) return decided.includes(row) ? "no" : "unused";
      return !goesOn ? "unused" : count === 0 ? "own" : "extra";
    };
    return Array.from({ length: count + 1 }, (_, r) => {
      const row = r < count ? follows[r] ?? r : step.parents ? (kept.at(-1) ?? -1) + 1 : count, order = kept.indexOf(r);
      const id = r === count ? null : step.drafted[r] ?? (order >= 0 ? step.token_ids[order] : null);
      const text = id === null ? null : order >= 0 ? step.pieces[order] ?? this.text(id) :
        step.drafted_pieces[r] ?? this.text(id);
      return { id, text, row, depth: depths[row] ?? row, verdict: verdictOf(r, row),
        source: r < count ? this.source(step, r) : null, chance: step.chances?.[r] ?? null,
        answers: rows?.[row] ? this.answers(rows[row], step, row) : null };
    });
  }

  // The place of the step's last committed token.
  lastPlace(step) {
    if (step.token_ids.length === step.num_accepted) return keptOf(step).at(-1);
    return isRefuted(step) ? likeliest(step)[0] ?? step.num_accepted : numDrafted(step);
  }

  rows(lane) {
    const lanes = this.candidates?.lanes ?? {};
    return Object.hasOwn(lanes, lane) ? lanes[lane] : null;
  }

  // A row's likely tokens by falling chance, including the guesses and the choice.
  answers({ ids, logits, log_z: logZ }, step, row) {
    const follows = followsOf(step), guessed = step.drafted.filter((_, i) => follows[i] === row);
    const chosen = step.token_ids[rowsOf(step).indexOf(row)];
    const all = ids.map((id, i) => ({ id, text: this.text(id), chance: Math.exp(logits[i] - logZ),
      guess: guessed.includes(id), chosen: id === chosen }));
    const shown = all.filter((answer, i) => i < NUM_SHOWN || answer.guess || answer.chosen);
    const removed = guessed.filter((id) => !ids.includes(id));       // by top-k or top-p
    return [...shown, ...removed.map((id) => ({ id, text: this.text(id), chance: 0, guess: true, chosen: false }))];
  }

  source(step, r) {
    const only = this.drafters.length === 1 && this.drafters[0] === "ngram";
    if (step.copied ? r >= step.copied[0] : step.sources ? step.sources[r] >= 0 : only) return "copied";
    const [head] = this.drafters.filter((name) => name !== "ngram");
    return this.tellsCopies || this.drafters.length === 1 ? SOURCES[head?.split(":")[0]] ?? "guess" : "guess";
  }

  // The token text at a position in prompt and completion, or null if unknown.
  textAt(place) {
    const ids = this.prompt.token_ids;
    return place < ids.length ? this.words.get(ids[place]) ?? null : this.pieces[place - ids.length]?.text ?? null;
  }

  // The guesses that were copied in one stretch with guess r, by number, and the place of the first of them in prompt
  // and completion; [] if r was copied from nowhere known.
  stretch(step, r) {
    if (step.copied && r >= step.copied[0])
      return { run: [...step.drafted.keys()].slice(step.copied[0]), place: step.copied[1] };
    const { sources, parents } = step, run = sources?.[r] >= 0 ? [r] : [];
    if (!run.length) return { run, place: -1 };
    for (let i; (i = parents[run[0]] - 1) >= 0 && sources[i] === sources[run[0]] - 1;) run.unshift(i);
    const next = (last) => parents.findIndex((row, i) => row === last + 1 && sources[i] === sources[last] + 1);
    for (let i; (i = next(run.at(-1))) >= 0;) run.push(i);
    return { run, place: sources[run[0]] };
  }

  // Source of a copied guess: {before, copied: [text of each guess], run: their numbers, after, where}; null if it is
  // unknown.
  excerpt(step, r) {
    const { run: guesses, place } = this.stretch(step, r);
    const size = this.prompt.token_ids.length, end = size + step.position;
    if (!guesses.length) return null;
    const copied = guesses.map((i) => step.drafted_pieces[i] ?? this.text(step.drafted[i]));
    const run = (at, by) => {
      const texts = [], inside = () => at >= 0 && at < end && texts.length < CONTEXT_TOKENS;
      for (let text; inside() && (text = this.textAt(at)) !== null; at += by) texts.push(text);
      return texts;
    };
    let before = run(place - 1, -1).reverse().join(""), after = run(place + copied.length, 1).join("");
    const whole = before + copied.join("") + after, { text } = this.prompt, start = text.indexOf(whole);
    if (place + copied.length <= size && start >= 0 && text.indexOf(whole, start + 1) < 0) {   // it occurs exactly once
      before = text.slice(0, start) + before;
      after += text.slice(start + whole.length);
    }
    const where = place >= size ? "the text written before" : place + copied.length <= size ? "the prompt" :
      "the prompt, continuing into the text after it";
    return { before: [...before].slice(-CONTEXT_LETTERS).join(""), copied, run: guesses, where,
      after: [...after].slice(0, CONTEXT_LETTERS).join("") };
  }

  // The end of the text before the step.
  soFar(step) {
    const written = this.pieces.slice(Math.max(0, step.position - 40), step.position).map(({ text }) => text).join("");
    return [...(step.position < 40 ? this.prompt.text : "") + written].slice(-70).join("");
  }

  cost(step) {
    const plain = this.plain ? metricsOf(this.plain).tpot_s : null;
    const own = stepSeconds(step), tokens = step.token_ids.length;
    return { seconds: own, tokens, plain, saved: plain === null ? null : plain * tokens - own };
  }

  // A lane's row for a position in the completion: {step, r, row, id}, or null.
  at(lane, position) {
    const step = lane?.steps.find(({ position: at, token_ids: ids }) => position < at + ids.length);
    const r = step ? position - step.position : 0;
    const row = step ? this.rows(lane.name)?.[step.index]?.[rowsOf(step)[r]] : null;
    return row ? { step, r, row, id: step.token_ids[r] } : null;
  }

  // Why the model's answers are unknown, "" if they are known.
  silent() {
    const { recording } = this, unknown = "The other likely tokens are not recorded:";
    if (this.rows(this.lane?.name)) return "";
    if (this.onServer) return `${unknown} a server does not send them.`;
    if (recording.stopped || !this.lane?.finished) return `${unknown} the race did not run to its end.`;
    return recording.spec?.audit ? `${unknown} this race was recorded without them.` :
      `${unknown} only audited races keep them.`;
  }
}

// A chance in words; never rounded to 0 or 100 %.
export function chanceWords(chance) {
  if (chance === 0) return "0 %";
  return chance < 0.0005 ? "< 0.1 %" : chance > 0.9995 && chance < 1 ? "> 99.9 %" : `${(100 * chance).toFixed(1)} %`;
}

// In quotation marks; letters that run from the right, apart from the words around them.
export function quoted(text) {
  const words = cut(oneLine(text), 40), isArabic = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(words);
  return isArabic ? `\u201c\u2068${words}\u2069\u201d` : `\u201c${words}\u201d`;
}

// Under the rule of rejection, how likely a copied guess was to be kept; "" for others: no recording has their q.
export function oddsSay(walk, { text, source, answers }) {
  const guess = walk.rejects && source === "copied" ? answers?.find((answer) => answer.guess) : null, p = guess?.chance;
  return guess ? `The guess ${quoted(text)}: p = ${chanceWords(p)}, the model's chance; q = 100 %, as a copy is not `
    + `drawn. It is kept with probability min(1, p/q) = ${chanceWords(p)}.` : "";
}

// What happened in a step, in words.
export function stepSays(walk, step) {
  const drafted = numDrafted(step), kept = step.num_accepted, behind = drafted - kept - 1, kind = walk.kind(step);
  const pass = `plus a free token from the model: ${plural(kept + 1, "token")} from one pass.`;
  const chain = {
    all: `${{ 1: "The guess was", 2: "Both guesses were" }[drafted] ?? `All ${drafted} guesses were`} right, ${pass}`,
    none: `The first guess was wrong, so ${drafted === 1 ? "it is dropped" : `all ${drafted} are dropped`}. The `
      + "model's own token takes its place: one token, as in plain decoding.",
    some: `${plural(kept, "guess")} kept. Guess ${kept + 1} was wrong: the model's own token `
      + `takes its place.${behind > 0 ? ` ${behind === 1 ? "The one" : `The ${behind}`} after it `
      + `${behind === 1 ? "is" : "are"} dropped too.` : ""}`,
    cut: `The text ends within this draft: ${plural(kept, "guess")} kept`
      + `${drafted > kept ? `, ${drafted - kept} after the end dropped` : ""}.`,
  };
  const tree = {
    all: `A tree of ${drafted} guesses: a path of ${kept} was right to its end, ${pass}`,
    none: `A tree of ${drafted} guesses, none of which begins right, so all are dropped. The model's own token takes `
      + "their place: one token, as in plain decoding.",
    some: `A tree of ${drafted} guesses: a path of ${kept} was right. After it the model picks a token that was not `
      + `guessed there; the other ${plural(drafted - kept, "guess")} ${drafted - kept === 1 ? "is" : "are"} dropped.`,
    cut: `The text ends within this tree of ${drafted} guesses: a path of ${kept} kept, the others dropped.`,
  };
  const says = !hasSteps(walk.recording, walk.lane) ? "What the server sent at once. It does not say which of it was "
    + "guessed." : kind === "empty" ? "No guess in this step: the model writes one token, as in plain decoding." :
    (step.parents ? tree : chain)[kind];
  const { reason } = step.index === walk.steps.length - 1 ? walk.lane.finished ?? {} : {};
  const end = { length: `End of the race: the limit of ${plural(walk.pieces.length, "token")} is reached.`,
    stop: "The model ends the text here." };
  return `${says} ${end[reason] ?? ""}`.trim();
}

// Why what was guessed after the kept tokens was rejected, "" if nothing was.
export function whyStruck(walk, step, places) {
  const wrong = isRefuted(step) ? places[walk.lastPlace(step)] : undefined, own = step.pieces[step.num_accepted];
  if (!wrong || wrong.id === null || own === undefined) return "";
  const words = (text, answer) => `${quoted(text)}${answer ? ` (${chanceWords(answer.chance)})` : ""}`;
  const choice = words(own, wrong.answers?.find((answer) => answer.chosen));
  const struck = places.filter(({ id, row }) => id !== null && row === wrong.row).map(({ id, text }) =>
    words(text, wrong.answers?.find((answer) => answer.id === id)));
  if (walk.rejects)
    return "Under this rule a random draw decides whether a guess stays; the likelier the model finds it, the more "
      + `often. Here ${struck[0]} was dropped and ${choice} drawn instead.`;
  const picks = walk.temperature > 0 ? `The model's pick, drawn at random at temperature ${walk.temperature}, is` :
    "The model picks";
  if (struck.length > 1)
    return `The guesses there were ${struck.slice(0, -1).join(", ")} and ${struck.at(-1)}. ${picks} ${choice}, `
      + "which is none of them, so they are dropped.";
  return `${step.parents ? "The guess there" : `Guess ${step.num_accepted + 1}`} was ${struck[0]}. ${picks} ${choice}. `
    + "They differ, so the guess is dropped.";
}
