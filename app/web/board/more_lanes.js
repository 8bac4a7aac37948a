// Races with several speculative lanes: the track has a row for each lane that is not on the board, and all of them are
// ranked. Clicking a row shows its lane on the right (deck.js).

import { cautionsOf, isNoise, ratioNoise } from "../base/caveats.js";
import { makeButton } from "../base/dom.js";
import { raceSpeedup, sum } from "../base/model.js";
import { stepSeconds } from "../base/steps.js";
import { cut, oneLine, shortDrafter, times, write } from "../base/text.js";
import { guessWords, noResult, saysOf } from "../base/words.js";
import { board, countNow, refs, replay } from "./screen.js";
import { S, verdictOn } from "./state.js";

const more = { rows: new Map() };

export const guessing = () => (S.header?.spec?.lanes ?? []).filter((lane) => lane.role === "speculative");
// How a lane differs from the others: its drafter and k, or how it drafts if all have the same drafter.
export function shortName({ name, drafter, k }) {
  if (drafter === "server") return cut(oneLine(`${name}, on a server`), 80);
  const how = k === "auto" ? "automatic" : typeof k === "string" ? k.replace("tree:", "trees of ") : `chains of ${k}`;
  const alike = guessing().length > 1 && guessing().every((lane) => lane.drafter === drafter);
  return cut(oneLine(alike ? how : `${shortDrafter(drafter)}, k = ${k}`), 80);
}

// Ranks by seconds per token, 1 the fastest. Lanes within each other's noise share a rank.
function placesOf(specs) {
  const lanes = specs.map(({ name }) => S.race.lane(name)).filter((lane) => lane?.finished && lane.steps.length);
  const cost = (lane) => sum(lane.steps.map(stepSeconds)) / lane.tokens.at(-1), places = new Map();
  lanes.sort((a, b) => cost(a) - cost(b)).forEach((lane, i) => {
    const before = lanes[i - 1], noise = before ? ratioNoise(before.steps, lane.steps) : null;
    places.set(lane.name, before && isNoise(cost(lane) / cost(before), noise) ? places.get(before.name) : i + 1);
  });
  return places;
}

// Draw the rows of the other lanes at lane time t; the track ends at `total` tokens.
export function drawMore(t, total) {
  const lanes = guessing(), several = lanes.length > 1 && !S.computed, others = several ?
    lanes.filter(({ name }) => name !== S.sides[1]) : [];
  refs.track.toggleAttribute("data-more", several);
  for (const [name, { row }] of more.rows) if (!others.some((lane) => lane.name === name)) {
    row.remove();
    more.rows.delete(name);
  }
  if (!several) return;
  const over = !S.live && t >= replay.duration, places = over ? placesOf(lanes) : new Map();
  const titled = (lane) => `${places.has(lane.name) ? `${places.get(lane.name)}. ` : ""}${shortName(lane)}`;
  const counted = ({ name }, tokens) => {
    const lane = S.race.lane(name);
    const gain = over && lane?.finished ? raceSpeedup(S.race, S.first, lane, ({ steps }) => steps.length) : null;
    const icon = over ? saysOf(verdictOn(name))?.sign ?? "" : "";
    const isNone = noResult(verdictOn(name)) || cautionsOf(S.recording, name).loop;
    return `${icon} ${tokens}${gain === null ? "" : `  ${isNone ? "no result" : times(gain)}`}`;
  };
  for (const spec of others) {
    if (!more.rows.has(spec.name)) more.rows.set(spec.name, board.trackRow(makeButton("pf-track-row pf-track-more")));
    const { row, name, run, count } = more.rows.get(spec.name), lane = S.race.lane(spec.name);
    const tokens = lane ? lane.tokens[countNow(lane, t)] : 0;
    row.dataset.watch = spec.name;
    write(name, titled(spec));
    row.title = `Show this lane on the right. ${guessWords(spec)}`;
    board.fill(run, tokens, total);
    write(count, counted(spec, tokens));
  }
  const shown = lanes.find(({ name }) => name === S.sides[1]), right = S.race.lane(S.sides[1]);
  write(board.rows.right.name, titled(shown));
  write(board.rows.right.count, counted(shown, right ? right.tokens[countNow(right, t)] : 0));
}
