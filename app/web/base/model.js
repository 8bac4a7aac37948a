// The lanes of a race, their steps, their metrics at any lane time, and what is to be known before quoting a ratio.
// Pure: no DOM. Twin of engine/analysis/metrics.py; compared by test_the_numbers_of_a_replay_are_those_of_the_engine and
// test_caveats_are_those_of_the_engine.

import { SAYS } from "../host.js";
import { noResult, oneLine } from "./text.js";

const EPSILON = 1e-9;

class Lane {
  constructor(name) {
    this.name = name;
    this.steps = [];        // step events, in order
    this.tokens = [0];      // tokens[n]: committed by the first n steps
    this.started = this.finished = this.failed = null;
    this.clock = 0;
  }

  add(event) {
    this.clock = event.clock_s;
    if (["started", "finished", "failed"].includes(event.type)) this[event.type] = event;
    if (event.type === "step") {
      this.steps.push(event);
      this.tokens.push(this.tokens[this.tokens.length - 1] + event.token_ids.length);
    }
  }

  get ended() { return this.finished !== null || this.failed !== null; }

  // The number of steps finished by lane time t.
  countAt(t) { return this.steps.findLastIndex((step) => step.clock_s <= t + EPSILON) + 1; }
}

export class Race {
  constructor(events = []) {
    this.lanes = new Map();
    this.numEvents = 0;
    events.forEach((event) => this.add(event));
  }

  add(event) {
    if (!this.lanes.has(event.lane)) this.lanes.set(event.lane, new Lane(event.lane));
    this.lanes.get(event.lane).add(event);
    this.numEvents += 1;
  }

  lane(name) { return this.lanes.get(name) ?? null; }

  // The lane time at which the last of these lanes ended.
  duration(names) { return Math.max(0, ...names.map((name) => this.lane(name)?.clock ?? 0)); }

  // All times at which a step of these lanes ended, ascending, for stepping by key.
  times(names) {
    const all = names.flatMap((name) => this.lane(name)?.steps.map((step) => step.clock_s) ?? []);
    return [0, ...all.sort((a, b) => a - b)];
  }
}

// The first lane of each role, by name.
export function firstByRole(lanes) {
  return Object.fromEntries(lanes.toReversed().map((lane) => [lane.role, lane.name]));
}

// The two lanes on the screen: the baseline (else the plain lane), and the first speculative one.
export function sides(lanes) {
  const { baseline, plain } = firstByRole(lanes);
  const drafting = lanes.filter((lane) => lane.role === "speculative").map((lane) => lane.name);
  const left = baseline ?? plain ?? drafting.shift() ?? "baseline";
  return [left, drafting[0] ?? "speculative"];
}

// Whether the lanes ran on servers. header: of a race, or its whole recording.
export function isOfServers(header) { return header?.device?.type === "server"; }

// The spec of a lane; undefined if there is none.
export function laneSpec(header, name) { return header?.spec?.lanes?.find((lane) => lane.name === name); }

// Whether a lane's steps are the model's: what a server sends at once need not be, unless it reports its drafts.
export function hasSteps(header, lane) { return !isOfServers(header) || lane.steps.some(numDrafted); }

// The acceptance rule of the first speculative lane.
export function ruleOf(header) {
  return header?.spec?.lanes?.find((lane) => lane.role === "speculative")?.rule ?? "coupled";
}

export const sum = (values) => values.reduce((total, value) => total + value, 0);
export const quotient = (a, b) => (a === null || b === null || !(b > 0) ? null : a / b);

export function percentile(values, share) {
  if (!values.length) return null;
  const ordered = Float64Array.from(values).sort();
  const place = share * (ordered.length - 1), low = Math.floor(place), high = Math.min(low + 1, ordered.length - 1);
  return ordered[low] + (ordered[high] - ordered[low]) * (place - low);
}

// How many steps of a server's lane arrived with its first text and so have no time of their own. 0 if widths are
// known.
function numUntimed(steps) {
  const first = steps.findIndex((step) => stepSeconds(step) > 0 || step.width !== null);
  return first < 0 ? steps.length : first;
}

// LaneMetrics of a lane's first n steps, without what it counts step by step and place by place; of all by default.
export function metricsOf(lane, n = lane.steps.length) {
  const steps = lane.steps.slice(0, n), times = steps.map(stepSeconds), untimed = numUntimed(steps);
  const timed = lane.tokens[n] - lane.tokens[untimed], gaps = times.slice(untimed);
  const numTokens = lane.tokens[n], decode = sum(times), prefill = lane.started ? lane.started.prefill_s : null;
  const accepted = sum(steps.map((step) => step.num_accepted));
  return {
    num_tokens: numTokens, prefill_s: prefill, decode_s: decode, tokens_per_s: quotient(timed, decode),
    ttft_s: prefill !== null && times.length ? prefill + times[0] : null, tpot_s: quotient(decode, timed),
    itl_p50_s: percentile(gaps, 0.5), itl_p95_s: percentile(gaps, 0.95), num_steps: n,
    acceptance_rate: quotient(accepted, sum(steps.map(numDrafted))), mean_acceptance_length: quotient(numTokens, n),
  };
}

// The first character at which the texts of two lanes differ, which may be where the shorter one ends.
export function differsAt(...lanes) {
  const [a, b] = lanes.map((lane) => lane.steps.flatMap((step) => step.pieces).join(""));
  let at = 0;
  while (at < a.length && a[at] === b[at]) at += 1;
  return /[\uDC00-\uDFFF]/.test(a[at]) ? at - 1 : at;
}

// How many characters at the end of a finished lane's text are cut off, from the first stop string on. Same rule as
// engine/text.py.
export function unseenAtTheEnd(lane, stop) {
  const text = lane.steps.flatMap((step) => step.pieces).join("");
  const places = stop.map((words) => text.indexOf(words)).filter((place) => place >= 0);
  return lane.finished && places.length ? text.length - Math.min(...places) : 0;
}

// The speed-up over the fastest plain decoding: the plain lane, or the baseline if it drafted nothing and was faster or
// there is no plain lane. names: by role; countOf: number of finished steps of a lane; by default all of them.
export function raceSpeedup(race, names, lane, countOf = ({ steps }) => steps.length) {
  const plain = race.lane(names.plain), baseline = race.lane(names.baseline);
  const over = (base) => (base ? speedupOf(base, countOf(base), lane, lane ? countOf(lane) : 0) : null);
  const drafts = baseline?.steps.slice(0, countOf(baseline)).some(numDrafted);
  const values = [over(plain), drafts ? null : over(baseline)];
  if (names.plain === undefined) return values[1];
  return values[0] === null || values[1] === null ? values[0] : Math.min(...values);
}

// Why a lane is as fast as it is, over the tokens that it and plain decoding wrote: tokens per step, divided by what a
// step costs in plain tokens, is the speed-up. null without one. Twin of Compared in engine/analysis/breakdown.py.
export function reasonsOf(race, names, lane) {
  const speedup = raceSpeedup(race, names, lane);
  if (speedup === null) return null;
  const others = [names.plain, names.baseline].map((name) => race.lane(name)).filter((base) => base?.steps.length);
  const common = Math.min(...[lane, ...others].map(({ tokens }) => tokens.at(-1)));
  const num = lane.tokens.findIndex((tokens) => tokens >= common), perStep = lane.tokens[num] / num;
  const done = lane.steps.slice(0, num);
  return { perStep, cost: perStep / speedup, speedup,
    drafting: sum(done.map((step) => step.draft_s)) / sum(done.map(stepSeconds)) };
}

// Ratio of seconds per token, over the same number of tokens.
function speedupOf(plain, numPlain, lane, numLane) {
  if (!plain || !lane) return null;
  const n = Math.min(plain.tokens[numPlain], lane.tokens[numLane]);
  const perToken = (one) => {
    let spent = 0, i = 0;
    for (; i < one.steps.length && one.tokens[i] < n; i++) spent += stepSeconds(one.steps[i]);
    return quotient(spent, one.tokens[i] - one.tokens[numUntimed(one.steps)]);
  };
  return quotient(perToken(plain), perToken(lane));
}

// One verification step: its rows and its tokens. Rows are numbered as in engine/core/spec.py: 0 is that of the last
// committed token, i + 1 that of draft token i; a tree has `parents`, the row that each token follows.
// Twin of Step in engine/core/events.py; compared by test_a_step_of_the_page_is_the_engines.

// How many tokens a step drafted, even if the tokens themselves are unknown.
export const numDrafted = (step) => step.num_drafted ?? step.drafted.length;
export const widthWords = (width) => (width === null ? "unknown width" : `width ${width}`);
export const stepSeconds = (step) => step.draft_s + step.verify_s;

// The row that each drafted token follows.
export const followsOf = (step) => step.parents ?? step.drafted.map((_, i) => i);

// Which drafted tokens the loop keeps, by number, if `written` is what the model writes.
export function keptIf(drafted, parents, written) {
  const kept = [];
  for (let row = 0; kept.length < drafted.length; row = kept.at(-1) + 1) {
    const next = drafted.findIndex((id, i) => (parents[i] ?? i) === row && id === written[kept.length]);
    if (next < 0) break;
    kept.push(next);
  }
  return kept;
}

// Which drafted tokens were accepted, by number, in the order of the text.
export function keptOf(step) {
  if (!step.parents) return Array.from({ length: step.num_accepted }, (_, i) => i);
  return keptIf(step.drafted, step.parents, step.token_ids.slice(0, step.num_accepted));
}

// The row that decided each committed token.
export const rowsOf = (step) => [0, ...keptOf(step).map((i) => i + 1)].slice(0, step.token_ids.length);

// How many draft tokens lead to each row, which decides the token at `position` + depth.
export function depthsOf(step) {
  const depths = [0];
  for (const row of followsOf(step)) depths.push(depths[row] + 1);
  return depths;
}

// The most tokens that the step could have kept.
export const depthOf = (step) => (step.parents ? Math.max(...depthsOf(step)) : numDrafted(step));

// Whether something was drafted to follow the accepted tokens, and not accepted.
export function isRefuted(step) {
  if (step.token_ids.length === step.num_accepted) return false;   // a stop came first
  return step.parents ? step.parents.includes((keptOf(step).at(-1) ?? -1) + 1) : step.num_accepted < numDrafted(step);
}

// The drafted tokens, by number, that lead from the accepted ones to a leaf, each the likeliest to follow the one
// before, or the first where chances are not known: what was dropped at the place where the text goes on.
export function likeliest(step) {
  const follows = followsOf(step), path = [];
  for (let row = (keptOf(step).at(-1) ?? -1) + 1; ; row = path.at(-1) + 1) {
    const after = [...follows.keys()].filter((i) => follows[i] === row);
    if (!after.length) return path;
    path.push(after.reduce((a, b) => ((step.chances?.[b] ?? 0) > (step.chances?.[a] ?? 0) ? b : a)));
  }
}

// A step's tokens in reading order: accepted, rejected (if known), then the target's own. Of a tree's rejected tokens
// those of the likeliest branch come first; the others are `aside`. If a server's step only has its text as a whole,
// accepted and own tokens are "together".
export function tokensOf(step) {
  const num = step.num_accepted, kept = new Set(keptOf(step)), branch = likeliest(step);
  const committed = (kind) => (id, i) => ({ kind, id, text: step.pieces.length ? step.pieces[i] : `#${id} ` });
  const own = numDrafted(step) === 0 ? "plain" : isRefuted(step) ? "correction" : "bonus";
  const all = step.token_ids.map((id, i) => committed(i < num ? "accepted" : own)(id, i));
  if (num && step.num_drafted && all.slice(1).every(({ text }) => text === "")) all[0].kind = "together";
  const others = [...step.drafted.keys()].filter((i) => !kept.has(i) && !branch.includes(i));
  const rejected = [...branch, ...others].map((i) => ({ kind: "rejected", id: step.drafted[i],
    text: step.drafted_pieces.length ? step.drafted_pieces[i] : `#${step.drafted[i]} `, aside: others.includes(i) }));
  return [...all.slice(0, num), ...rejected, ...all.slice(num)];
}

export function stepWords(step) {
  const drafted = numDrafted(step), kept = step.num_accepted;
  return drafted ?
    `step ${step.index + 1}: ${kept} of ${drafted} guesses kept`
      + (step.parents ? `, of a tree ${depthOf(step)} deep` : "")
      + (step.num_drafted > kept ? "; which ones were dropped is not known" : "") :
    `step ${step.index + 1}: no guess`;
}

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
  const kinds = [...Map.groupBy(steps, (step) => `${step.width} ${numDrafted(step)}`).values()]
    .map((alike) => alike.map(stepSeconds));
  const variance = (times) => sum(times.slice(1).map((time, i) => (time - times[i]) ** 2)) / (2 * (times.length - 1));
  const known = kinds.filter((times) => times.length > 1);
  if (!known.length) return null;
  const pooled = sum(known.map((times) => (times.length - 1) * variance(times)))
    / sum(known.map((times) => times.length - 1));
  const all = sum(kinds.map((times) => times.length * (times.length > 1 ? variance(times) : pooled)));
  const total = sum(kinds.map(sum));
  return total > 0 ? Math.sqrt(all) / total : null;
}

// How the clocks of a race run.
const IN_TURNS = "The lanes take turns on one device, step by step; the lane whose clock is behind goes next. Each "
  + "lane has its own clock.";
const TAKEN_HERE = "Times are measured here when text arrives, so they include the network.";
const ON_SERVERS = [`Each lane was decoded on its server, all at once. ${TAKEN_HERE}`,
  `The lanes were decoded on their servers, one after the other. ${TAKEN_HERE}`];

export const clockWords = (header) => (isOfServers(header) ? ON_SERVERS[header.spec?.solo ? 1 : 0] : IN_TURNS);
