// The game "Be the drafter": the player's input is a draft, verified against the target's recorded text. Pure: no DOM.

import { keptIf, numDrafted, quotient, stepSeconds, sum } from "../base/model.js";

export const STEPS_A_ROUND = 10;
const MAX_GUESSES = 8;

// Split the input into guesses: at the token boundaries of the text that follows (`pieces`) as far as it is right, then
// at words. Spaces and line breaks, which nobody sees, are filled in as far as it is right; after it they are no guess.
function guessesOf(typed, pieces) {
  const guesses = [], unseen = [];
  let rest = typed, at = 0;
  for (; rest && at < pieces.length; at++) {
    const piece = pieces[at], seen = piece.trim(), ahead = rest.trimStart();
    if (!ahead && seen) return guesses;
    if (!seen && ahead && !rest.startsWith(piece)) unseen.push(piece);
    else if (!ahead.startsWith(seen)) break;
    else {
      guesses.push(...unseen.splice(0), piece);
      rest = !ahead ? "" : rest.startsWith(piece) ? rest.slice(piece.length) : ahead.slice(seen.length);
    }
  }
  at -= unseen.length;
  if (rest && rest[0] !== " " && /^ \S/.test(pieces[at] ?? "")) rest = ` ${rest}`;
  return [...guesses, ...(rest.match(/\s*\S+/g) ?? []).slice(0, pieces.length - at)];
}

// One player's round: verification steps over `pieces`, the tokens of the whole text, starting at `from`. costs:
// seconds of a step by its number of guesses, if known; no step has more guesses than that.
export class Round {
  constructor(pieces, from, costs = Array(MAX_GUESSES + 1)) {
    Object.assign(this, { pieces, from, costs, at: from, steps: [], most: Math.min(MAX_GUESSES, costs.length - 1) });
  }

  get over() { return this.steps.length === STEPS_A_ROUND || this.at === this.pieces.length; }

  // One step with the input as its draft, in the form of a step event with texts for ids; beyond: the guesses that are
  // too many. Drafting costs a player nothing.
  guess(typed) {
    const rest = this.pieces.slice(this.at), guesses = guessesOf(typed, rest);
    const drafted = guesses.splice(0, this.most);
    const kept = keptIf(drafted, [], rest).length, pieces = rest.slice(0, kept + 1);
    const step = { position: this.at, drafted, drafted_pieces: drafted, num_accepted: kept, pieces, token_ids: pieces,
      beyond: guesses, draft_s: 0, verify_s: this.costs[drafted.length] };
    this.at += step.pieces.length;
    this.steps.push(step);
    return step;
  }
}

// The token that the first wrong guess begins like, "" if there is none: guesses count as whole tokens.
export function longerToken({ drafted, num_accepted: kept, pieces }) {
  return drafted[kept] && pieces[kept]?.startsWith(drafted[kept]) ? pieces[kept] : "";
}

// A tally: `kept` and `guessed` count draft tokens, `tokens` all written; seconds: NaN, stored as null, if unknown.
export const NO_STEPS = { kept: 0, guessed: 0, tokens: 0, steps: 0, seconds: 0 };

export function tallyOf(steps) {
  const total = (count) => sum(steps.map(count));
  return { kept: total((step) => step.num_accepted), guessed: total(numDrafted), seconds: total(stepSeconds),
    tokens: total((step) => step.token_ids.length), steps: steps.length };
}

export function added(total, tally) {
  return Object.fromEntries(Object.keys(NO_STEPS).map((name) => [name, (total[name] ?? undefined) + tally[name]]));
}

// How many times as fast as a plain lane of so many tokens a second; null if unknown.
export const speedOf = ({ tokens, seconds }, plainTokensPerS) => quotient(tokens, seconds * plainTokensPerS);

// drafter, or name of its table of trees -> its fastest size of drafts over the whole race.
export function bestLengths(whatIf) {
  const best = new Map();
  for (const size of whatIf.all()) if (!(best.get(size.drafter)?.seconds <= size.seconds)) best.set(size.drafter, size);
  return new Map([...best].map(([drafter, { k }]) => [drafter, k]));
}
