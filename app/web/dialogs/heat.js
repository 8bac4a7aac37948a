// The heat map of a study: a row for each kind of prompt, a column for each drafter.

import { tableRow } from "../base/dom.js";
import { make, oneLine, percent, plural, times } from "../base/text.js";

const FULL = 3;     // times as fast, or as slow, of the strongest colour

// How strong a cell's colour is, from 0 to 1. Twin of `heat` in engine/cli/report_tables.py.
export const heat = (gain) => (gain > 0 ? Math.min(1, Math.abs(Math.log(gain)) / Math.log(FULL)) : 0);

// Of one kind and drafter: the median, in words too if it loses, and below it what it rests on.
function cellOf(its) {
  const cell = make("td", "ps-heat"), gain = its.median_speedup, slower = gain !== null && gain < 0.995;
  cell.style.setProperty("--heat", heat(gain).toFixed(3));
  if (slower) cell.classList.add("ps-slower");
  const lines = [its.interval && `95 % interval ${its.interval.map(times).join(" to ")}`,
    gain !== null && `quartiles ${times(its.p25)} to ${times(its.p75)}`,
    its.mean_acceptance_length !== null && `${its.mean_acceptance_length.toFixed(2)} a step, ${
      percent(its.acceptance_rate)} kept`, `${its.num_gain} faster, ${its.num_lose} slower`].filter(Boolean);
  cell.append(make("strong", "", gain === null ? "\u2013" : `${times(gain)}${slower ? " (slower)" : ""}`),
    ...lines.map((words) => make("span", "", words)));
  return cell;
}

// [head, rows] of the table, from the report's summary. nameOf(drafter): what its column is called.
export function heatMap(summary, nameOf) {
  const drafters = Object.keys(summary), [first] = Object.values(summary), kinds = Object.keys(first.by_kind);
  const row = (kind, of) => tableRow([`${oneLine(kind)}, ${plural(Math.max(...drafters.map((each) =>
    of(summary[each]).num_prompts)), "prompt")}`], drafters.map((each) => cellOf(of(summary[each]))));
  const head = tableRow(["kind", ...drafters.map(nameOf)], []);
  for (const cell of head.children) cell.scope = "col";
  const rows = kinds.length > 1 ? kinds.map((kind) => row(kind, (its) => its.by_kind[kind])) : [];
  rows.push(row("all", (its) => its));
  for (const { firstChild } of rows) firstChild.scope = "row";
  return [head, rows];
}
