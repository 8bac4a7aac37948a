// Draws a study of prompts. Its report is the object that `python -m engine study-prompts --json` prints.

import { DRAFTER_WORDS, SAYS } from "../host.js";
import { headRow, makeButton, tableRow } from "../base/dom.js";
import { drafterName, make, oneLine, shortDrafter, times, withTimes } from "../base/text.js";
import { draftWords } from "../base/words.js";
import { isCause, isRounding, isWrong } from "./together.js";

export const MEANS = `${SAYS.rule} The 95 % interval shows how certain the median is; the quartiles contain the `
  + "middle half of the prompts. With few prompts the two can be equal.";
const MOST_WAYS = 3, WAY = 60;  // partings that are not folded; PART of engine/studies/prompts/race_servers.py

// What a drafter at k is called; k null: a lane of a server, which drafts as it likes.
const ofServer = (drafter) => (drafter === "server" ? "speculation" : oneLine(drafter));
const shortWords = ({ drafter, k }) => (k === null ? ofServer(drafter) :
  draftWords({ drafter, k }).replace(drafterName(drafter), shortDrafter(drafter)));
const asRaced = (drafter) =>
  ({ drafter, k: Object.hasOwn(DRAFTER_WORDS, drafter.split(":")[0]) ? "auto" : null });
export const raceWords = (drafter) => shortWords(asRaced(drafter));

// A row's speed-up at this k. Twin of gain_at in engine/studies/prompts/rows.py.
const gainAt = (row, k) =>
  (k === null || String(k) === row.k || row.fault ? row.speedup : row.computed[String(k)] ?? null);

// The verdict. check: what a check-up of these servers found about texts; null if there was none.
export function studyVerdict({ says, best }, check = null, temperature = null) {
  const kind = isWrong(check) ? "fault" : isRounding(check, best?.num_other_texts, temperature) ? "rounding" : "";
  return withTimes(says.verdict[kind]);
}

// What servers showed, or would show, under load. load, check: see together.js.
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

// Head and rows of the table of prompts, a row each, slowest first: of the verdict's drafter at its k, then of what
// raced. raceIt(line): races that prompt; null if it cannot.
export function promptTable(rows, best, raceIt) {
  const raced = [...new Set(rows.map(({ drafter }) => drafter))].map(asRaced);
  const others = best ? raced.filter(({ drafter, k }) => drafter !== best.drafter || k !== best.k) : raced;
  const shown = [...best ? [best] : [], ...others], byLine = Map.groupBy(rows, ({ line }) => line);
  const rowOf = (line, { drafter }) => byLine.get(line).find((own) => own.drafter === drafter);
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
