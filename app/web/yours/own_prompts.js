// Step 2: the visitor's own prompts, from a file or pasted, or the page's one. The page's server reads them: what it
// makes of them, one JSON object a line, is what a study, a load and a check-up are asked about.

import { MAX_FILE_CHARS } from "../host.js";
import { cut, fill, oneLine, shellQuoted, startOf } from "../base/text.js";
import { fileText, post, savedKind } from "../base/dom.js";
import { promptBox } from "../board/page.js";
import { choiceOf, parts, setChoice } from "./box.js";

const PASTED = "pasted text", HERE = "the page's prompt", TYPING_MS = 300, WAIT = "One moment.";
// own: see `sourceOf`, null if none are chosen; here: the same of the page's prompt, typed there; number: of the last
// choice.
const mine = { own: null, here: null, typed: null, number: 0 };

// Prompts: the file's name; what the server said of them, see `look_at` in app/catalogue/request.py; and their entries
// by line, from their text.
function sourceOf(answer) {
  const lines = answer.text.split("\n").map((line, i) => [i + 1, line]).filter(([, line]) => line);
  const entries = new Map(lines.map(([number, line]) => [number, JSON.parse(line)]));
  return { ...answer, entries, num: entries.size,
    numChats: [...entries.values()].filter(({ messages }) => messages).length };
}

// The prompts that a study takes; null if none are chosen.
export function promptSource() {
  if (choiceOf("prompts") === "own") return mine.own;
  const typed = promptBox()?.value ?? "";
  if (typed !== mine.typed) {
    const text = JSON.stringify({ prompt: typed });
    Object.assign(mine, { typed, here: typed ? sourceOf({ name: HERE, text, says: "" }) : null });
  }
  return mine.here;
}

// The entry on that line of such prompts, as it is raced; a flattened chat as by `flat` in
// engine/studies/prompts/prompts.py.
export function entryAt({ entries }, number) {
  const entry = entries.get(number), { messages, ...more } = entry ?? {};
  const flat = ({ role, content }) => `${role}: ${content}\n\n`;
  return messages && isFlat() ? { prompt: `${messages.map(flat).join("")}assistant:`, ...more } : entry;
}

// The text of that prompt; null for a conversation.
export function promptAt(source, number) {
  const { prompt, turns = [null] } = entryAt(source, number) ?? {};
  return prompt ?? turns[0];
}

function say(name, words) { parts.found.textContent = `${cut(oneLine(name), 80)}${words}`; }

function takeUp(source) {
  mine.own = sourceOf(source);
  say(source.name, `: ${source.says}.${source.left_out && ` ${oneLine(source.left_out)}.`}`);
}

function refuse(name, why) {
  mine.own = null;
  say(name, ` ${why}.`);
}

// Have the server read a file, or a text, all of which is one prompt if it is no data and isWhole.
async function choosePrompts(name, body, isWhole = false) {
  const number = mine.number += 1, [ending] = /(?:\.\w+){0,2}$/.exec(name);        // nobody has to know the name
  mine.own = null;
  parts.found.textContent = WAIT;
  setChoice("prompts", "own");
  if (!ending) await new Promise((resolve) => { setTimeout(resolve, TYPING_MS); });
  if (number !== mine.number) return;
  const answer = await post(`prompts?name=${ending}${isWhole ? "&whole" : ""}`, body);
  if (number !== mine.number) return;
  if (answer.detail) refuse(`${name}:`, oneLine(answer.detail));
  else takeUp({ ...answer, name, isWhole, typed: parts.paste.value });
  parts.form.dispatchEvent(new Event("input"));
}

// Take a file of prompts. Returns the text of one that holds a result instead.
export async function takeFile(file) {
  const kind = savedKind(await fileText(file.slice(0, 2000)).catch(() => ""));
  if (file.size > 3 * MAX_FILE_CHARS)
    return refuse(file.name, `has ${file.size} bytes; at most ${MAX_FILE_CHARS} characters are allowed`) ?? null;
  if (kind === "race") return refuse(file.name, "is a recorded race; Share on the page opens it") ?? null;
  if (kind) return fileText(file);
  parts.paste.value = "";
  await choosePrompts(file.name, file);
  return null;
}

// Those of a study that this tab has kept.
export function bringPrompts({ flatten, ...source }) {
  parts.flatten.checked = flatten;
  if (source.name === HERE) return;
  if (source.name === PASTED) {
    parts.paste.value = source.typed;
    parts.perLine.checked = !source.isWhole;
  }
  setChoice("prompts", "own");
  takeUp(source);
}

export const isFlat = () => parts.flatten.checked;

// How a command gets these prompts: the option's value, and what goes before the command. No prompts: null, "".
export function promptsOption(source) {
  if (!source) return { before: "", prompts: null };
  const isFile = !source.isDiffering && ![PASTED, HERE].includes(source.name);
  return isFile ? { before: "", prompts: source.name } :
    { before: `printf %s ${shellQuoted(source.text)} | `, prompts: "-" };
}

// What was understood of the chosen text, and the choices that it leaves.
export function drawPrompts(question) {
  const isOwn = choiceOf("prompts") === "own", { num = 0, numChats = 0, form } = mine.own ?? {};
  const limit = Number(parts.limit.value), typed = promptBox()?.value ?? "";
  if (!numChats) parts.flatten.checked = false;
  fill(parts, {
    herePrompt: { load: "random words", checkup: "three short prompts" }[question]
      ?? `the one on the page${typed ? `: ${oneLine(startOf(typed))}` : ", once it is typed"}`,
    ownPrompts: isOwn,
    perLineBox: !form && parts.paste.value.trim().includes("\n"),
    flattenBox: numChats > 0,
    leftOut: question === "study" && limit > 0 && limit < num ? `Racing ${limit} of them, evenly by kind; ${num - limit
    } left out. Raise the limit for more.` : "",
  });
}

const paste = () => choosePrompts(PASTED, parts.paste.value, !parts.perLine.checked);
parts.paste.addEventListener("input", paste);
parts.perLine.addEventListener("input", paste);
