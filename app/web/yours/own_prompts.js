// Step 2: the visitor's own prompts, from a file or pasted, or the page's one.

import { MAX_FILE_CHARS } from "../host.js";
import { fill } from "../base/dom.js";
import { savedKind } from "../base/saved.js";
import { oneLine, plural, shellQuoted, startOf } from "../base/text.js";
import { choiceOf, parts, setChoice } from "./box.js";
import { promptsIn } from "./prompts.js";

const PASTED = "pasted text", HERE = "the page's prompt";
// own: {name, text, isWhole, ...promptsIn}, null if none are chosen; here: the same of the page's prompt, typed there.
const mine = { own: null, here: null, typed: null };

// The prompts that a study takes; null if none are chosen.
export function promptSource() {
  if (choiceOf("prompts") === "own") return mine.own;
  const typed = document.querySelector("#page-prompt textarea")?.value ?? "";
  if (typed !== mine.typed) {
    const text = JSON.stringify({ prompt: typed });
    Object.assign(mine, { typed, here: typed ? { name: HERE, text, isWhole: false, ...promptsIn(HERE, text) } : null });
  }
  return mine.here;
}

const fileSays = (name, words) => `${oneLine(name).slice(0, 80)}${words}`;

// isWhole: all of the text is one prompt, unless it is JSON.
export function choosePrompts(name, text, isWhole = false) {
  if (text.length > MAX_FILE_CHARS)
    return refuse(name, `has ${text.length} characters; at most ${MAX_FILE_CHARS} are allowed`);
  const prompts = promptsIn(name, text, isWhole), { num, how } = prompts;
  mine.own = num ? { name, text, isWhole, ...prompts } : null;
  parts.found.textContent = fileSays(name, `: ${num ? plural(num, "prompt") + how : "no prompt"}.`);
  setChoice("prompts", "own");
  return undefined;
}

function refuse(name, why) {
  mine.own = null;
  parts.found.textContent = fileSays(name, ` ${why}.`);
}

// Take a file of prompts. Returns the text of one that holds a result instead.
export async function takeFile(file) {
  const text = await readText(file), saved = savedKind(text ?? "");
  if (text === null || (saved && saved !== "race")) return saved ? text : null;
  if (saved) return refuse(file.name, "is a recorded race; Open on the page shows it");
  parts.paste.value = "";
  choosePrompts(file.name, text);
  return null;
}

// Its text; null if it cannot be read, which the dialog then says.
async function readText(file) {
  if (file.size > 4 * MAX_FILE_CHARS)
    return refuse(file.name, `has ${file.size} bytes; at most ${MAX_FILE_CHARS} characters are allowed`) ?? null;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    return refuse(file.name, "is not UTF-8 text") ?? null;
  }
}

// Those of a study that this tab has kept.
export function bringPrompts({ name, text, isWhole, flatten }) {
  parts.flatten.checked = flatten;
  if (name === PASTED) {
    parts.paste.value = text;
    parts.perLine.checked = !isWhole;
  }
  if (name !== HERE) choosePrompts(name, text, isWhole);
}

export const isFlat = () => parts.flatten.checked;

// The text of prompts where it is read without `isWhole`.
export const plainText = ({ text, isWhole, isJson }) => (isWhole && !isJson ? JSON.stringify({ prompt: text }) : text);

// How a command gets these prompts: the option's value, and what goes before the command. No prompts: null, "".
export function promptsOption(source) {
  if (!source) return { before: "", prompts: null };
  const text = plainText(source);
  const isFile = text === source.text && !source.isDiffering && ![PASTED, HERE].includes(source.name);
  return isFile ? { before: "", prompts: source.name } : { before: `printf %s ${shellQuoted(text)} | `, prompts: "-" };
}

// What was understood of the chosen text, and the choices that it leaves.
export function drawPrompts(question) {
  const isOwn = choiceOf("prompts") === "own", { name, text = "", num = 0, numChats = 0, isJson } = mine.own ?? {};
  const limit = Number(parts.limit.value), typed = document.querySelector("#page-prompt textarea")?.value ?? "";
  if (!numChats) parts.flatten.checked = false;
  fill(parts, {
    herePrompt: { load: "random words", checkup: "three short prompts" }[question]
      ?? `the one on the page${typed ? `: ${oneLine(startOf(typed))}` : ", once it is typed"}`,
    ownPrompts: isOwn,
    perLineBox: name === PASTED && !isJson && text.trim().includes("\n"),
    flattenBox: numChats > 0,
    leftOut: question === "study" && limit > 0 && limit < num ? `Racing ${limit} of them, evenly by kind; ${num - limit
    } left out. Raise the limit for more.` : "",
  });
}

const paste = () => choosePrompts(PASTED, parts.paste.value, !parts.perLine.checked);
parts.paste.addEventListener("input", paste);
parts.perLine.addEventListener("input", paste);
