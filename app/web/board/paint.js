// Draws the race at one lane time: the replay's, or the latest of a live race.

import { cautionsOf, differsAt, hasSteps, metricsOf, raceSpeedup, ratioNoise, unseenAtTheEnd,
  whyNoResult } from "../base/model.js";
import { differs, fill, oneLine, RANDOM_WEIGHTS, seconds, times, verdictWord, write } from "../base/text.js";
import { plainIsFaster } from "./board.js";
import { showCard } from "./card.js";
import { drawMore } from "./more_lanes.js";
import { board, countNow, emit, refs, replay, root, S, shownLanes, titles, verdictOn, views } from "./screen.js";

const NUMBERS_EVERY_MS = 100;
const WORDS = { idle: "Ready.", preparing: "Preparing.", running: "Racing.",
  finished: "Finished.", stopped: "The race was stopped.", failed: "The race failed." };

let queued = 0;
let numbersAt = 0;

export function schedule() {
  if (!queued) queued = requestAnimationFrame(() => { queued = 0; paint(); });
}

export function paint() {
  const { race, live } = S, [left, right] = shownLanes(), lanes = { left, right };
  const t = live ? race.duration(S.sides) : replay.t;
  const ofBoth = (value) => Object.fromEntries(Object.entries(lanes).map(([side, lane]) => [side, value(lane, side)]));
  const counts = ofBoth((lane) => (lane ? countNow(lane, t) : 0));
  const changed = Object.entries(views).filter(([side, view]) => view.show(lanes[side]?.steps ?? [], counts[side],
    !lanes[side] || hasSteps(S.header, lanes[side])));
  markTexts(left, right);
  const total = trackLength([...race.lanes.values()]);
  board.track(ofBoth((lane, side) => lane?.tokens[counts[side]] ?? 0), total, finishWords(lanes, counts),
    ofBoth((lane, side) => lane?.finished?.reason === "length" && counts[side] === lane.steps.length));
  drawMore(t, total);
  write(refs.deckTime, live ? `${seconds(t)} s` : `${seconds(t)} / ${seconds(replay.duration)} s`);
  if (!live) {
    refs.scrub.value = String(Math.round(1000 * t));
    refs.scrub.setAttribute("aria-valuetext", `${seconds(t)} of ${seconds(replay.duration)} seconds`);
  }
  if (!live && !S.met && t >= replay.duration) {
    S.met = true;
    showResult();
    if (!root.dataset.stage) Object.values(views).forEach((view) => view.toTop());      // to be compared by eye
  }
  const now = performance.now(), isStill = !live && (!replay.playing || t >= replay.duration);
  if (isStill || !S.shown || now - numbersAt > NUMBERS_EVERY_MS) {
    numbersAt = now;
    drawNumbers(left, right, t);
  }
  showStatus();
  changed.forEach(([, view]) => view.follow());      // last: reads the layout, which everything above has changed
  emit("painted", { race: S.id, seq: S.seq, t });
}

// What a stop string cuts off at the end of a text, and where the two differ.
function markTexts(left, right) {
  for (const [view, lane] of [[views.left, left], [views.right, right]]) {
    if (view.isMarked || !lane?.finished || view.nodes.length < lane.steps.length) continue;
    view.isMarked = true;
    view.markUnseen(unseenAtTheEnd(lane, S.header?.spec?.params?.stop ?? []));
  }
  if (views.right.isCompared || !views.left.isMarked || !views.right.isMarked || !S.recording) return;
  views.right.isCompared = true;
  const at = differs(verdictOn(S.sides[1])) ? differsAt(left, right) : null;
  Object.values(views).forEach((view) => view.markDifference(at));
}

function drawNumbers(left, right, t) {
  const { race, live } = S, whole = !live && t >= replay.duration;
  const metrics = Object.fromEntries([...race.lanes.values()].map((lane) => {
    const numbers = metricsOf(lane, countNow(lane, t));
    return [lane.name, hasSteps(S.header, lane) ? numbers :
      { ...numbers, num_steps: null, mean_acceptance_length: null }];
  }));
  const speedup = raceSpeedup(race, S.first, right, (lane) => countNow(lane, t));
  const done = (lane) => (lane ? lane.steps.slice(0, countNow(lane, t)) : []);
  const divisor = plainIsFaster(metrics, S.sides, S.first) ? race.lane(S.first.plain) : left;
  const noise = whole && !S.computed ? ratioNoise(done(divisor), done(right)) : null;
  const cautions = cautionsOf(S.recording, S.sides[1]), verdict = whole ? verdictOn(S.sides[1]) : null;
  S.shown = { metrics, speedup, cautions };
  board.figures(metrics, whole ? speedup : null, S.sides, S.first,
    { noise, final: !whole && S.timed, not: whyNoResult(S.recording, S.sides[1], verdict), doubt: cautions.whole });
  S.timed ||= whole;
  board.cautions(cautions, verdict);
}

// Where the track ends: the tokens of the longest lane, or the limit while lanes are still running.
function trackLength(lanes) {
  const written = Math.max(0, ...lanes.map((lane) => lane.tokens.at(-1)));
  return S.live && !lanes.every((lane) => lane.ended) ?
    Math.max(written, S.header?.spec?.params?.max_new_tokens ?? 0) : written;
}

// Words for each lane that is over, and what the later one had written when the other finished. Also shows why a lane
// failed, above its text.
function finishWords(lanes, counts) {
  const then = {}, isAt = (end, side) => lanes[side]?.[end] && counts[side] === lanes[side].steps.length;
  const words = (side, opposite) => {
    if (isAt("failed", side)) return "failed";
    if (!isAt("finished", side)) return "";
    const { clock, tokens } = lanes[side], behind = isAt("finished", opposite) ? clock - lanes[opposite].clock : 0;
    if (behind <= 0) return `finished after ${seconds(clock)} s`;
    Object.assign(then, { [side]: tokens[lanes[side].countAt(lanes[opposite].clock)],
      by: titles()[opposite === "left" ? 0 : 1] });
    return `finished ${seconds(behind)} s later, after ${seconds(clock)} s`;
  };
  for (const side of ["left", "right"]) {
    const message = isAt("failed", side) ? lanes[side].failed.message : "";
    fill(refs, { [`${side}Failed`]: message && `This lane failed: ${oneLine(message)}` });
  }
  return { left: words("left", "right"), right: words("right", "left"), then };
}

function showStatus() {
  const { speed: pace } = replay, factor = pace < 1 ? `1/${1 / pace}` : `${pace}\u00d7`;
  fill(refs, { pace: S.live || pace === 1 ? "" : `${factor} speed` });
  const speed = pace === 1 ? "real speed" : `${factor}${pace < 1 ? " of" : ""} real speed`;
  const source = S.fromFile || S.ribbon.includes("RECORDED") ? "A recorded race" : "Your race";
  root.dataset.mode = replay.playing ? "replay" : S.live ? "live" : replay.t < replay.duration ? "paused" : "still";
  const words = (S.state !== "preparing" && S.status?.text) || WORDS[S.state] || "";
  const shown = root.dataset.stage ? words.replace(/(?<=[.!?]) .*/, "") : words;
  board.status(S.state, replay.playing ? `${source}, replayed at ${speed}.` : shown);
  showCard();
  const about = [[S.fromFile, "RECORDED"], [S.header?.synthetic?.length, "SYNTHETIC"],
    [RANDOM_WEIGHTS.test(S.header?.model?.name), "RANDOM"], [S.computed, "COMPUTED"]];
  board.ribbon([...new Set([...S.ribbon.split(/[\s,+]+/).filter(Boolean),
    ...about.flatMap(([holds, word]) => (holds ? [word] : []))])]);
}

export function announcement() {
  const words = S.status?.text || WORDS[S.state] || "";
  if (S.state !== "finished" || resultWaits()) return oneLine(words);
  const verdict = verdictOn(S.sides[1]), word = verdictWord(verdict), { says } = cautionsOf(S.recording, S.sides[1]);
  const isNone = whyNoResult(S.recording, S.sides[1], verdict);
  const speedup = isNone ? null : raceSpeedup(S.race, S.first, S.race.lane(S.sides[1]));
  const ratio = speedup === null ? says : `${times(speedup)} as fast as plain. ${says}`;
  return `The race is over. ${ratio} ${word && `Verdict: ${word}.`} ${oneLine(S.again)}`;
}

// A recorded race has a result once both texts are complete, as in the live race.
const resultWaits = () => S.verdictWaits
  || (!S.live && (replay.playing || !S.met) && (S.fromFile || S.ribbon.includes("RECORDED")));

export function showVerdict() {
  const waits = resultWaits();
  const [verdict, plain] = waits ? [null, null] : [verdictOn(S.sides[1]), verdictOn(S.first.plain)];
  board.verdict(verdict, plain, S.again, !waits && (S.recording !== null || ["stopped", "failed"].includes(S.state)),
    S.computed);
}

export function showResult() {
  showVerdict();
  board.announce(announcement());
}

replay.onTime = schedule;
