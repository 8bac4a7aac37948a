// The dialog: inputs, start, stop, progress and results. Finished levels are kept in this browser, so that a study can
// be resumed.

import { MAX_NEW_TOKENS, MAX_REQUESTS, MAX_FILE_CHARS, MAX_WORDS, SEPARATE, trigger } from "../host.js";
import { oneLine, optionWords, plural, sentence, shellQuoted } from "../base/text.js";
import { curve, DRAWN, headRow, legend, levelRows, METRICS, outcome } from "./curves.js";
import { connect, LOST_MS, refs } from "./dialog.js";

const KEPT_KEY = "photofinish.load";
const RUNS = ["waiting", "running", "asked"];
const TURNS = SEPARATE ? "The servers run at the same time." :
  "The servers take turns at each level, because they may share a device.";
// source: {name, text} of the file, or null for random words; frame: the last one.
const study = { source: null, frame: null, heardMs: 0, state: "idle" };

const isLost = () => RUNS.includes(study.state) && Date.now() - study.heardMs > LOST_MS;

// The server decides whether kept levels belong to this study.
function keptRun() {
  try {
    const kept = localStorage.getItem(KEPT_KEY);
    return Array.isArray(JSON.parse(kept)?.rows) ? kept : null;
  } catch { return null; /* forbidden, or not JSON */ }
}

function keep({ key, rows, begun, state }) {
  try {
    if (state === "finished" && !begun.length) return localStorage.removeItem(KEPT_KEY);
    return localStorage.setItem(KEPT_KEY, JSON.stringify({ key, rows, begun }));
  } catch { return undefined; /* a browser may forbid it, or have no room */ }
}

async function read(file) {
  if (!file) return;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    study.source = text.length > MAX_FILE_CHARS ? null : { name: file.name, text };
    const lines = text.split("\n").filter((line) => line.trim()).length;
    refs.found.textContent = study.source ? `${oneLine(file.name).slice(0, 80)}: ${plural(lines, "line")}.` :
      `${oneLine(file.name).slice(0, 80)} has ${text.length} characters; at most ${MAX_FILE_CHARS} are allowed.`;
  } catch {
    study.source = null;
    refs.found.textContent = `${oneLine(file.name).slice(0, 80)} is not UTF-8 text.`;
  }
  draw();
}

function start() {
  Object.assign(study, { frame: null, state: "asked", heardMs: Date.now() });
  trigger("submit", { users: refs.users.value, requests: Number(refs.requests.value),
    max_new_tokens: Number(refs.length.value), dollars: refs.dollars.value === "" ? null : Number(refs.dollars.value),
    words: Number(refs.words.value), name: study.source?.name ?? null, text: study.source?.text ?? null,
    kept: keptRun() });
  draw();
}

function onFrame(words) {
  let frame;
  try { frame = JSON.parse(words); } catch { return; }
  Object.assign(study, { state: frame.state, heardMs: Date.now(), frame });
  if (frame.key) keep(frame);
  draw();
}

function draw() {
  const { frame, state } = study, runs = RUNS.includes(state), report = frame?.report ?? null;
  refs.start.disabled = runs;
  refs.stop.disabled = !runs;
  for (const name of ["users", "requests", "length", "dollars", "words", "open", "forget"]) refs[name].disabled = runs;
  refs.words.disabled ||= study.source !== null;
  refs.forget.hidden = study.source === null;
  refs.goes.hidden = state === "idle";
  refs.says.textContent = isLost() ? "The server is not responding. Finished levels are saved: reload the page and "
    + "start the same study to continue." : state === "asked" ? "Contacting the server." : oneLine(frame?.text ?? "");
  refs.progress.hidden = !runs;
  refs.progress.value = frame?.share ?? 0;
  const button = document.getElementById("page-load-button");
  if (button) button.textContent = runs && frame ? `Under load ${Math.floor(100 * (frame.share ?? 0))} %` : "Under load";
  refs.result.hidden = !report;
  if (!report) return;
  const metrics = Object.keys(METRICS).filter((name) => report.levels.some((row) => typeof row[name] === "number"));
  refs.said.textContent = outcome(report, frame.lanes, !runs);
  refs.charts.replaceChildren(legend(frame.lanes), ...DRAWN.map((name) => curve(name, report.levels, frame.lanes)));
  refs.heads.replaceChildren(headRow(metrics));
  refs.levels.replaceChildren(...levelRows(report, frame.lanes, metrics));
  refs.notes.textContent = notes(report.levels);
  refs.save.disabled = refs.copy.disabled = runs;
}

function notes(levels) {
  const failed = levels.filter((row) => row.num_errors).map((row) => sentence(`${oneLine(row.lane)} with ${
    plural(row.concurrency, "user")}: ${row.num_errors} of ${row.num_requests} requests failed; the first: ${
    oneLine(row.fault ?? "")}`));
  return [...failed,
    levels.some((row) => row.asked_before) ? "* repeated after an interruption; the server may have cached these prompts."
      : "", levels.some((row) => row.acceptance_from === "server") ?
      "Tokens per step come from the servers' own counters, which cover all their users." : "",
    "Geometric means over the levels that every server has finished."].filter(Boolean).join(" ");
}

function commandOf(frame) {
  const lanes = frame.lanes.map((lane) => `--lane ${shellQuoted(lane)}=openai:URL`).join(" ");
  const options = { model: frame.model, concurrency: refs.users.value.replaceAll(" ", ""), requests: refs.requests.value,
    data: study.source?.name ?? `synthetic:${refs.words.value},${refs.length.value}`,
    "max-new-tokens": study.source ? refs.length.value : null, dollars: refs.dollars.value || null,
    temperature: frame.temperature || null, seed: frame.seed || null };
  return ["python -m engine study", lanes, optionWords(options), ...(frame.chat ? ["--chat"] : []),
    ...(frame.separate ? ["--separate"] : [])].join(" ");
}

refs.turns.textContent = TURNS;
refs.requests.max = MAX_REQUESTS;
refs.length.max = MAX_NEW_TOKENS;
refs.words.max = MAX_WORDS;
refs.forget.addEventListener("click", () => { study.source = null; refs.found.textContent = ""; draw(); });
connect({ read, start, draw, onFrame, result: () => study.frame.report, command: () => commandOf(study.frame),
  isLost }, "#page-load-button", "photofinish_load.json");
draw();
