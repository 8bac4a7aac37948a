// Caveats of a ratio: what the engine says of the race, and whether the ratio is within the noise (twin of ratio_noise
// in engine/analysis/metrics.py; compared by test_caveats_are_those_of_the_engine).

import { SAYS } from "../host.js";
import { isOfServers, numDrafted, stepSeconds, sum } from "./model.js";
import { noResult, oneLine } from "./text.js";

const NORMAL_95 = 1.96;

// What belongs next to a lane's ratio, as engine/recordings/claims.py found it: {whole, loop, copies, says}. whole: the
// race's times were disturbed; loop: the text repeats itself; copies: it copies the prompt; each of them sentences, ""
// if there is nothing to say. says: all in short, in one line.
export function cautionsOf(recording, lane) {
  const own = (recording?.cautions ?? []).filter((item) => item.lane === null || item.lane === lane);
  const say = (kind) => oneLine(own.filter((item) => item.kind === kind).map(({ sentence }) => sentence).join(" "));
  const whole = oneLine(own.filter((item) => item.lane === null).map(({ sentence }) => sentence).join(" "));
  return { whole, loop: say("loop"), copies: say("copies"), says: oneLine(own.map(({ short }) => short).join(" ")) };
}

// Why the ratio of a lane with this verdict is no result; "" if it may be one.
export const whyNoResult = (recording, lane, verdict) =>
  noResult(verdict) || (cautionsOf(recording, lane).loop && SAYS.loops);

export function ratioNoise(plain, guessing) {
  const errors = [relativeError(plain), relativeError(guessing)];
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
  const variance = (times) => sum(times.slice(1).map((time, i) => (time - times[i]) ** 2)) / (2 * (times.length - 1));
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

export const clockWords = (header) => (isOfServers(header) ? ON_SERVERS[header.spec?.solo ? 1 : 0] : IN_TURNS);
