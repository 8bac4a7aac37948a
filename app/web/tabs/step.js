// One verification step in detail: each guess's source, confidence and outcome, the model's answer at every place, and
// the cost. Pure: no DOM.

import { isElsewhere, numDrafted, percentile, stepSeconds, tokensOf } from "../base/model.js";
import { oneLine, plural } from "../base/text.js";

const SOURCES = { __proto__: null, ngram: "copied", eagle3: "EAGLE-3 head", dflash: "DFlash head",
  draft_model: "draft model", synthetic: "made up" };
const NUM_SHOWN = 5;          // answers per place, besides the guess and the choice
const CONTEXT_TOKENS = 14;
const CONTEXT_LETTERS = 48;

export class Walk {
  // recording: or the header, if there is none; race: its lanes; [plain, walked]: names of two of them.
  constructor(recording, race, [plain, walked]) {
    const { spec, prompt, candidates, table_pieces: words } = recording;
    const lane = race.lane(walked), { temperature = 0, top_k: topK, top_p: topP } = spec?.params ?? {};
    const { drafter = "", rule } = spec?.lanes?.find(({ name }) => name === walked) ?? {};
    Object.assign(this, { recording, lane, plain: race.lane(plain), candidates, temperature, steps: lane?.steps ?? [], prompt: prompt ?? { text: "", token_ids: [] },
      filters: temperature > 0 && (topK > 0 || topP < 1), rejects: temperature > 0 && rule === "rejection",
      drafters: drafter.replace(/^hybrid:/, "").split("+") });
    this.pieces = this.steps.flatMap((step) => tokensOf(step).filter(({ kind }) => kind !== "rejected"));
    this.words = new Map(Object.entries(words ?? {}).concat(Object.entries(candidates?.pieces ?? {}))
      .map(([id, text]) => [Number(id), text]));
    for (const { steps } of race.lanes.values()) for (const step of steps) for (const { id, text } of tokensOf(step))
      if (step.pieces.length) this.words.set(id, text);
    this.tellsCopies = drafter === "ngram" || Boolean(candidates) || this.steps.some((step) => step.copied);
  }

  text(id) { return this.words.get(id) ?? `#${id}`; }

  // all, some, none: how many guesses were kept; empty: no guess; cut: the text ended within the draft.
  kind(step) {
    const drafted = numDrafted(step), kept = step.num_accepted;
    if (drafted === 0) return "empty";
    if (step.token_ids.length === kept) return "cut";
    return kept === drafted ? "all" : kept === 0 ? "none" : "some";
  }

  // The outcome at place r: ok, no or unused for a guess; extra or own for the token after the last one.
  verdict(step, r) {
    const kept = step.num_accepted;
    if (r < kept) return "ok";
    if (r > kept || step.token_ids.length === kept) return "unused";
    return numDrafted(step) === 0 ? "own" : kept === numDrafted(step) ? "extra" : "no";
  }

  // {id, text, verdict, source, row} of every place. id: of the guess; null if unknown, and at the last place.
  places(step) {
    const rows = this.rows(this.lane.name)?.[step.index], count = numDrafted(step);
    return Array.from({ length: count + 1 }, (_, r) => {
      const id = r === count ? null : step.drafted[r] ?? (r < step.num_accepted ? step.token_ids[r] : null);
      const text = id === null ? null : r < step.num_accepted ? step.pieces[r] ?? this.text(id) :
        step.drafted_pieces[r] ?? this.text(id);
      return { id, text, verdict: this.verdict(step, r), source: r < count ? this.source(step, r) : null,
        row: rows?.[r] ? this.answers(rows[r], id, step.token_ids[r]) : null };
    });
  }

  rows(lane) {
    const lanes = this.candidates?.lanes ?? {};
    return Object.hasOwn(lanes, lane) ? lanes[lane] : null;
  }

  // A row's likely tokens by falling chance, including the guess and the choice.
  answers({ ids, logits, log_z: logZ }, guess, chosen) {
    const all = ids.map((id, i) => ({ id, text: this.text(id), chance: Math.exp(logits[i] - logZ), guess: id === guess,
      chosen: id === chosen }));
    const shown = all.filter((each, i) => i < NUM_SHOWN || each.guess || each.chosen);
    if (guess !== null && !ids.includes(guess))       // removed by top-k or top-p
      shown.push({ id: guess, text: this.text(guess), chance: 0, guess: true, chosen: false });
    return shown;
  }

  source(step, r) {
    if (step.copied ? r >= step.copied[0] : this.drafters.length === 1 && this.drafters[0] === "ngram") return "copied";
    const [head] = this.drafters.filter((name) => name !== "ngram");
    return this.tellsCopies || this.drafters.length === 1 ? SOURCES[head?.split(":")[0]] ?? "guess" : "guess";
  }

  // The token text at a position in prompt and completion, or null if unknown.
  textAt(place) {
    const ids = this.prompt.token_ids;
    return place < ids.length ? this.words.get(ids[place]) ?? null : this.pieces[place - ids.length]?.text ?? null;
  }

  // Source of a copied draft: {before, copied: [text of each guess], after, where}; null if unknown.
  excerpt(step) {
    if (!step.copied || !step.drafted.length) return null;
    const [from, place] = step.copied, size = this.prompt.token_ids.length, end = size + step.position;
    const copied = step.drafted.slice(from).map((id, i) => step.drafted_pieces[from + i] ?? this.text(id));
    const run = (at, by) => {
      const found = [], inside = () => at >= 0 && at < end && found.length < CONTEXT_TOKENS;
      for (let text; inside() && (text = this.textAt(at)) !== null; at += by) found.push(text);
      return found;
    };
    let before = run(place - 1, -1).reverse().join(""), after = run(place + copied.length, 1).join("");
    const whole = before + copied.join("") + after, { text } = this.prompt, found = text.indexOf(whole);
    if (place + copied.length <= size && found >= 0 && text.indexOf(whole, found + 1) < 0) {   // it occurs exactly once
      before = text.slice(0, found) + before;
      after += text.slice(found + whole.length);
    }
    const where = place >= size ? "the text written before" : place + copied.length <= size ? "the prompt" :
      "the prompt, continuing into the text after it";
    return { before: [...before].slice(-CONTEXT_LETTERS).join(""), copied, where,
      after: [...after].slice(0, CONTEXT_LETTERS).join("") };
  }

  // The end of the text before the step.
  soFar(step) {
    const written = this.pieces.slice(Math.max(0, step.position - 40), step.position).map(({ text }) => text).join("");
    return [...(step.position < 40 ? this.prompt.text : "") + written].slice(-70).join("");
  }

  cost(step) {
    const comparable = !isElsewhere(this.recording, this.lane?.name);
    const plain = comparable ? percentile((this.plain?.steps ?? []).map(stepSeconds), 0.5) : null;
    const own = stepSeconds(step), tokens = step.token_ids.length;
    return { seconds: own, tokens, plain, saved: plain === null ? null : plain * tokens - own };
  }

  // A lane's row for a position in the completion: {step, r, row, id}, or null.
  at(lane, position) {
    const step = lane?.steps.find((each) => position < each.position + each.token_ids.length);
    const r = step ? position - step.position : 0, row = step ? this.rows(lane.name)?.[step.index]?.[r] : null;
    return row ? { step, r, row, id: step.token_ids[r] } : null;
  }

  // Why the model's answers are unknown, "" if they are known.
  silent() {
    const { recording } = this, unknown = "The other likely tokens are not recorded:";
    if (this.rows(this.lane?.name)) return "";
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

export const guesses = (count) => `${count} ${count === 1 ? "guess" : "guesses"}`;
export const quoted = (text) => `\u201c${oneLine(text).slice(0, 40)}\u201d`;

// What happened in a step, in words.
export function stepSays(walk, step) {
  const drafted = numDrafted(step), kept = step.num_accepted, behind = drafted - kept - 1;
  const says = {
    empty: "No guess in this step: the model writes one token, as in plain decoding.",
    all: `${{ 1: "The guess was", 2: "Both guesses were" }[drafted] ?? `All ${drafted} guesses were`} right, `
      + `plus a free token from the model: ${plural(drafted + 1, "token")} from one pass.`,
    none: `The first guess was wrong, so ${drafted === 1 ? "it is dropped" : `all ${drafted} are dropped`}. The `
      + "model's own token takes its place: one token, as in plain decoding.",
    some: `${guesses(kept)} kept. Guess ${kept + 1} was wrong: the model's own token `
      + `takes its place.${behind > 0 ? ` ${behind === 1 ? "The one" : `The ${behind}`} after it `
      + `${behind === 1 ? "is" : "are"} dropped too.` : ""}`,
    cut: `The text ends within this draft: ${guesses(kept)} kept`
      + `${drafted > kept ? `, ${drafted - kept} after the end dropped` : ""}.`,
  }[walk.kind(step)];
  const { reason } = step.index === walk.steps.length - 1 ? walk.lane.finished ?? {} : {};
  const end = { length: `End of the race: the limit of ${plural(walk.pieces.length, "token")} is reached.`,
    stop: "The model ends the text here." };
  return `${says} ${end[reason] ?? ""}`.trim();
}

// Why the first wrong guess was rejected, "" if none was.
export function whyStruck(walk, step, places) {
  const wrong = places.find(({ verdict }) => verdict === "no"), own = step.pieces[step.num_accepted];
  if (!wrong || wrong.id === null || own === undefined) return "";
  const words = (text, found) => `${quoted(text)}${found ? ` (${chanceWords(found.chance)})` : ""}`;
  const guess = words(wrong.text, wrong.row?.find((each) => each.guess));
  const choice = words(own, wrong.row?.find((each) => each.chosen));
  if (walk.rejects)
    return "Under this rule a random draw decides whether a guess stays; the likelier the model finds it, the more "
      + `often. Here ${guess} was dropped and ${choice} drawn instead.`;
  return `Guess ${step.num_accepted + 1} was ${guess}. The model picks ${choice}. They differ, so `
    + "the guess is dropped.";
}
