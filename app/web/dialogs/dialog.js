// Shared by the dialogs of studies: choosing prompts, start, stop, frames, saving a result, copying a command.

import { MAX_FILE_CHARS } from "../host.js";
import { copy, saveAs } from "../base/dom.js";
import { isTakenBy, OPENS, savedKind } from "../base/saved.js";
import { oneLine, plural, sentence, shellQuoted } from "../base/text.js";
import { open, openedBy, refs } from "./box.js";
import { promptsIn } from "./prompts.js";

export const PASTED = "pasted text";
const RUNS = ["asked", "waiting", "racing", "running"];
// run: what the page's stream calls it; heard: gets its frames; source: {name, text, num} of the prompts, null if none
// are chosen; isTaken: they are those of the other dialog; seen: its prompts that were taken or forgotten; frame: the
// last one; servers: see your_servers.js.
export const study = { run: "", heard: () => {}, source: null, isTaken: false, seen: null, frame: null, state: "idle",
  servers: null };
const ownSources = window.photofinishSources ??= {};      // by kind of dialog, a function

const WHERE = { race: "a recorded race; Open on the page shows it", study: "a saved study of prompts; "
  + "\u201cYour prompts\u201d opens it", load: "a saved result of servers under load; Under load, in \u201cYour "
  + "servers\u201d, opens it" };

export const runs = () => RUNS.includes(study.state);

// isWhole: all of the text is one prompt, unless it is JSON. Twin of read_prompts in
// engine/studies/prompts/prompts.py; compared by test_the_dialog_understands_what_the_server_reads.
export function chosen(name, text, isWhole = false) {
  if (text.length > MAX_FILE_CHARS)
    return refuse(name, `has ${text.length} characters; at most ${MAX_FILE_CHARS} are allowed`);
  const prompts = promptsIn(name, text, isWhole), { num, how } = prompts;
  study.source = num ? { name, text, isWhole, ...prompts } : null;
  study.isTaken = false;
  refs.found.textContent = `${oneLine(name).slice(0, 80)}: ${num ? plural(num, "prompt") + how : "no prompt"}.`;
  return undefined;
}

function refuse(name, why) {
  study.source = null;
  refs.found.textContent = `${oneLine(name).slice(0, 80)} ${why}.`;
  return null;
}

// Take the chosen file. A file that this page saved holds no prompts: returns its text if this dialog shows its kind,
// "study" or "load"; otherwise the other dialog opens it.
export async function readOr(kind, file) {
  const text = file ? await textOf(file) : null, saved = savedKind(text ?? "");
  if (text === null || (saved && saved !== kind && isTakenBy(saved, file))) return null;
  chosen(file.name, text);
  if (!saved || !study.source) return null;
  study.source = null;
  const isOwn = saved === kind, what = isOwn ? `a saved ${kind === "study" ? "study" : "result"}` : WHERE[saved];
  refs.found.textContent = `${oneLine(file.name).slice(0, 80)}: ${what}.`;
  return isOwn ? text : null;
}

async function textOf(file) {
  if (file.size > 4 * MAX_FILE_CHARS)
    return refuse(file.name, `has ${file.size} bytes; at most ${MAX_FILE_CHARS} characters are allowed`);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    return refuse(file.name, "is not UTF-8 text");
  }
}

// What was chosen in the other dialog; null if nothing was.
const others = (kind) => Object.keys(ownSources).filter((name) => name !== kind).map((name) => ownSources[name]())[0]
  ?? null;

// Take those prompts, unless this dialog has some of its own.
function takePrompts({ kind, took }) {
  const source = others(kind);
  if (!source || source === study.seen || runs() || (study.source && !study.isTaken)) return;
  chosen(source.name, source.text, source.isWhole);
  Object.assign(study, { isTaken: true, seen: source });
  took?.();
}

export function forget(kind) {
  Object.assign(study, { source: null, seen: others(kind) });
  refs.found.textContent = "";
}

export function start(order) {
  const servers = window.photofinishServers ?? null;
  Object.assign(study, { frame: null, state: "asked", servers });
  ask({ order, heard: study.heard, refused: (words) =>
    study.heard({ rows: [], ...study.frame, state: "failed", text: sentence(oneLine(words)) }) });
}

// The page's stream runs it: see app/web/board/stream.js.
export function ask(asked) {
  document.dispatchEvent(new CustomEvent("photofinish:run", { detail: { run: study.run, ...asked } }));
}

// The parts that all dialogs have. inputs: names of what cannot be changed while a study runs; label: of the button
// that opens the dialog.
export function drawControls(inputs, button, label) {
  for (const name of inputs) refs[name].disabled = runs();
  refs.stop.disabled = !runs();
  refs.goes.hidden = study.state === "idle";
  refs.progress.hidden = !runs();
  for (const opener of document.querySelectorAll(button)) opener.textContent = label;
}

// The text of prompts where it is read without `isWhole`.
export const plainText = ({ text, isWhole, isJson }) => (isWhole && !isJson ? JSON.stringify({ prompt: text }) : text);

// How a command gets these prompts: the option's value, and what goes before the command. No prompts: null, "".
export function promptsOption(source) {
  if (!source) return { before: "", prompts: null };
  const text = plainText(source);
  return text === source.text && source.name !== PASTED ? { before: "", prompts: source.name } :
    { before: `printf %s ${shellQuoted(text)} | `, prompts: "-" };
}

// What a result of that kind is saved as: with the model's own name and the minute.
export function fileName(kind, model, created) {
  const name = model.split("/").at(-1).replace(/[^\w.-]+/g, "-").slice(0, 60);
  return `${[kind, name, created?.slice(0, 16).replace(/[ T:]/g, "-")].filter(Boolean).join("_")}.json`;
}

// A command on the study's servers: with their URLs if this tab's visitor named them, never with a key.
export function onServers(command, lanes) {
  const { urls = [], hasKey } = study.servers ?? {};
  const named = lanes.map((lane, i) => `--lane ${shellQuoted(`${lane}=openai:${urls.length === lanes.length ? urls[i] :
    `URL_${i + 1}`}`)}`);
  return `${hasKey ? 'OPENAI_API_KEY="$OPENAI_API_KEY" ' : ""}python -m engine ${command} ${named.join(" ")}`;
}

// does: {run, order, draw, heard(frame), kind, take(file), took, result, command, answer}, kind ("study" or
// "load") and take only where a file can be chosen; took: the other dialog's prompts were taken; answer: names of what
// "Copy the answer" copies, one line each, if there is that button.
// button: selector of what opens the dialog; nameOf(result): of the saved file.
export function connect(does, button, nameOf) {
  refs.open?.addEventListener("click", () => refs.file.click());
  refs.file?.addEventListener("change", async () => {
    const [file] = refs.file.files;
    refs.file.value = "";
    await does.take(file);
  });
  refs.start.addEventListener("click", () => { start(does.order()); does.draw(); });
  refs.stop.addEventListener("click", () => {
    refs.stop.disabled = true;
    document.dispatchEvent(new CustomEvent("photofinish:stop", { detail: does.run }));
  });
  refs.save.addEventListener("click", () =>
    saveAs(new Blob([JSON.stringify(does.result())], { type: "application/json" }), nameOf(does.result())));
  refs.copy.addEventListener("click", async () => {
    if (!await copy(refs.copy, does.command())) refs.copy.textContent = "This browser blocks copying";
  });
  refs.copyAnswer?.addEventListener("click", async () => {
    const lines = does.answer.map((name) => refs[name].textContent.trim()).filter(Boolean);
    if (!await copy(refs.copyAnswer, lines.join("\n"))) refs.copyAnswer.textContent = "This browser blocks copying";
  });
  openedBy(button, () => { if (does.kind) takePrompts(does); does.draw(); });
  if (does.kind) ownSources[does.kind] = () => (study.isTaken ? null : study.source);
  document.addEventListener(OPENS, (event) => {
    const { kind, file } = event.detail;
    if (kind !== does.kind) return undefined;
    event.preventDefault();
    for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
    open();
    if (!runs()) return does.take(file);
    refs.found.textContent = `${oneLine(file.name).slice(0, 80)}: to open it, stop this or wait for its end.`;
    return undefined;
  });
  Object.assign(study, { run: does.run, heard: (frame) => {
    does.heard(frame);
    Object.assign(study, { state: frame.state, frame });
    does.draw();
  } });
  does.draw();
}
