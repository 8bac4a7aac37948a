// Draws a study of prompts. Rows and report are those of `python -m engine study-prompts`.

import { THRESHOLD } from "../host.js";
import { tableRow } from "../base/dom.js";
import { make, oneLine, percent, times } from "../base/text.js";

export const SHOWN = ["prompt", "kind", "drafter", "k", "speedup", "acceptance_rate", "mean_acceptance_length",
  "num_tokens", "identical"];
const WORDS = { ship: "Yes, it pays (\u201cship\u201d)",
  "do not ship": "No, the gain is too small (\u201cdo not ship\u201d)", unclear: "Unclear" };
export const MEANS = `${THRESHOLD} is a rule of thumb: a smaller gain is not worth a drafter's memory and `
  + "maintenance. The 95 % interval shows how certain the median is; the quartiles contain the middle half of the "
  + "prompts. With few prompts the two can be equal.";
const LEAST_SPAN = 2;           // smallest span of the scale, as a ratio

// Whether the verdict would differ without texts that repeat themselves.
export function isDoubtful({ verdict, best, summary }) {
  const { num_loops: loops, without_loops: without } = summary[best.drafter];
  return loops > 0 && without !== verdict;
}

export function verdictWords(report) {
  const { verdict, best, summary } = report, its = summary[best.drafter];
  const how = best.measured ? "measured" : "computed";
  const gain = typeof best.median_speedup === "number" ? `, ${times(best.median_speedup)} at the median (${how})` : "";
  const doubt = isDoubtful(report) ? `. But ${its.num_loops} of ${its.num_prompts} texts repeat themselves; without `
    + `them: ${its.without_loops}.` : "";
  return `${WORDS[verdict]}: ${best.drafter} at k = ${best.k}${gain}${doubt}`;
}

const row = (heads, values) => tableRow(heads.map(oneLine), values.map(oneLine));

export function summaryRows(summary) {
  const numbers = (its) => [String(its.num_prompts), times(its.median_speedup),
    `${times(its.p25)} to ${times(its.p75)}`, percent(its.share_above_1_3), String(its.num_gain), String(its.num_lose)];
  const kinds = Object.keys(Object.values(summary)[0].by_kind), groups = kinds.length > 1 ? [...kinds, null] : kinds;
  return groups.flatMap((kind) => Object.entries(summary).map(([drafter, its]) =>
    row([kind ?? "all", drafter], numbers(kind === null ? its : its.by_kind[kind]))));
}

export function promptRows(rows) {
  const slowest = (line) => Math.min(...rows.filter((row) => row.line === line).map((row) => row.speedup ?? 0));
  return [...rows].sort((a, b) => slowest(a.line) - slowest(b.line) || a.line - b.line).map((its) => {
    const line = row([String(its.line), its.prompt], [its.drafter, its.fault ? "–" : times(its.speedup),
      percent(its.acceptance_rate), its.mean_acceptance_length?.toFixed(2) ?? "–", String(its.num_tokens),
      its.fault || (its.identical ? "yes" : "no")]);
    if (its.fault) line.className = "ps-fault";
    return line;
  });
}

// One line of dots per drafter, a dot per prompt, over speed-up on a logarithmic scale.
export function strips(rows, threshold) {
  const gains = rows.map((row) => row.speedup).filter((gain) => gain > 0);
  const low = Math.min(1 / 1.25, ...gains), high = Math.max(low * LEAST_SPAN, threshold * 1.1, ...gains) * 1.04;
  const place = (gain) => `${(100 * Math.log(gain / low) / Math.log(high / low)).toFixed(2)}%`;
  const at = (node, gain) => { node.style.left = place(gain); return node; };
  const lines = [...new Set(rows.map((row) => row.drafter))].map((drafter) => {
    const line = make("div", "ps-strip"), dots = make("div", "ps-dots");
    const own = rows.filter((row) => row.drafter === drafter && row.speedup > 0);
    dots.append(at(make("i", "ps-line"), 1), at(make("i", "ps-line ps-wanted"), threshold), ...own.map((row) => {
      const dot = at(make("b"), row.speedup);
      dot.title = `${times(row.speedup)}, ${oneLine(row.kind)}, line ${row.line}: ${oneLine(row.prompt)}`;
      return dot;
    }));
    line.append(make("span", "", drafter), dots);
    return line;
  });
  const marks = make("div", "ps-dots ps-marks"), scale = make("div", "ps-strip");
  const wanted = [0.5, 1, threshold, 2, 3, 4, 6, 8, 12, 16, 24].filter((gain) => gain >= low && gain <= high);
  marks.append(...wanted.map((gain) => at(make("span", "pf-num", `${gain}×`), gain)));
  scale.append(make("span"), marks);
  return [...lines, scale];
}
