// The dialog "Your prompts". Finished prompts are kept in this browser, so that a study can be resumed; its prompts and
// its result are kept in the tab, which shows them again when it is reloaded.

import { MAX_NEW_TOKENS, MAX_PROMPTS, SAYS } from "../host.js";
import { copy, makeButton, numberBox, typeInto, TYPED_MS } from "../base/dom.js";
import { remember, rememberedJson } from "../base/storage.js";
import { make, oneLine, optionWords, plural, settingsOptions, withTimes } from "../base/text.js";
import { draftWords } from "../base/words.js";
import { CHECKED, productionOf } from "../tabs/production.js";
import { canExamine, dialog, examine, leaveFor, refs } from "./box.js";
import { ask, chosen, connect, drawControls, fileName, onServers, PASTED, promptsOption, readOr, runs,
  start, study } from "./dialog.js";
import { heatMap } from "./heat.js";
import { promptAt } from "./prompts.js";
import { savesPage, saveWords } from "./report.js";
import { colourOf, loadWords, MEANS, partings, promptTable, raceWords, strips, textsWords, verdictWords } from "./results.js";
import { isWrong, knownOf, shortly, tell } from "./together.js";

const KEPT_KEY = "photofinish.study";
const PROMPTS_KEY = "photofinish.study.prompts";
const FRAME_KEY = "photofinish.study.frame";       // the last frame, without rows
const LOAD = "#page-load-button";
const OVER = ["finished", "stopped", "failed"];
const BUTTON = "#page-study-button";
const OTHERS = "These results are of the prompts and limits before. Start races those above.";
// rows: by line and drafter; of: nameOf their prompts; whyNot: why the chosen chats cannot be raced as they are.
const results = { rows: new Map(), of: "", whyNot: "" };

// Identifies prompts and limits, to find kept rows. The server decides whether these really belong to them.
function nameOf() {
  const { text, isWhole } = study.source, how = [refs.limit.value, refs.length.value, refs.flatten.checked, isWhole];
  const whole = `${how.join(" ")} ${text}`;
  let hash = 0;
  for (let i = 0; i < whole.length; i++) hash = (Math.imul(hash, 31) + whole.charCodeAt(i)) | 0;
  return `${hash} ${whole.length}`;
}

function keptRun() {
  const kept = rememberedJson(KEPT_KEY);
  return study.source && kept?.of === nameOf() && Array.isArray(kept.rows) ? kept : null;
}

// kept: what the server need not race again, if it belongs to the same study.
function order(kept = keptRun()) {
  const { name, text, isWhole } = study.source;
  const how = { limit: refs.limit.value, length: refs.length.value, flatten: refs.flatten.checked };
  Object.assign(results, { rows: new Map(), of: nameOf() });
  remember(FRAME_KEY, null, true);
  remember(PROMPTS_KEY, JSON.stringify({ name, text, isWhole, ...how }), true);
  return { name, text, whole: isWhole, flatten: refs.flatten.checked, limit: Number(refs.limit.value),
    max_new_tokens: Number(refs.length.value), kept: kept && JSON.stringify(kept) };
}

function heard(frame) {
  const { rows, of: name } = results, last = study.frame;
  if (frame.opened || (frame.key && last?.key && (frame.key !== last.key || frame.num_done < last.num_done)))
    rows.clear();
  if (frame.opened) results.of = "";
  const before = rows.size;
  for (const row of frame.report?.rows ?? frame.rows ?? []) rows.set(`${row.line} ${row.drafter}`, row);
  if (!frame.key || (rows.size === before && !OVER.includes(frame.state))) return;
  remember(KEPT_KEY, frame.state === "finished" ? null :
    JSON.stringify({ of: name, key: frame.key, ran_on: frame.ran_on, rows: [...rows.values()] }));
  remember(FRAME_KEY, JSON.stringify({ ...frame, rows: [] }), true);
}

// Show the study of this tab again, which the server may not even know any more.
function comeBack() {
  const source = rememberedJson(PROMPTS_KEY, true), frame = rememberedJson(FRAME_KEY, true);
  if (!source || !frame || (frame.report && !frame.report.says)) return;     // of an older version
  refs.limit.value = source.limit;
  refs.length.value = source.length;
  refs.flatten.checked = source.flatten;
  if (source.name === PASTED) {
    refs.paste.value = source.text;
    refs.perLine.checked = !source.isWhole;
  }
  chosen(source.name, source.text, source.isWhole);
  const isOver = OVER.includes(frame.state), text = "Interrupted: the page was loaded again, or restarted.";
  Object.assign(study, { state: isOver ? frame.state : "stopped", frame: isOver ? frame : { ...frame, text } });
  results.of = nameOf();
  for (const row of frame.report?.rows ?? keptRun()?.rows ?? []) results.rows.set(`${row.line} ${row.drafter}`, row);
}

// Lines whose race was disturbed.
const disturbedLines = () => new Set([...results.rows.values()].filter((row) => row.disturbed).map((row) => row.line));

// Race them again; keep the other rows.
function raceAgain() {
  const lines = disturbedLines(), { key, ran_on } = study.frame;
  const rows = [...results.rows.values()].filter((row) => !lines.has(row.line));
  start(order({ key, ran_on, rows }));
  draw();
}

// Servers have their own commands, and without a gain nobody needs one.
const isWorth = (report) => report?.best && report.best.k !== null
  && (report.verdict === "ship" || report.best.median_speedup >= SAYS.threshold);

function looked({ text }) {
  results.whyNot = text;
  draw();
}

// The prompts on which servers differed, as JSON lines: those are what a check-up has to look at.
function differing(rows) {
  const lines = isOwn() ? rows.filter(({ ways }) => ways).map(({ line }) => line) : [];
  const texts = lines.map((line) => promptAt(study.source, line, refs.flatten.checked));
  return texts.length && texts.every((text) => text !== null) ? { differ: texts.map((prompt) =>
    JSON.stringify({ prompt })).join("\n"), num: texts.length } : {};
}

function draw() {
  const { frame, source } = study, kept = runs() ? null : keptRun();
  const rows = [...results.rows.values()], report = frame?.report ?? null, best = report?.best ?? null;
  const id = serversOf(), load = knownOf("load", id), check = knownOf("checkup", id);
  const temperature = frame?.params?.temperature ?? null;
  if (best && id && !runs()) tell("study", id, { model: report.target, verdict: report.verdict,
    median: best.median_speedup, interval: best.interval, num: frame.num_done, length: frame.params.max_new_tokens,
    temperature, others: best.num_other_texts });
  drawSource(source);
  window.photofinishPrompts =       // for the check-up
    source && { ...source, flatten: refs.flatten.checked, ...differing(rows) };
  refs.start.textContent = kept?.rows.length ? "Continue" : "Start";
  drawProgress(rows);
  refs.start.disabled ||= !source;
  refs.result.hidden = !rows.length;
  if (!rows.length) return;
  refs.opened.textContent = frame.opened ? frame.text : runs() || isOwn() ? "" : OTHERS;
  refs.opened.hidden = !refs.opened.textContent;
  refs.scope.textContent = oneLine(report?.said.scope ?? frame.target).slice(0, 300);
  refs.verdict.textContent = report ? verdictWords(report, check, temperature) : "The verdict comes at the end";
  refs.result.dataset.verdict = report ? colourOf(report, load, check, temperature) : "";
  refs.short.textContent = shortly(id).join("\n");
  refs.money.textContent = report?.says.then ?? "";
  refs.load.textContent = best && best.k === null ? loadWords(load, check) : "";
  refs.here.textContent = withTimes(report?.says.here ?? "");
  refs.reason.textContent = report ? withTimes(report.reason) :
    "Each dot is a finished prompt.";
  refs.texts.textContent = report ? textsWords(report, temperature, check) : "";
  refs.partings.replaceChildren(...partings(rows));
  refs.measureLoad.hidden = !refs.load.textContent || Boolean(load) || !document.querySelector(LOAD);
  refs.examine.hidden = !report || runs() || isWrong(check) || !refs.partings.firstChild || !isOwn() || !canExamine();
  refs.serve.replaceChildren(...(isWorth(report) ? commands(report.target, best) : []));
  refs.strips.replaceChildren(...strips(rows, SAYS.threshold, best));
  refs.strips.setAttribute("aria-label", `Speed-up over plain of ${plural(frame.num_done, "prompt")}, a dot each`);
  refs.means.textContent = report ? MEANS
    + (rows.some((row) => row.loops || row.disturbed) ? " Hollow dots: the text repeats itself, or the machine was "
    + "disturbed." : "") : "";
  refs.tableBox.hidden = !report;
  refs.ofDrafts.hidden = !rows.some(({ mean_acceptance_length: length }) => typeof length === "number");
  const [drafters, kinds] = report ? heatMap(report.summary, raceWords) : [null, []];
  refs.heads.replaceChildren(...(drafters ? [drafters] : []));
  refs.table.replaceChildren(...kinds);
  refs.allHead.textContent = `All ${plural(frame.num_done, "prompt")}, slowest first`;
  const [head, all] = promptTable(rows, best, (line) => racing(line));
  refs.allColumns.replaceChildren(head);
  refs.all.replaceChildren(...all);
  refs.circumstances.textContent = report ? [...(report.said.ribbons ?? []), report.said.circumstances].filter(Boolean)
    .map(oneLine).join(". ") : "";
  refs.save.disabled = refs.savePage.disabled = refs.copyAnswer.disabled = !report;
  refs.savePage.textContent = saveWords("study");
  refs.copy.disabled = !report || !isOwn();
  const num = disturbedLines().size;
  refs.again.hidden = !report || runs() || !num || !isOwn();
  refs.again.textContent = `Race ${plural(num, "disturbed prompt")} again`;
}

// The id of the two servers that the results are of; null if there are none, or more.
function serversOf() {
  const { report, opened, lanes, ran_on: ranOn } = study.frame ?? {};
  return report?.said.on_servers && lanes?.length === 2 && !opened ? ranOn?.machine : null;
}

// Whether the results are of the prompts that are chosen now.
const isOwn = () => study.source !== null && results.of === nameOf();

// What was understood of the chosen text, and the choices that it leaves.
function drawSource(source) {
  const limit = Number(refs.limit.value), { num = 0, numChats = 0, isJson } = source ?? {};
  refs.leftOut.textContent = source && limit > 0 && limit < num ? `Racing ${limit} of them, evenly by kind; `
    + `${num - limit} left out. Raise the limit for more.` : "";
  refs.perLineBox.hidden = source?.name !== PASTED || isJson || !source.text.trim().includes("\n");
  refs.flattenBox.hidden = !numChats;
  if (!numChats) refs.flatten.checked = false;
  refs.noTemplate.textContent = numChats && !refs.flatten.checked ? oneLine(results.whyNot) : "";
}

// A function that races the prompt of that line on the page, with the study's length; null if it is not known here.
function racing(line) {
  const text = isOwn() ? promptAt(study.source, line, refs.flatten.checked) : null;
  const box = document.querySelector("#page-prompt textarea");
  return text === null || !box ? null : () => {
    dialog.close();
    typeInto(box, text);
    typeInto(numberBox("Maximum length"), refs.length.value);
    setTimeout(() => document.getElementById("page-race-button")?.click(), TYPED_MS);
  };
}

// The commands of the verdict's drafter, with a button each.
function commands(target, best) {
  const params = { max_new_tokens: 0, temperature: 0, top_p: 1, top_k: 0, seed: 0, stop: [] };
  const { servers } = productionOf({ model: { name: target }, prompt: { text: "" }, spec: { params } }, best);
  const made = servers.filter(({ command }) => command).map(({ name, version, command }) => {
    const line = make("p", "ps-serve", `${name} ${version}, checked ${CHECKED} `);
    line.append(makeButton("pf-button", "Copy", ({ target: button }) => copy(button, command)),
      make("code", "", command));
    return line;
  });
  return made.length ? [make("p", "", `To serve it, ${draftWords(best)}:`), ...made] : [];
}

function drawProgress(rows) {
  const { frame, state } = study, { num_done: done, num_prompts: all } = frame ?? {};
  drawControls(["start", "open", "paste", "limit", "length", "perLine", "flatten"], BUTTON,
    done < all ? `Your prompts ${done}/${all}` : "Your prompts");
  if (all) refs.progress.value = done / all; else refs.progress.removeAttribute("value");
  const says = state === "asked" ? "Contacting the server." : state === "finished" ? "" : frame?.text;
  refs.says.textContent = frame?.opened ? "" :
    [all && `${done} of ${plural(all, "prompt")} finished.`, oneLine(says ?? "")].filter(Boolean).join(" ");
  const left = runs() ? frame?.left_s : null;
  refs.left.textContent = !left ? "" :
    `About ${left >= 90 ? `${Math.round(left / 60)} min` : `${Math.round(left)} s`} left.`;
  const disturbed = new Set(rows.filter((row) => row.disturbed).map((row) => row.line)).size;
  const faults = rows.filter((row) => row.fault).length;
  refs.caution.textContent = [frame?.note, !runs() && done < all && rows.length && "These are the results so far.",
    disturbed && `The machine was disturbed in ${disturbed} of ${plural(done, "race")}.`,
    faults && `${plural(faults, "race")} failed; see \u201cAll prompts\u201d.`].filter(Boolean).join(" ");
}

function command() {
  const { drafters, params, lanes, chat, same_device: isInTurns, report } = study.frame;
  const { target, ...settings } = settingsOptions({ ...study.frame, ...params });
  const { before, prompts } = promptsOption(study.source), isOnServers = report.said.on_servers;
  const options = { ...(isOnServers ? { model: report.target } : { target }), prompts, limit: refs.limit.value,
    drafter: isOnServers ? null : drafters.join(","), ...settings };
  return [before + (isOnServers ? onServers("study-prompts", lanes) : "python -m engine study-prompts"),
    optionWords(options), isOnServers && chat && "--chat", isOnServers && isInTurns && "--same-device",
    refs.flatten.checked && "--flatten"].filter(Boolean).join(" ");
}

refs.limit.max = MAX_PROMPTS;
refs.length.max = MAX_NEW_TOKENS;
refs.length.value = Math.min(refs.length.value, MAX_NEW_TOKENS);
// A saved study is shown; anything else is prompts.
async function take(file) {
  const saved = await readOr("study", file);
  if (study.source?.name !== PASTED) refs.paste.value = "";
  if (saved) {
    results.rows = new Map();
    start({ saved });
  } else look();
  draw();
}

// Whether chosen chats can be raced.
function look() {
  const { name, text, isWhole, numChats } = study.source ?? {};
  results.whyNot = "";
  if (numChats) ask({ isShort: true, heard: looked, refused: (words) => looked({ text: words }), order: { name, text,
    whole: isWhole, limit: MAX_PROMPTS, max_new_tokens: 1, look: true } });
}

const paste = () => { chosen(PASTED, refs.paste.value, !refs.perLine.checked); draw(); };
refs.paste.addEventListener("input", paste);
refs.perLine.addEventListener("change", paste);
refs.again.addEventListener("click", raceAgain);
for (const name of ["limit", "length", "flatten"]) refs[name].addEventListener("input", draw);
dialog.addEventListener("dragover", (event) => event.preventDefault());
dialog.addEventListener("drop", (event) => {
  event.preventDefault();
  if (!runs()) take(event.dataTransfer.files[0]);
});
refs.measureLoad.addEventListener("click", () => leaveFor(LOAD));
refs.examine.addEventListener("click", examine);

comeBack();
const answer = ["scope", "verdict", "short", "load", "reason", "texts", "money", "here", "circumstances"];
const nameOfFile = ({ target, said }) => fileName("study", target, said.created);
savesPage("study", { draw, servers: serversOf, nameOf: () => nameOfFile(study.frame.report) });
connect({ run: "study", order, draw, heard, kind: "study", take, took: look, result: () => study.frame.report, command,
  answer }, BUTTON, nameOfFile);
