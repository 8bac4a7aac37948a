// The heat map of a study: a row for each kind of prompt, a column for each drafter.

import { headRow, tableRow } from "../base/dom.js";
import { make, oneLine, percent, plural, times } from "../base/text.js";

const FULL = 3;     // times as fast, or as slow, of the strongest colour

// How strong a cell's colour is, from 0 to 1. Twin of `heat` in engine/cli/report_tables.py.
export const heat = (gain) => (gain > 0 ? Math.min(1, Math.abs(Math.log(gain)) / Math.log(FULL)) : 0);

// The cell of a kind and drafter: the median, in words too if it loses; below it, what it rests on.
function cellOf(stats) {
  const gain = stats.median_speedup, slower = gain !== null && gain < 0.995;
  const lines = [stats.interval && `95 % interval ${stats.interval.map(times).join(" to ")}`,
    gain !== null && `quartiles ${times(stats.p25)} to ${times(stats.p75)}`,
    stats.mean_acceptance_length !== null && `${stats.mean_acceptance_length.toFixed(2)} a step, ${
      percent(stats.acceptance_rate)} kept`, `${stats.num_gain} faster, ${stats.num_lose} slower`].filter(Boolean);
  const cell = make("td", slower ? "ps-heat ps-slower" : "ps-heat",
    make("strong", "", gain === null ? "\u2013" : `${times(gain)}${slower ? " (slower)" : ""}`),
    ...lines.map((words) => make("span", "", words)));
  cell.style.setProperty("--heat", heat(gain).toFixed(3));
  return cell;
}

// [head, rows] of the table, from the report's summary. nameOf(drafter): what its column is called.
export function heatMap(summary, nameOf) {
  const drafters = Object.keys(summary), [first] = Object.values(summary), kinds = Object.keys(first.by_kind);
  const row = (kind, pick) => tableRow([`${oneLine(kind)}, ${plural(Math.max(...drafters.map((drafter) =>
    pick(summary[drafter]).num_prompts)), "prompt")}`], drafters.map((drafter) => cellOf(pick(summary[drafter]))));
  const rows = kinds.length > 1 ? kinds.map((kind) => row(kind, (stats) => stats.by_kind[kind])) : [];
  rows.push(row("all", (stats) => stats));
  for (const { firstChild } of rows) firstChild.scope = "row";
  return [headRow(["kind", ...drafters.map(nameOf)]), rows];
}
