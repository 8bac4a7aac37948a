// Untrusted text as nodes: the DOM text is exact, what would be invisible or would reorder its neighbours is marked
// beside it. Only textContent is used.

const JOINING = "\\p{Script=Arabic}\\p{Script=Syriac}\\p{Script=Devanagari}\\p{Script=Bengali}"
  + "\\p{Script=Gujarati}\\p{Script=Gurmukhi}\\p{Script=Kannada}\\p{Script=Malayalam}"
  + "\\p{Script=Sinhala}\\p{Script=Tamil}\\p{Script=Telugu}\\p{Script=Khmer}";
const PICTURE = "\\p{Extended_Pictographic}\\ufe0f?\\p{Emoji_Modifier}?";
const LEGITIMATE = `${PICTURE}(?:\\u200d${PICTURE})+|\\u{1f3f4}[\\u{e0020}-\\u{e007e}]+\\u{e007f}`
  + `|(?<=[${JOINING}])[\\u200c\\u200d](?=[${JOINING}])`;
const UNSEEN = "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160"
  + "\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0"
  + "\\ufff9-\\ufffb\\u{e0000}-\\u{e00ff}\\p{Cs}]";
const SPECIAL = new RegExp(`(${LEGITIMATE})|(\\n)|(${UNSEEN})`, "gu");
const NEEDS_MARKS = new RegExp(`\\n|${UNSEEN}`, "u");
const MARKS = new Map([[0, "NUL"], [8, "BS"], [13, "CR"], [27, "ESC"], [0xad, "SHY"], [0x200b, "ZWSP"],
  [0x200c, "ZWNJ"], [0x200d, "ZWJ"], [0x200e, "LRM"], [0x200f, "RLM"],
  [0x202a, "LRE"], [0x202b, "RLE"], [0x202c, "PDF"], [0x202d, "LRO"], [0x202e, "RLO"], [0x2060, "WJ"], [0x2066, "LRI"],
    [0x2067, "RLI"], [0x2068, "FSI"], [0x2069, "PDI"], [0xfeff, "BOM"]]);

const DEFAULT_TARGET = "gemma-3-270m";        // what a command takes where no target is named

function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function markOf(character) {
  const code = character.codePointAt(0);
  return MARKS.get(code) ?? "U+" + code.toString(16).toUpperCase().padStart(4, "0");
}

// Fill `node` so that its textContent is `text`, every unseen character wrapped and labelled.
function putText(node, text) {
  if (!NEEDS_MARKS.test(text)) {
    node.textContent = text;
    return node;
  }
  let from = 0;
  const plain = (to) => { if (to > from) node.append(text.slice(from, to)); };
  for (const found of text.matchAll(SPECIAL)) {
    if (found[1] !== undefined) continue;
    plain(found.index);
    const mark = make("span", found[2] === undefined ? "pf-unseen" : "pf-newline", found[0]);
    if (found[2] === undefined) mark.dataset.mark = markOf(found[0]);
    node.append(mark);
    from = found.index + found[0].length;
  }
  plain(text.length);
  return node;
}

// For sentences and labels: the same marks, but as text, in one line.
// A drafter's plain name, and the field's in brackets: the same on the whole page.
const DRAFTER_NAMES = { __proto__: null, ngram: "copy of earlier text (n-gram)", eagle3: "extra network (EAGLE-3)",
  dflash: "extra network (DFlash)", draft_model: "smaller model (draft model)", synthetic: "made up (synthetic)" };
// One with an argument is named in full, since there may be others of its kind.
const drafterName = (drafter) => DRAFTER_NAMES[drafter] ?? oneLine(drafter).slice(0, 40);

function oneLine(text) {
  return String(text).replace(SPECIAL, (all, fine, newline) =>
    fine ?? (newline ? "\u21b5" : `\u27e8${markOf(all)}\u27e9`));
}

function seconds(value) {
  return value === null || value === undefined ? "–" : value.toFixed(3);
}

function duration(value) {
  if (value === null || value === undefined) return "–";
  const ms = 1000 * value;
  return ms >= 10000 ? `${value.toFixed(1)} s` : ms >= 1000 ?
    `${value.toFixed(2)} s` : `${ms.toFixed(ms < 100 ? 1 : 0)} ms`;
}

function rate(value) {
  return value === null || value === undefined ? "–" : value >= 1000 ? value.toFixed(0) : value.toFixed(1);
}

function percent(share) {
  return share === null || share === undefined ? "–" : `${(100 * share).toFixed(0)} %`;
}

function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

function sentence(words) {
  const whole = words.charAt(0).toUpperCase() + words.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}

// A word of a POSIX shell, whatever it holds.
function shellQuoted(value) {
  return /^[\w@%+=:,./-]+$/.test(value) ? value : `'${String(value).replaceAll("'", "'\\''")}'`;
}

// How a race is called whose prompt has no name: by its first words.
function startOf(text) {
  const words = String(text ?? "").trim().split(/\s+/).slice(0, 6).join(" ");
  return words ? `\u201c${words.slice(0, 40)}\u2026\u201d` : "";
}
