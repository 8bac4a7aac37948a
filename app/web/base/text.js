// Nodes and words. Untrusted text as nodes: the DOM text is exact; invisible and reordering characters get a visible
// mark; only textContent is used. Numbers, names, verdicts, ribbons, lanes and drafters in words.

import { DRAFTER_WORDS, SAYS } from "../host.js";

const SVG = "http://www.w3.org/2000/svg";
const JOINING = "\\p{Script=Arabic}\\p{Script=Syriac}\\p{Script=Devanagari}\\p{Script=Bengali}"
  + "\\p{Script=Gujarati}\\p{Script=Gurmukhi}\\p{Script=Kannada}\\p{Script=Malayalam}"
  + "\\p{Script=Sinhala}\\p{Script=Tamil}\\p{Script=Telugu}\\p{Script=Khmer}";
const PICTURE = "\\p{Extended_Pictographic}\\ufe0f?\\p{Emoji_Modifier}?";
const LEGITIMATE = `${PICTURE}(?:\\u200d${PICTURE})+|\\u{1f3f4}[\\u{e0020}-\\u{e007e}]+\\u{e007f}`
  + `|(?<=[${JOINING}])[\\u200c\\u200d](?=[${JOINING}]|$)`;
const UNSEEN = "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160"
  + "\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0"
  + "\\ufff9-\\ufffb\\u{e0000}-\\u{e00ff}\\p{Cs}]";
const SPECIAL = new RegExp(`(${LEGITIMATE})|(\\n)|(${UNSEEN})`, "gu");
export const NEEDS_MARKS = new RegExp(`\\n|${UNSEEN}`, "u");
const MARKS = new Map([[0, "NUL"], [8, "BS"], [13, "CR"], [27, "ESC"], [0xad, "SHY"], [0x200b, "ZWSP"],
  [0x200c, "ZWNJ"], [0x200d, "ZWJ"], [0x200e, "LRM"], [0x200f, "RLM"],
  [0x202a, "LRE"], [0x202b, "RLE"], [0x202c, "PDF"], [0x202d, "LRO"], [0x202e, "RLO"], [0x2060, "WJ"], [0x2066, "LRI"],
    [0x2067, "RLI"], [0x2068, "FSI"], [0x2069, "PDI"], [0xfeff, "BOM"]]);

export const DEFAULT_TARGET = "gemma-3-270m";        // what a command takes by default
export const RANDOM_WEIGHTS = /^random:/;

// A node with what is in it: words and nodes, without those that are empty.
export function make(tag, className, ...content) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...content.filter(Boolean));
  if (tag === "code" || tag === "pre") node.translate = false;
  return node;
}

// The same, for the eye only.
export function makeUnheard(tag, className, ...content) {
  const node = make(tag, className, ...content);
  node.setAttribute("aria-hidden", "true");
  return node;
}

export function write(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

export function svg(tag, className, attributes = {}, ...content) {
  const node = document.createElementNS(SVG, tag);
  if (className) node.setAttribute("class", className);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...content);
  return node;
}

// more: other properties of it.
export function makeButton(className, words, act, more = {}) {
  const button = Object.assign(make("button", className, words), { type: "button", ...more });
  if (act) button.addEventListener("click", act);
  return button;
}

// A row of a table. Cells are words, or ready cells.
export const tableRow = (heads, cells) => make("tr", "", ...heads.map((words) => make("th", "", words)),
  ...cells.map((cell) => (typeof cell === "string" ? make("td", "", cell) : cell)));

// The row at its top.
export function headRow(heads) {
  const row = tableRow(heads, []);
  for (const cell of row.children) cell.scope = "col";
  return row;
}

// The page's pattern for what is drawn from values: a text or nodes, by the name of the part that shows it. `put`
// leaves what is empty in its place; `fill` hides it, and also takes whether a part is there.
export function put(parts, values) {
  for (const [name, value] of Object.entries(values)) {
    if (typeof value === "string") write(parts[name], value);
    if (Array.isArray(value)) parts[name].replaceChildren(...value);
  }
}

export function fill(parts, values) {
  put(parts, values);
  for (const [name, value] of Object.entries(values)) parts[name].hidden = !(value === true || value.length);
}

function markOf(character) {
  const code = character.codePointAt(0);
  return MARKS.get(code) ?? "U+" + code.toString(16).toUpperCase().padStart(4, "0");
}

// Set node's textContent to `text`, with every invisible character wrapped and labelled, and not to be translated.
export function putText(node, text) {
  node.translate = false;
  if (!NEEDS_MARKS.test(text)) {
    node.textContent = text;
    return node;
  }
  let from = 0;
  const plain = (to) => { if (to > from) node.append(text.slice(from, to)); };
  for (const match of text.matchAll(SPECIAL)) {
    if (match[1] !== undefined) continue;
    plain(match.index);
    const mark = make("span", match[2] === undefined ? "pf-unseen" : "pf-newline", match[0]);
    if (match[2] === undefined) mark.dataset.mark = markOf(match[0]);
    node.append(mark);
    from = match.index + match[0].length;
  }
  plain(text.length);
  return node;
}

const CHARACTERS = new Intl.Segmenter("en", { granularity: "grapheme" });
// Where the character that has the code unit `at` of a text begins.
export const characterStart = (text, at) => CHARACTERS.segment(text).containing(at)?.index ?? at;
export const cut = (text, most) => (text.length > most ? text.slice(0, characterStart(text, most)) : text);

// Draw each character that several nodes write, as a letter and its vowel sign, in the first of them: cut in two, neither
// part would look like it. before: the node that was written last. Returns the last one with text.
export function joinCharacters(nodes, before = null) {
  for (const node of nodes) {
    const text = node.textContent, start = before?.textContent ?? "", whole = start + text;
    if (start && text >= "\u0300" && characterStart(whole, start.length) < start.length) {
      const { index, segment } = CHARACTERS.segment(whole).containing(start.length), end = index + segment.length;
      [[before, whole.slice(0, end)], [node, whole.slice(end)]].forEach(([written, words]) => {
        written.replaceChildren();
        putText(written, words);
      });
    }
    if (node.textContent) before = node;
  }
  return before;
}

// How a server drafts in a race that samples, in words; "~greedy" or "~probabilistic" ends such a drafter's name.
const RULES = { greedy: ", drafted greedily", probabilistic: ", drafted by probability" };

// The name of a drafter, or of the table of its trees. Twin of `label` in engine/drafters; compared by
// test_a_drafter_has_one_name.
export function drafterName(drafter) {
  const [, name, tree, rule] = /^(.*?)(?:(@tree)|~(greedy|probabilistic))?$/s.exec(drafter);
  return cut(oneLine(plainName(name)), 100) + (tree ? ", tree" : RULES[rule] ?? "");
}
// The same without the brackets.
export const shortDrafter = (drafter) => drafterName(drafter).replace(/ \([^)]*\)/, "");

function plainName(drafter) {
  const [, kind, argument] = /^([^:]*):?(.*)$/s.exec(drafter);
  if (!Object.hasOwn(DRAFTER_WORDS, kind)) return drafter;
  const words = DRAFTER_WORDS[kind], [, first, second] = /^([^+]*)\+(.+)$/s.exec(argument) ?? [];
  if (!words.includes("{}")) return argument ? `${words} ${argument}` : words;
  return second ? words.replace("{}", () => shortDrafter(first)).replace("{}", () => plainName(second)) : drafter;
}

// The same marks as text on one line, for sentences and labels.
export function oneLine(text) {
  return String(text).replace(SPECIAL, (all, fine, newline) =>
    fine ?? (newline ? "\u21b5" : `\u27e8${markOf(all)}\u27e9`));
}

const known = (words) => (value) => (value === null || value === undefined ? "–" : words(value));
export const seconds = known((value) => value.toFixed(3));
export const rate = known((value) => value.toFixed(value >= 1000 ? 0 : 1));
export const times = known((ratio) => `${ratio.toFixed(2)}\u00d7`);
export const percent = known((share) => `${(100 * share).toFixed(0)} %`);
export const duration = known((value) => {
  const ms = 1000 * value;
  return ms < 1000 ? `${ms.toFixed(ms < 100 ? 1 : 0)} ms` : `${value.toFixed(ms < 10000 ? 2 : 1)} s`;
});
// A number as people type it: 1,234.5 or 1 234,5, also 1.234.567, １２; NaN for anything else. A comma or a point alone
// before three digits is read as in English, but in a whole number it is no point.
export function numberIn(text, isWhole = false) {
  const typed = text.normalize("NFKC").replace(isWhole ? /[\s']|[.,](?=\d{3}(?!\d))/g : /[\s']/g, "");
  const isEnglish = /^[1-9]\d{0,2}(,\d{3})+(\.\d*)?$/.test(typed), isOther = /^\d{1,3}(\.\d{3})+(\.\d{3}|,\d*)$/.test(typed);
  const digits = isEnglish ? typed.replaceAll(",", "") : isOther ? typed.replaceAll(".", "") : typed;
  return digits ? Number(digits.replace(",", ".")) : Number.NaN;
}
export const plural = (count, word) => `${count} ${word}${count === 1 ? "" : word.endsWith("s") ? "es" : "s"}`;

// "both servers, plain and speculative". Twin of the device's name in engine/remote/server_race.py.
export const serversWords = (lanes) =>
  `${["", "one server", "both servers"][lanes.length] ?? `${lanes.length} servers`}, ${lanes.join(" and ")}`;

// Words from the engine with a value in place of {}.
export const filled = (words, value) => words.replace("{}", () => value);
// The engine writes 1.87x.
export const withTimes = (words) => oneLine(words).replace(/(\d)x\b/g, "$1\u00d7");
export const capital = (words) => words.charAt(0).toUpperCase() + words.slice(1);

export function sentence(words) {
  const whole = capital(words);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}

// Any text quoted as one word for a POSIX shell.
export function shellQuoted(value) {
  return /^[\w@%+=:,./-]+$/.test(value) ? value : `'${String(value).replaceAll("'", "'\\''")}'`;
}

// The words of a command, nested as they may be, as one line of a shell; true is the value of an option that takes none.
export function joined(parts) {
  return parts.flat(Infinity).filter((part) => part !== true).map((part) => shellQuoted(String(part))).join(" ");
}

// The settings of races as options of a command; null where the command's default is the same.
export function settingsOptions({ target, temperature, top_p: topP, seed, max_new_tokens: length }) {
  return { target: target === DEFAULT_TARGET ? null : target, temperature: temperature || null,
    "top-p": topP === 1 ? null : topP, seed: seed || null, "max-new-tokens": length };
}

// Command-line options, without those that are null or false; true takes no value, and a list is the option again
// for each of its values. After a blank, a value that begins with a dash would be read as another option.
export function optionWords(options) {
  const values = Object.entries(options).flatMap(([name, value]) => [value ?? false].flat().map((one) => [name, one]));
  return values.filter(([, value]) => value !== false).map(([name, value]) =>
    `--${name}${value === true ? "" : `${/^-/.test(value) ? "=" : " "}${shellQuoted(value)}`}`).join(" ");
}

// The title of a race whose prompt has no name: its first words.
export function startOf(text) {
  const all = String(text ?? "").trim().replace(/\s+/g, " "), words = cut(all.split(" ").slice(0, 6).join(" "), 40);
  return words && `\u201c${words}${words === all ? "" : "\u2026"}\u201d`;
}

// What a verdict says: {sign, head, so_far, means, no_result, is_same}; undefined of none.
export const saysOf = (verdict) => (Object.hasOwn(SAYS.same, verdict?.kind ?? "") ? SAYS.same[verdict.kind] : undefined);
// A verdict in a few words; "" if there is none.
export const verdictWord = (verdict) => capital((verdict?.complete === false && saysOf(verdict)?.so_far)
  || (saysOf(verdict)?.head ?? ""));
// Why the ratio of a lane with this verdict is no result; "" if it may be one.
export const noResult = (verdict) => saysOf(verdict)?.no_result ?? "";
export const isIdentical = (verdict) => verdict?.kind.startsWith("identical") === true;
export const differs = (verdict) => saysOf(verdict)?.is_same === false;
export const RIBBONS = {
  __proto__: null,
  RECORDED: "an earlier race, played from its file",
  COMPUTED: "the same race at another draft length: exact steps, times computed from this race's costs",
  SYNTHETIC: "the drafts are made up at a chosen rate; the tokens are the target's own",
  RANDOM: "random weights: step times are realistic for this size; the text and the guesses kept mean nothing",
};
export const ALONE = "Plain, best width";

// A lane's title. Both plain lanes are "Plain"; among all lanes, the one that is not on the board is ALONE.
export function laneTitle(name, first, sides = null) {
  if (sides && name === first.plain && name !== sides[0]) return ALONE;
  return name === (first.baseline ?? "baseline") || name === first.plain ? "Plain" : cut(oneLine(capital(name)), 40);
}

// What a lane drafts, and how much of it.
export function draftWords({ drafter, k }) {
  const length = k === "auto" ? "automatic length" : typeof k === "string" ? k.replace("tree:", "trees of up to ") :
    `k = ${k}`;
  return cut(oneLine(`${drafterName(drafter)}, ${length}`), 140);
}

// How much a lane drafts, if that is the same in every step; copies may be shorter.
export function fixedWords(lane) {
  return Number.isInteger(lane?.k) && lane.k > 0 && !/^(none|server)$|ngram/.test(lane.drafter) ?
    `always ${plural(lane.k, "guess")} a step` : "";
}

export function guessWords(lane) {
  if (lane.drafter === "server") return "on a server";
  const words = drafterName(lane.drafter), tree = /^tree:(.*)$/s.exec(lane.k)?.[1], num = tree ?? lane.k;
  return cut(oneLine(lane.k === "auto" ? `${words}, automatic length` :
    `${words}, ${tree ? "trees of up to" : "up to"} ${plural(Number(num), "guess")}`), 120);
}
