// Caveats of a ratio: the text repeats itself, or the ratio is within the noise. Twin of engine/analysis/loops.py
// and metrics.py, which explain both; compared by test_caveats_are_those_of_the_engine.

import { isOfServers, sum } from "./model.js";
import { numDrafted, stepSeconds } from "./steps.js";
import { oneLine } from "./text.js";

const SHORTEST = 8;
const LOOPS_ABOVE = 1 / 3;
const LOOKED_AT = 10000;
const NUMBER = /^ *[0-9]+$/;
const MOST_DIGITS = 3;
const COUNTER = -1;
const NORMAL_95 = 1.96;

function repeatedShare(allIds) {
  const ids = allIds.slice(0, LOOKED_AT), changes = new Int32Array(ids.length + 1), parts = [[0, ids.length]];
  while (parts.length) {
    const [low, high] = parts.pop(), middle = (low + high) >> 1, half = middle - low;
    if (high - low <= SHORTEST) continue;
    parts.push([low, middle], [middle, high]);
    const part = ids.slice(low, high);
    const ahead = matchesOf(part.slice(half), part);
    const behind = matchesOf(part.slice(0, half).reverse(), part.slice().reverse());
    for (let away = -half; away <= high - middle; away++) {
      const after = ahead[half + away], before = behind[high - middle - away];
      if (away === 0 || after + before < Math.max(Math.abs(away), SHORTEST)) continue;
      const later = middle + Math.max(away, 0);
      changes[later - before] += 1;
      changes[later + after] -= 1;
    }
  }
  let rows = 0, copied = 0;
  for (const change of changes.subarray(0, ids.length)) {
    rows += change;
    copied += rows > 0 ? 1 : 0;
  }
  return ids.length ? copied / ids.length : 0;
}

// For every position in the text, end included: the length of the match with the beginning of `start` (Z-function).
function matchesOf(start, text) {
  const both = [...start, null, ...text], found = new Int32Array(both.length + 1);
  let begins = 0, ends = 0;
  for (let i = 1; i < both.length; i++) {
    let num = i < ends ? found[i - begins] : 0;
    if (i + num >= ends) {
      num = Math.max(ends - i, 0);
      while (i + num < both.length && both[num] === both[i + num]) num += 1;
      [begins, ends] = [i, i + num];
    }
    found[i] = num;
  }
  return found.subarray(start.length + 1);
}

// The tokens of these steps, with COUNTER for those of small numbers that count up. Twin of with_counters in
// engine/analysis/loops.py.
export function withCounters(steps) {
  const ids = steps.flatMap((step) => step.token_ids), numbers = [];
  const pieces = ids.some(Boolean) ? steps.flatMap((step) => step.pieces) : [];
  for (const [i, piece] of pieces.entries()) {
    if (!NUMBER.test(piece)) continue;
    if (numbers.at(-1)?.at(-1) === i - 1 && piece[0] !== " ") numbers.at(-1).push(i); else numbers.push([i]);
  }
  const texts = numbers.map((number) => number.map((i) => pieces[i]).join("").trim());
  const values = texts.map((text) => (text.length <= MOST_DIGITS ? Number(text) : null));
  for (const [n, number] of numbers.entries()) {
    const counts = values[n] !== null && (values[n - 1] === values[n] - 1 || values[n + 1] === values[n] + 1);
    for (const i of counts ? number : []) ids[i] = COUNTER;
  }
  return ids;
}

export function loopSentence(ids) {
  const share = repeatedShare(ids);
  return share <= LOOPS_ABOVE || !ids.some(Boolean) ? "" :
    `The text repeats itself: ${(100 * share).toFixed(0)} % of it copies the text just before it, which is easy to `
      + "guess.";
}

export const NO_EVIDENCE = "no evidence: the text repeats itself";

export function ratioNoise(plain, other) {
  const errors = [relativeError(plain), relativeError(other)];
  return errors.includes(null) ? null : NORMAL_95 * Math.hypot(...errors);
}

export function isNoise(speedup, noise) { return noise !== null && Math.abs(Math.log(speedup)) <= noise; }

function relativeError(steps) {
  const kinds = new Map();
  for (const step of steps) {
    const kind = `${step.width} ${numDrafted(step)}`;
    if (!kinds.has(kind)) kinds.set(kind, []);
    kinds.get(kind).push(stepSeconds(step));
  }
  const variance = (times) =>
    sum(times.slice(1).map((time, i) => (time - times[i]) ** 2)) / (2 * (times.length - 1));
  const known = [...kinds.values()].filter((times) => times.length > 1);
  if (!known.length) return null;
  const pooled = sum(known.map((times) => (times.length - 1) * variance(times)))
    / sum(known.map((times) => times.length - 1));
  const total = sum([...kinds.values()].map(sum));
  const all = sum([...kinds.values()].map((times) => times.length * (times.length > 1 ? variance(times) : pooled)));
  return total > 0 ? Math.sqrt(all) / total : null;
}

// How the clocks of a race run.
const IN_TURNS = "The lanes take turns on one device, step by step; the lane whose clock is behind goes next. Each "
  + "lane has its own clock.";
const TAKEN_HERE = "Times are measured here when text arrives, so they include the network.";
const ON_SERVERS = [`Each lane was decoded on its server, all at once. ${TAKEN_HERE}`,
  `The lanes were decoded on their servers, one after the other. ${TAKEN_HERE}`];
export const ELSEWHERE = "as fast as plain (server's clock)";
export const TWO_CLOCKS = "Plain ran here, this lane on a server, usually on another device. The clocks cannot be "
  + "compared exactly.";

export function clockWords(header) {
  if (isOfServers(header)) return ON_SERVERS[header.spec?.solo ? 1 : 0];
  const places = header.places?.sentence;
  return places ? `${IN_TURNS} ${oneLine(places).slice(0, 400)}.` : IN_TURNS;
}
