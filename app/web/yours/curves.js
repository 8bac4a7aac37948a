// Draws a study of servers under load. Rows and report are those of `python -m engine study`.

import { NOISE } from "../host.js";
import { headRow, make, oneLine, svg, tableRow } from "../base/text.js";

// Metric: [column, factor, decimals, description].
export const METRICS = {
  output_tokens_per_s: ["output tokens/s", 1, 1, "output tokens of the answered requests / wall time of the level"],
  total_tokens_per_s: ["total tokens/s", 1, 1, "the same with the tokens of their prompts"],
  ttft_p95_s: ["first text, s (TTFT P95)", 1, 3, "from the request's first byte to the first text; 95th percentile"],
  itl_p95_s: ["between tokens, ms (ITL P95)", 1000, 2,
    "of each request, from the first text to the last / (tokens - 1); 95th percentile"],
  tpot_p95_s: ["a token, ms (TPOT P95)", 1000, 2,
    "of each request, its whole latency / its tokens, the wait for the first included; 95th percentile. A race's TPOT "
    + "leaves that wait out"],
  latency_median_s: ["answer time, s (median)", 1, 2, "latency: median of the requests, to the end of the stream"],
  mean_acceptance_length: ["tokens a step", 1, 2, "1 + accepted draft tokens / verified drafts"],
  dollars_per_million: ["$ per 1M tokens", 1, 2, "1,000,000 / output tokens per s x $ an hour / 3,600"],
};
export const CURVES = ["output_tokens_per_s", "total_tokens_per_s", "ttft_p95_s", "itl_p95_s", "tpot_p95_s",
  "latency_median_s"];
const WIDTH = 330, HEIGHT = 190, LEFT = 52, RIGHT = 14, TOP = 12, BOTTOM = 30;

const shownValue = (metric, value) =>
  typeof value === "number" ? (value * METRICS[metric][1]).toFixed(METRICS[metric][2]) : "–";

// One metric over the number of users (logarithmic), a line per lane.
export function curve(metric, rows, lanes) {
  const [name, factor] = METRICS[metric];
  const known = rows.filter((row) => typeof row[metric] === "number");
  const users = [...new Set(rows.map((row) => row.concurrency))].sort((a, b) => a - b);
  const most = Math.max(...known.map((row) => row[metric] * factor), 1e-9) * 1.08;
  const span = Math.log(users.at(-1) / users[0]) || 1;
  const x = (num) => LEFT + (users.length > 1 ? Math.log(num / users[0]) / span : 0.5) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - TOP - BOTTOM);
  const picture = svg("svg", "pf-chart-svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
    "aria-label": `${name} over users at once; the table has the numbers` });
  for (const share of [0, 0.5, 1]) {
    const value = (most / 1.08) * share, at = y(value);
    picture.append(svg("line", "pf-grid", { x1: LEFT, x2: WIDTH - RIGHT, y1: at, y2: at }),
      svg("text", "pf-tick", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, String(+value.toPrecision(2))));
  }
  for (const num of users)
    picture.append(svg("text", "pf-tick", { x: x(num), y: HEIGHT - 10, "text-anchor": "middle" }, String(num)));
  lanes.forEach((lane, i) => {
    const own = known.filter((row) => row.lane === lane).sort((a, b) => a.concurrency - b.concurrency);
    const points = own.map((row) => [x(row.concurrency), y(row[metric] * factor)]);
    picture.append(svg("path", `pl-line pl-line-${i}`, { d: points.map((at, n) => `${n ? "L" : "M"}${at}`).join("") }));
    points.forEach(([cx, cy]) => picture.append(svg("circle", `pl-dot pl-line-${i}`, { cx, cy, r: 4 })));
  });
  const figure = make("figure", "pl-curve", make("figcaption", "", name), picture);
  figure.title = METRICS[metric][3];
  return figure;
}

export const legend = (lanes) => make("p", "pl-legend",
  ...lanes.flatMap((lane, i) => [make("i", `pl-key pl-line-${i}`), make("span", "", oneLine(lane))]),
  make("span", "pl-axis", "over the number of users at once"));

// Table rows: levels; after each number of users, the second lane's improvement.
export function levelRows(report, lanes, metrics) {
  const gains = { ...report.improvement_by_users };
  return report.levels.flatMap((row, i) => {
    const failed = row.num_errors ? `${row.num_errors} of ${row.num_requests}` : "0", num = String(row.concurrency);
    const line = tableRow([oneLine(row.lane), num, failed], metrics.map((metric) => shownValue(metric, row[metric])));
    if (row.num_errors) line.className = "ps-fault";
    const isLast = report.levels[i + 1]?.concurrency !== row.concurrency;
    return isLast && gains[num] ? [line, gainRow(oneLine(lanes[1]), num, metrics.map((metric) => gains[num][metric]))] : [line];
  });
}

function gainRow(lane, users, gains) {
  const line = tableRow([`Improvement of ${lane}`, users, ""], gains.map((gain) => {
    if (typeof gain !== "number") return "–";
    const sign = Math.sign(gain.toFixed(1)), how = ["pl-worse", "", "pl-better"][sign + 1];
    const matters = Math.abs(gain) > 100 * (NOISE - 1);
    return make("td", matters ? how : "", gain < -100 ? `${(1 - gain / 100).toFixed(1)}\u00d7 as much` :
      `${["−", "", "+"][sign + 1]}${Math.abs(gain).toFixed(1)} %`);
  }));
  line.className = "pl-gain";
  return line;
}

export function levelsHead(metrics) {
  const row = headRow(["lane", "users", "failed", ...metrics.map((name) => METRICS[name][0])]);
  metrics.forEach((name, i) => { row.children[i + 3].title = METRICS[name][3]; });
  return row;
}
