// Draws a study of prompts. Its report is the object that `python -m engine study-prompts --json` prints.

import { DRAFTER_WORDS, SAYS } from "../host.js";
import { drafterName, draftWords, headRow, make, makeButton, oneLine, percent, plural, shortDrafter, tableRow, times,
  withTimes } from "../base/text.js";
import { isCause, isRounding, isWrong } from "./results.js";

export const MEANS = `${SAYS.rule} The 95 % interval shows how certain the median is; the quartiles contain the `
  + "middle half of the prompts. With few prompts the two can be equal.";
const LEAST_SCALE = 2;           // smallest span of the scale, as a ratio
const MOST_WAYS = 3, WAY = 60;  // partings that are not folded; PART of engine/studies/prompts/race_servers.py

// What a drafter at k is called; k null: a lane of a server, which drafts as it likes.
const ofServer = (drafter) => (drafter === "server" ? "speculation" : oneLine(drafter));
const shortWords = ({ drafter, k }) => (k === null ? ofServer(drafter) :
  draftWords({ drafter, k }).replace(drafterName(drafter), shortDrafter(drafter)));
const asRaced = (drafter) => ({ drafter, k: Object.hasOwn(DRAFTER_WORDS, drafter.split(":")[0]) ? "auto" : null });
export const raceWords = (drafter) => shortWords(asRaced(drafter));

// A row's speed-up at this k. Twin of gain_at in engine/studies/prompts/rows.py.
const gainAt = (row, k) =>
  (k === null || String(k) === row.k || row.fault ? row.speedup : row.computed[String(k)] ?? null);

// The verdict. check: what a check-up of these servers found about texts; null if there was none.
export function studyVerdict({ says, best }, check = null, temperature = null) {
  const kind = isWrong(check) ? "fault" : isRounding(check, best?.num_other_texts, temperature) ? "rounding" : "";
  return withTimes(says.verdict[kind]);
}

// What servers showed, or would show, under load. load, check: see results.js.
export const loadWords = (load, check) => (load ? `Under load: ${isWrong(check) ? load.recommends : load.says}.` :
  "With more users it may lose: measure it under load.");

// The verdict by which the answer is coloured: amber where a yes has a but.
export function colourOf({ verdict, doubtful, best }, load, check = null, temperature = null) {
  const others = best?.num_other_texts ?? 0, isUnsure = others > 0 && !isRounding(check, others, temperature);
  return isWrong(check) ? "do not ship" : doubtful || isUnsure || (load?.loses && verdict === "ship") ? "unclear" :
    verdict;
}

// Whether the servers wrote the same texts, and why not.
export function textsWords({ says, best }, temperature, check = null) {
  const isKnown = isCause(check) || isRounding(check, best?.num_other_texts, temperature);
  return [says.texts, !isKnown && says.causes, says.causes && check && `The check-up: ${check.says}`]
    .filter(Boolean).map(oneLine).join(" ");
}

// Where texts part, in the order of the prompts; all but the first few are folded.
export function partings(rows) {
  const first = rows.filter(({ ways }) => ways).sort((a, b) => a.line - b.line).map(parting);
  const rest = first.splice(MOST_WAYS);
  return rest.length ? [...first, make("details", "", make("summary", "", `${rest.length} more`), ...rest)] : first;
}

// Texts are cut between words, where there are words.
function parting({ line, prompt, drafter, differs_at: at, ways: [before, ...ways] }) {
  const [, whole, stem] = /^(.*?)(\S*)$/s.exec(before);
  const begin = at > WAY ? `\u2026${whole.replace(/^\S*(?=\s)/, "")}` : whole;
  const head = make("p", "", `Line ${line}, from character ${at} on: ${oneLine(prompt)}`);
  return make("div", "ps-parting", head, ...["plain", ofServer(drafter)].map((name, i) => {
    const isWhole = [...ways[i]].length < WAY;
    const text = isWhole ? ways[i] : ways[i].replace(/(\S)\s\S*$/, "$1"), [first] = /^\s*\S*/.exec(text);
    return make("p", "ps-way", make("span", "ps-whose", name), make("span", "", oneLine(begin),
      make("strong", "", oneLine(stem + first) || " (nothing more)"), oneLine(text.slice(first.length)),
      isWhole ? "" : "\u2026"));
  }));
}

const row = (heads, values) => tableRow(heads.map(oneLine), values.map(oneLine));

// What the dots and the table show: the verdict's drafter at its k, then what raced.
function shownOf(rows, best) {
  const raced = [...new Set(rows.map(({ drafter }) => drafter))].map(asRaced);
  return best ? [best, ...raced.filter(({ drafter, k }) => drafter !== best.drafter || k !== best.k)] : raced;
}

// Head and rows of the table of prompts, a row each, slowest first. raceIt(line): races that prompt; null if it cannot.
export function promptTable(rows, best, raceIt) {
  const shown = shownOf(rows, best), byLine = Map.groupBy(rows, ({ line }) => line);
  const rowOf = (line, { drafter }) => byLine.get(line).find((raced) => raced.drafter === drafter);
  const gain = (line, option) => (rowOf(line, option) ? gainAt(rowOf(line, option), option.k) : null);
  const lines = [...byLine.keys()].sort((a, b) => (gain(a, shown[0]) ?? 0) - (gain(b, shown[0]) ?? 0) || a - b);
  return [headRow(["line", "prompt", ...shown.map(shortWords), "tokens", "notes"]), lines.map((line) => {
    const mine = byLine.get(line), main = rowOf(line, shown[0]) ?? mine[0], faults = mine.filter(({ fault }) => fault);
    const notes = [main.loops && "repeats itself", main.disturbed && "machine disturbed",
      mine.some(({ identical, fault }) => identical === false && !fault) && `another text${
        typeof main.differs_at === "number" ? `, from character ${main.differs_at} on` : ""}`,
      ...faults.map(({ fault }) => fault)];
    const made = row([String(line), main.prompt], [...shown.map((option) => times(gain(line, option))),
      String(main.num_tokens), notes.filter(Boolean).join("; ")]);
    if (faults.length) made.className = "ps-fault";
    const race = raceIt(line);
    if (race) made.children[1].replaceChildren(makeButton("ps-race", oneLine(main.prompt), race,
      { title: "Race this prompt on the page" }));
    return made;
  })];
}

// One line of dots per drafter, a dot per prompt, over speed-up on a logarithmic scale. Hollow: the text repeats
// itself, or the machine was disturbed.
export function strips(rows, threshold, best) {
  const shown = shownOf(rows, best).map((option) => [option, rows.filter(({ drafter }) => drafter === option.drafter)
    .map((raced) => [raced, gainAt(raced, option.k)]).filter(([, gain]) => gain > 0)]);
  const gains = shown.flatMap(([, own]) => own.map(([, gain]) => gain));
  const low = Math.min(1 / 1.25, ...gains), high = Math.max(low * LEAST_SCALE, threshold * 1.1, ...gains) * 1.04;
  const place = (gain) => `${(100 * Math.log(gain / low) / Math.log(high / low)).toFixed(2)}%`;
  const at = (node, gain) => { node.style.left = place(gain); return node; };
  const lines = shown.map(([option, own]) => {
    const title = make("span", "", shortWords(option));
    const marked = [at(make("i", "ps-line"), 1), at(make("i", "ps-line ps-wanted"), threshold)];
    title.title = title.textContent;
    return make("div", "ps-strip", title, make("div", "ps-dots", ...marked, ...own.map(([raced, gain]) => {
      const dot = at(make("b", raced.loops || raced.disturbed ? "ps-hollow" : ""), gain);
      dot.title = `${times(gain)}, ${oneLine(raced.kind)}, line ${raced.line}: ${oneLine(raced.prompt)}`;
      return dot;
    })));
  });
  const wanted = [0.5, 1, threshold, 2, 3, 4, 6, 8, 12, 16, 24].filter((gain) => gain >= low && gain <= high);
  return [...lines, make("div", "ps-strip", make("span"), make("div", "ps-dots ps-marks",
    ...wanted.map((gain) => at(make("span", "pf-num", `${gain}×`), gain))))];
}

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
