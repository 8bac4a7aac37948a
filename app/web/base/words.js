// The page's words for verdicts, ribbons, lanes and drafters.

import { SAYS } from "../host.js";
import { capital, cut, drafterName, oneLine, plural } from "./text.js";

// What a verdict says: {sign, head, so_far, means, no_result, is_same}; undefined of none.
export const saysOf = (verdict) => (Object.hasOwn(SAYS.same, verdict?.kind ?? "") ? SAYS.same[verdict.kind] : undefined);
// A verdict in a few words; "" if there is none.
export const verdictWord = (verdict) => capital((verdict?.complete === false && saysOf(verdict)?.so_far)
  || (saysOf(verdict)?.head ?? ""));
// Why the ratio of a lane with this verdict is no result; "" if it may be one.
export const noResult = (verdict) => saysOf(verdict)?.no_result ?? "";
export const isIdentical = (verdict) => verdict?.kind.startsWith("identical") === true;
export const differs = (verdict) => saysOf(verdict)?.is_same === false;
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
  return name === (first.baseline ?? "baseline") || name === first.plain ? "Plain" : cut(oneLine(capital(name)), 40);
}

// What a lane drafts, and how much of it.
export function draftWords({ drafter, k }) {
  const length = k === "auto" ? "automatic length" : typeof k === "string" ? k.replace("tree:", "trees of up to ") :
    `k = ${k}`;
  return cut(oneLine(`${drafterName(drafter)}, ${length}`), 140);
}

// How much a lane drafts, if that is the same in every step; copies may be shorter.
export function fixedWords(lane) {
  return Number.isInteger(lane?.k) && lane.k > 0 && !/^(none|server)$|ngram/.test(lane.drafter) ?
    `always ${plural(lane.k, "guess")} a step` : "";
}

export function guessWords(lane) {
  if (lane.drafter === "server") return "on a server";
  const words = drafterName(lane.drafter), tree = /^tree:(.*)$/s.exec(lane.k)?.[1], num = tree ?? lane.k;
  return cut(oneLine(lane.k === "auto" ? `${words}, automatic length` :
    `${words}, ${tree ? "trees of up to" : "up to"} ${plural(Number(num), "guess")}`), 120);
}
