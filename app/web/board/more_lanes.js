// Races with several speculative lanes: the track has a row for each lane that is not on the board, and all of them are
// ranked. Clicking a row shows its lane on the right (deck.js).

import { isNoise, raceSpeedup, ratioNoise, stepSeconds, sum, whyNoResult } from "../base/model.js";
import { cut, guessWords, makeButton, oneLine, saysOf, shortDrafter, times, write } from "../base/text.js";
import { board, countNow, refs, replay, S, verdictOn } from "./screen.js";

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

function rowOfMore(spec) {
  if (!more.rows.has(spec.name)) more.rows.set(spec.name, board.trackRow(makeButton("pf-track-row pf-track-more")));
  const made = more.rows.get(spec.name);
  made.row.dataset.watch = spec.name;
  made.row.title = `Show this lane on the right. ${guessWords(spec)}`;
  return made;
}

// What a lane of a race that is over came to.
function outcomeOf(name, tokens) {
  const lane = S.race.lane(name), verdict = verdictOn(name), sign = saysOf(verdict)?.sign ?? "";
  const gain = lane?.finished ? raceSpeedup(S.race, S.first, lane) : null;
  if (gain === null) return `${sign} ${tokens}`;
  return `${sign} ${tokens}  ${whyNoResult(S.recording, name, verdict) ? "no result" : times(gain)}`;
}

// Draw the rows of all these lanes at lane time t; the track ends at `total` tokens.
export function drawMore(t, total) {
  const lanes = guessing(), several = lanes.length > 1 && !S.computed, [, shown] = S.sides;
  const others = several ? lanes.map(({ name }) => name).filter((name) => name !== shown) : [];
  refs.track.toggleAttribute("data-more", several);
  for (const [name, { row }] of more.rows) if (!others.includes(name)) {
    row.remove();
    more.rows.delete(name);
  }
  if (!several) return;
  const isOver = !S.live && t >= replay.duration, places = isOver ? placesOf(lanes) : new Map();
  for (const spec of lanes) {
    const { name } = spec, row = name === shown ? board.rows.right : rowOfMore(spec), lane = S.race.lane(name);
    const tokens = lane ? lane.tokens[countNow(lane, t)] : 0;
    board.run(row, tokens, total);
    write(row.name, `${places.has(name) ? `${places.get(name)}. ` : ""}${shortName(spec)}`);
    write(row.count, isOver ? outcomeOf(name, tokens) : ` ${tokens}`);
  }
}
