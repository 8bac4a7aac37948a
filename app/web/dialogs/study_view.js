// The dialog: prompts, start, stop, progress and results. Finished prompts are kept in this browser, so that a study
// can be resumed.

import { MAX_NEW_TOKENS, MAX_PROMPTS, MAX_FILE_CHARS, THRESHOLD, trigger } from "../host.js";
import { DEFAULT_TARGET, oneLine, optionWords, plural } from "../base/text.js";
import { connect, dialog, LOST_MS, refs } from "./dialog.js";
import { isDoubtful, MEANS, promptRows, SHOWN, strips, summaryRows, verdictWords } from "./results.js";

const KEPT_KEY = "photofinish.study";
const RUNS = ["waiting", "racing", "asked"];
// source: {name, text, num} of the prompts; frame: the last one; rows: by line and drafter; of: nameOf their prompts.
const study = { source: null, frame: null, rows: new Map(), of: "", heardMs: 0, state: "idle" };

const isLost = () => RUNS.includes(study.state) && Date.now() - study.heardMs > LOST_MS;

// Identifies prompts and limits, to find kept rows. The server decides whether these really belong to them.
function nameOf() {
  const { text } = study.source, whole = `${refs.limit.value} ${refs.length.value} ${text}`;
  let hash = 0;
  for (let i = 0; i < whole.length; i++) hash = (Math.imul(hash, 31) + whole.charCodeAt(i)) | 0;
  return `${hash} ${whole.length}`;
}

function keptRun() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT_KEY));
    return study.source && kept?.of === nameOf() && Array.isArray(kept.rows) ? kept : null;
  } catch { return null; /* forbidden, or not JSON */ }
}

function keep(frame) {
  try {
    if (frame.state === "finished") return localStorage.removeItem(KEPT_KEY);
    return localStorage.setItem(KEPT_KEY, JSON.stringify({ of: study.of, key: frame.key, ran_on: frame.ran_on,
      rows: [...study.rows.values()] }));
  } catch { return undefined; /* a browser may forbid it, or have no room */ }
}

function chosen(name, text) {
  const lines = text.split("\n").filter((line) => line.trim()).length;
  study.source = lines ? { name, text, num: lines } : null;
  if (text.length > MAX_FILE_CHARS) study.source = null;
  refs.found.textContent = text.length > MAX_FILE_CHARS ?
    `${oneLine(name).slice(0, 80)} has ${text.length} characters; at most ${MAX_FILE_CHARS} are allowed.` :
    `${oneLine(name).slice(0, 80)}: ${lines ? plural(lines, "prompt") : "no prompt"}.`;
  draw();
}

async function read(file) {
  if (!file) return;
  refs.paste.value = "";
  try {
    chosen(file.name, new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer()));
  } catch {
    study.source = null;
    refs.found.textContent = `${oneLine(file.name).slice(0, 80)} is not UTF-8 text.`;
    draw();
  }
}

function start() {
  const kept = keptRun();
  Object.assign(study, { frame: null, rows: new Map(), of: nameOf(), state: "asked", heardMs: Date.now() });
  trigger("submit", { name: study.source.name, text: study.source.text, limit: Number(refs.limit.value),
    max_new_tokens: Number(refs.length.value), kept: kept && JSON.stringify(kept) });
  draw();
}

function onFrame(text) {
  let frame;
  try { frame = JSON.parse(text); } catch { return; }
  Object.assign(study, { state: frame.state, heardMs: Date.now() });
  if (frame.key && study.frame?.key && (frame.key !== study.frame.key || frame.num_done < study.frame.num_done))
    study.rows.clear();
  study.frame = frame;
  const before = study.rows.size;
  for (const row of frame.rows ?? []) study.rows.set(`${row.line} ${row.drafter}`, row);
  if (frame.key && (study.rows.size !== before || !RUNS.includes(frame.state))) keep(frame);
  draw();
}

function draw() {
  const { frame, source, state } = study, runs = RUNS.includes(state), kept = runs ? null : keptRun();
  const rows = [...study.rows.values()], report = frame?.report ?? null;
  refs.start.disabled = runs || !source;
  const limit = Number(refs.limit.value);
  refs.leftOut.textContent = source && limit > 0 && limit < source.num ? `Racing ${limit} of them, evenly by kind; `
    + `${source.num - limit} left out. Raise the limit for more.` : "";
  refs.start.textContent = kept?.rows.length ? "Continue" : "Start";
  refs.stop.disabled = !runs;
  for (const name of ["open", "paste", "limit", "length"]) refs[name].disabled = runs;
  refs.goes.hidden = state === "idle";
  drawProgress(runs, rows);
  refs.result.hidden = !rows.length;
  if (!rows.length) return;
  refs.verdict.textContent = report ? verdictWords(report) : "The verdict comes at the end";
  refs.result.dataset.verdict = !report ? "" : isDoubtful(report) ? "unclear" : report.verdict;
  refs.reason.textContent = report ? oneLine(report.reason) : "Each dot is a finished prompt.";
  refs.strips.replaceChildren(...strips(rows, THRESHOLD));
  refs.strips.setAttribute("aria-label", `Speed-up over plain of ${plural(frame.num_done, "prompt")}, a dot each`);
  refs.means.textContent = report ? MEANS : "";
  refs.tableBox.hidden = !report;
  refs.aboveHead.textContent = `above ${THRESHOLD}×`;
  if (report) refs.table.replaceChildren(...summaryRows(report.summary));
  refs.allHead.textContent = `All ${plural(frame.num_done, "prompt")}, slowest first`;
  refs.all.replaceChildren(...promptRows(rows));
  refs.circumstances.textContent = [...(frame.ribbons ?? []), frame.circumstances].filter(Boolean).join(". ");
  refs.save.disabled = refs.copy.disabled = !report;
}

function drawProgress(runs, rows) {
  const { frame, state } = study, button = document.getElementById("page-study-button");
  const count = frame?.num_prompts ? `${frame.num_done} of ${plural(frame.num_prompts, "prompt")}` : "";
  refs.progress.hidden = !runs;
  if (count) refs.progress.value = frame.num_done / frame.num_prompts; else refs.progress.removeAttribute("value");
  const says = state === "asked" ? "Contacting the server." : state === "finished" ? "" : frame?.text ?? "";
  const lost = isLost();
  refs.says.textContent = [count && `${count} finished.`, lost ? "The server is not responding. Finished prompts are "
    + "saved: reload the page and choose the same prompts to continue." : oneLine(says)].filter(Boolean).join(" ");
  const left = runs && !lost ? frame?.left_s : null;
  refs.left.textContent = left ? `About ${left >= 90 ? `${Math.round(left / 60)} min` : `${Math.round(left)} s`} left.` : "";
  const disturbed = new Set(rows.filter((row) => row.disturbed).map((row) => row.line)).size;
  const faults = rows.filter((row) => row.fault).length;
  refs.caution.textContent = [frame?.note, !runs && count && frame.num_done < frame.num_prompts && rows.length ?
    "These are the results so far." : "", disturbed ? `The machine was disturbed in ${disturbed} of ${
    plural(frame.num_done, "race")}.` : "", faults ? `${plural(faults, "race")} failed; see \u201cAll prompts\u201d.` : ""]
    .filter(Boolean).join(" ");
  if (button) button.textContent = runs && count ? `Your prompts ${frame.num_done}/${frame.num_prompts}` : "Your prompts";
}

function commandOf({ target, drafters, params }) {
  const options = { target: target === DEFAULT_TARGET ? null : target, prompts: study.source.name, limit: refs.limit.value,
    drafter: drafters.join(","), temperature: params.temperature || null,
    "top-p": params.top_p === 1 ? null : params.top_p, seed: params.seed || null,
    "max-new-tokens": params.max_new_tokens };
  return `python -m engine study-prompts ${optionWords(options)}`;
}

refs.limit.max = MAX_PROMPTS;
refs.length.max = MAX_NEW_TOKENS;
refs.paste.addEventListener("input", () => chosen("prompts.txt", refs.paste.value));
for (const name of ["limit", "length"]) refs[name].addEventListener("input", draw);
dialog.addEventListener("dragover", (event) => event.preventDefault());
dialog.addEventListener("drop", async (event) => {
  event.preventDefault();
  if (!RUNS.includes(study.state)) await read(event.dataTransfer.files[0]);
});

function result() {
  const rows = [...study.rows.values()].map((row) => Object.fromEntries(SHOWN.map((name) => [name, row[name]])));
  return { schema: study.frame.schema, rows, ...study.frame.report };
}

connect({ read, start, draw, onFrame, result, command: () => commandOf(study.frame), isLost },
  "#page-study-button", "photofinish_study.json");
