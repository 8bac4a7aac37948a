// The heat map of a study: a row for each kind of prompt, a column for each drafter.

import { headRow, make, oneLine, percent, plural, tableRow, times } from "../base/text.js";

const NO_CHANGE = 0.005;        // at most this is neither faster nor slower

// The cell of a kind and drafter: the median, in words too if it loses; below it, what it rests on.
function cellOf(stats) {
  const gain = stats.median_speedup, slower = gain !== null && gain < 1 - NO_CHANGE;
  const kind = slower ? " ps-slower" : gain > 1 + NO_CHANGE ? " ps-faster" : "";
  const lines = [stats.interval && `95 % interval ${stats.interval.map(times).join(" to ")}`,
    gain !== null && `quartiles ${times(stats.p25)} to ${times(stats.p75)}`,
    stats.mean_acceptance_length !== null && `${stats.mean_acceptance_length.toFixed(2)} a step, ${
      percent(stats.acceptance_rate)} kept`, `${stats.num_gain} faster, ${stats.num_lose} slower`].filter(Boolean);
  return make("td", `ps-heat${kind}`,
    make("strong", "", gain === null ? "\u2013" : `${times(gain)}${slower ? " (slower)" : ""}`),
    ...lines.map((words) => make("span", "", words)));
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
