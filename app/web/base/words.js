// The page's words for verdicts, ribbons, lanes and drafters.

import { drafterName, oneLine } from "./text.js";

export const VERDICTS = {
  __proto__: null,
  identical_bits: ["\u2261", "Identical, bit for bit", "Guessing changed nothing."],
  identical_tokens: ["=", "Identical tokens", "Guessing did not change a single token."],
  near_tie: ["\u2248", "Near-tie flip", "Two tokens were so close that rounding decided. Neither text is wrong."],
  different: ["\u2715", "Different: a fault", "This should never happen. Please report it and attach the race file."],
  same_distribution: ["\u223c", "Same probabilities, different text",
    "Expected under this rule: every token is as likely as without guesses, but drawn separately."],
  same_text: ["=", "The same text", "Both wrote exactly the same."],
  other_text: ["\u2260", "Different texts",
    "Rounding, random numbers or a wrong setup: \u201cYour prompts\u201d looks for the cause."],
  not_compared: ["?", "Not compared", ""],
};
const SO_FAR = { __proto__: null, identical_bits: "Identical so far, bit for bit", identical_tokens: "Identical so far",
  same_text: "The same text so far" };
// A verdict in a few words; "" if there is none.
export const verdictWord = (verdict) => (verdict?.complete === false && SO_FAR[verdict.kind])
  || (VERDICTS[verdict?.kind]?.[1] ?? "");
// Why the ratio of a lane with this verdict is no result; "" if it may be one.
export const noResult = (verdict) => ({ different: "a fault", not_compared: "the texts are not compared" })[verdict?.kind]
  ?? "";
export const differs = (verdict) => ["different", "near_tie", "other_text"].includes(verdict?.kind);
export const RIBBONS = {
  __proto__: null,
  RECORDED: "an earlier race, played from its file",
  COMPUTED: "the same race at another draft length: exact steps, times computed from this race's costs",
  SYNTHETIC: "the drafts are made up at a chosen rate; the tokens are the target's own",
  RANDOM: "random weights: step times are realistic for this size; the text and the guesses kept mean nothing",
};
export const ALONE = "Plain, best width";

// A lane's title. Both plain lanes are "Plain"; among all lanes, the one that is not on the board is ALONE.
export function laneTitle(name, first, sides = null) {
  if (sides && name === first.plain && name !== sides[0]) return ALONE;
  return name === (first.baseline ?? "baseline") || name === first.plain ? "Plain" :
    oneLine(name.charAt(0).toUpperCase() + name.slice(1)).slice(0, 40);
}

// What a lane drafts, and how much of it.
export function draftWords({ drafter, k }) {
  const length = k === "auto" ? "automatic length" : typeof k === "string" ? k.replace("tree:", "trees of up to ") :
    `k = ${k}`;
  return oneLine(`${drafterName(drafter)}, ${length}`).slice(0, 140);
}

// How much a lane drafts, if that is the same in every step; copies may be shorter.
export function fixedWords(lane) {
  return Number.isInteger(lane?.k) && lane.k > 0 && !/^(none|server)$|ngram/.test(lane.drafter) ?
    `always ${lane.k} ${lane.k === 1 ? "guess" : "guesses"} a step` : "";
}

export function guessWords(lane) {
  if (lane.drafter === "server") return "on a server";
  const words = drafterName(lane.drafter), tree = /^tree:(.*)$/s.exec(lane.k)?.[1], num = tree ?? lane.k;
  const guesses = Number(num) === 1 ? "guess" : "guesses";
  return oneLine(lane.k === "auto" ? `${words}, automatic length` :
    `${words}, ${tree ? "trees of up to" : "up to"} ${num} ${guesses}`).slice(0, 120);
}
