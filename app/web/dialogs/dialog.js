// Shared by the dialogs of studies: choosing prompts, start, stop, frames, saving a result, copying a command.

import { MAX_FILE_CHARS, props, trigger, watch } from "../host.js";
import { copy, saveAs } from "../base/dom.js";
import { oneLine, plural, shellQuoted } from "../base/text.js";
import { openedBy, refs } from "./box.js";
import { promptsIn } from "./prompts.js";

const LOST_MS = 15000;      // the server's frames come every two seconds
const LOOK_MS = 3000;
export const PASTED = "pasted text";
const RUNS = ["asked", "waiting", "racing", "running"];
// source: {name, text, num} of the prompts, null if none are chosen; frame: the last one; servers: see your_servers.js.
export const study = { source: null, frame: null, heardMs: 0, state: "idle", servers: null };

const SAVED = /^[^]{0,200}"format":\s*"photofinish-(race|study|load)"/;
const OPENS = { race: "a recorded race; Open on the page shows it", study: "a saved study of prompts; "
  + "\u201cYour prompts\u201d opens it", load: "a saved result of servers under load; Under load, in \u201cYour "
  + "servers\u201d, opens it" };

export const runs = () => RUNS.includes(study.state);
export const isLost = () => runs() && Date.now() - study.heardMs > LOST_MS;

// isWhole: all of the text is one prompt, unless it is JSON. Twin of read_prompts in
// engine/studies/prompts/prompts.py; compared by test_the_dialog_understands_what_the_server_reads.
export function chosen(name, text, isWhole = false) {
  if (text.length > MAX_FILE_CHARS)
    return refuse(name, `has ${text.length} characters; at most ${MAX_FILE_CHARS} are allowed`);
  const found = promptsIn(name, text, isWhole), { num, how } = found;
  study.source = num ? { name, text, isWhole, ...found } : null;
  refs.found.textContent = `${oneLine(name).slice(0, 80)}: ${num ? plural(num, "prompt") + how : "no prompt"}.`;
  return undefined;
}

function refuse(name, why) {
  study.source = null;
  refs.found.textContent = `${oneLine(name).slice(0, 80)} ${why}.`;
}

// Take the file that was chosen. What this page saved is no prompts: returns its text if this dialog shows such files,
// of the kind "study" or "load".
export async function readOr(kind, file) {
  await read(file);
  const { name, text } = study.source ?? {}, its = SAVED.exec(text ?? "")?.[1];
  if (!its) return null;
  study.source = null;
  const isOwn = its === kind, what = isOwn ? `a saved ${kind === "study" ? "study" : "result"}` : OPENS[its];
  refs.found.textContent = `${oneLine(name).slice(0, 80)}: ${what}.`;
  return isOwn ? text : null;
}

async function read(file) {
  if (!file) return;
  if (file.size > 4 * MAX_FILE_CHARS) {
    refuse(file.name, `has ${file.size} bytes; at most ${MAX_FILE_CHARS} characters are allowed`);
    return;
  }
  try {
    chosen(file.name, new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer()));
  } catch {
    refuse(file.name, "is not UTF-8 text");
  }
}

export function start(order) {
  const servers = window.photofinishServers ?? null;
  Object.assign(study, { frame: null, state: "asked", heardMs: Date.now(), servers });
  trigger("submit", order);
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

// How a command gets these prompts: as the option's value, and what stands before the command. No prompts: null, "".
export function promptsOption(source) {
  if (!source) return { before: "", prompts: null };
  const { name, text, isWhole, isJson } = source, isOne = isWhole && !isJson;
  return !isOne && name !== PASTED ? { before: "", prompts: name } :
    { before: `printf %s ${shellQuoted(isOne ? JSON.stringify({ prompt: text }) : text)} | `, prompts: "-" };
}

// What a result of that kind is saved as: with the model's own name and the day.
export function fileName(kind, model, created) {
  const name = model.split("/").at(-1).replace(/[^\w.-]+/g, "-").slice(0, 60);
  return `${[kind, name, created?.slice(0, 10)].filter(Boolean).join("_")}.json`;
}

// A command on the study's servers: with their URLs if this tab's visitor named them, never with a key.
export function onServers(command, lanes) {
  const { urls = [], hasKey } = study.servers ?? {};
  const named = lanes.map((lane, i) => `--lane ${shellQuoted(`${lane}=openai:${urls.length === lanes.length ? urls[i] :
    `URL_${i + 1}`}`)}`);
  return `${hasKey ? 'OPENAI_API_KEY="$OPENAI_API_KEY" ' : ""}python -m engine ${command} ${named.join(" ")}`;
}

// does: {order, draw, heard(frame), looked(frame), take(file), result, command, answer}, take only where a file can be
// chosen; answer: names of what "Copy the answer" copies, a line each, where there is that button.
// button: selector of what opens the dialog; nameOf(result): of the saved file.
export function connect(does, button, nameOf) {
  refs.open?.addEventListener("click", () => refs.file.click());
  refs.file?.addEventListener("change", async () => {
    const [file] = refs.file.files;
    refs.file.value = "";
    await does.take(file);
  });
  refs.start.addEventListener("click", () => { start(does.order()); does.draw(); });
  refs.stop.addEventListener("click", () => { refs.stop.disabled = true; trigger("clear"); });
  refs.save.addEventListener("click", () =>
    saveAs(new Blob([JSON.stringify(does.result())], { type: "application/json" }), nameOf(does.result())));
  refs.copy.addEventListener("click", async () => {
    if (!await copy(refs.copy, does.command())) refs.copy.textContent = "This browser blocks copying";
  });
  refs.copyAnswer?.addEventListener("click", async () => {
    const lines = does.answer.map((name) => refs[name].textContent.trim()).filter(Boolean);
    if (!await copy(refs.copyAnswer, lines.join("\n"))) refs.copyAnswer.textContent = "This browser blocks copying";
  });
  openedBy(button, does.draw);
  setInterval(() => { if (isLost()) does.draw(); }, LOOK_MS);
  watch("value", () => {
    let frame = null;
    try { frame = JSON.parse(props.value); } catch { /* cut off */ }
    if (!frame) return;
    if (frame.state === "idle") return does.looked(frame);
    does.heard(frame);
    Object.assign(study, { state: frame.state, heardMs: Date.now(), frame });
    return does.draw();
  });
  does.draw();
}
