// "Try it on yours": what, on which prompts, which question; and one page with all that is known about it. All of it is
// drawn from what is chosen and from the results, each section by a function.

import { ALLOWED } from "../host.js";
import { copyOn, OPENS, saveAs } from "../base/dom.js";
import { cut, fill, oneLine, sentence } from "../base/text.js";
import { on, root, S } from "../board/screen.js";
import { isIdle, run, stop } from "../board/stream.js";
import { choiceOf, dialog, openDialog, parts, raceThere, sections, setChoice } from "./box.js";
import { checkup } from "./checkup.js";
import { load } from "./load.js";
import { drawPrompts, promptAt, promptSource, takeFile } from "./own_prompts.js";
import { reportPage } from "./report.js";
import { KINDS, latest, results, running, saidOfServers, shortly, shownKinds, subjectOf } from "./results.js";
import { comeBackToStudy, study } from "./study.js";
import { doubtNamed, drawWhat, isOneServer, namedServers, NEEDS_TWO, useNamed } from "./what.js";

const QUESTIONS = { study, load, checkup };
const RACE = "One prompt, live on the page: how much faster is it, and are both texts the same?";
const DOOR = "Try it on yours";
// isBegun: a model or servers are being named; num: of files opened; says: why the last one was not
const door = { isBegun: false, num: 0, says: "" };

const needsTwo = (question) => QUESTIONS[question]?.needsTwo ?? true;

// Why Start would do nothing; "" if it would.
function whyNotNow() {
  const question = choiceOf("question"), what = choiceOf("what"), busy = running();
  if (busy) return "";
  if (what !== "here" && !ALLOWED.own) return "Only this page's owner can do that; the command above opens your own.";
  if (question === "load" && !ALLOWED.own)
    return "Visitors of this page may not put servers under load: on a page of your own you may.";
  if (question !== "race" && question !== "load" && !ALLOWED.studies)
    return "This page's operator has switched studies and check-ups off.";
  if (question === "load" && what === "model")
    return "Only servers can be put under load: choose \u201cmy servers\u201d.";
  if (what === "servers" && needsTwo(question) && isOneServer()) return NEEDS_TWO;
  if (choiceOf("prompts") === "own" && !promptSource()) return "Choose a file of prompts, or paste some.";
  if (question === "study" && !promptSource()) return "The page has no prompt yet.";
  if (question === "race" && choiceOf("prompts") === "own" && firstPrompt() === null)
    return "The first of these prompts is a chat, which one race cannot take: flatten it, or ask whether it pays.";
  return isIdle() ? "" : "A race of this tab is running: stop it first.";
}

// The first of the visitor's own prompts; null for a chat.
function firstPrompt() {
  const source = promptSource(), [line] = source?.entries.keys() ?? [];
  return source ? promptAt(source, line) : null;
}

async function begin() {
  const question = choiceOf("question"), what = choiceOf("what");
  if (whyNotNow() || door.isBegun) return;
  door.isBegun = true;
  draw();
  try {
    if (what !== "here" && !await useNamed(what, needsTwo(question))) return;
  } finally {
    door.isBegun = false;
    draw();
  }
  if (question === "race") raceThere(choiceOf("prompts") === "own" ? firstPrompt() : null);
  else ask(question);
}

function ask(kind, order = null) {
  const result = results[kind], { sourceNow } = QUESTIONS[kind];
  Object.assign(result, { frame: null, state: "asked", source: sourceNow(), servers: namedServers(), is: null });
  latest.current = kind;
  const heard = (frame) => showFrame(kind, frame);
  door.says = "";
  run({ run: kind, order: order ?? QUESTIONS[kind].order(), heard, refused: (words) => {
    doubtNamed();
    heard({ rows: [], ...result.frame, state: "failed", text: sentence(oneLine(words)) });
  } });
  draw();
  parts.goes.scrollIntoView({ block: "start" });         // the answer comes below it
}

function showFrame(kind, frame) {
  const result = results[kind];
  QUESTIONS[kind].heard?.(frame);
  Object.assign(result, { state: frame.state, frame, is: frame.is ?? subjectOf(kind, frame) });
  draw();
}

// Show what a file of results holds. All of it is of the same model or servers.
function openSaved(file, text) {
  const is = `file ${door.num += 1}`;
  return run({ run: "open", isShort: true, order: { saved: text }, refused: (words) => sayOfFile(file, sentence(words)),
    heard: (frame) => {
      latest.current = frame.kind;
      Object.assign(results[frame.kind], { source: null, about: "" });
      showFrame(frame.kind, { ...frame, is });
    } });
}

function sayOfFile({ name }, words) {
  door.says = oneLine(`${cut(name, 80)}: ${words}`);
  draw();
}

// A file of prompts, or a saved result.
async function take(file) {
  openDialog();
  if (running()) return sayOfFile(file, "to open it, stop this or wait for its end.");
  const saved = await takeFile(file);
  if (saved) return openSaved(file, saved);
  if (promptSource() && choiceOf("question") === "race") setChoice("question", "study");
  return draw();
}

function draw() {
  drawWhat();
  drawPrompts(choiceOf("question"));
  drawQuestion();
  drawGoes();
  drawResults();
}

function drawQuestion() {
  const kind = choiceOf("question"), question = QUESTIONS[kind], needs = question?.needs() ?? {};
  const isBusy = running() !== null || door.isBegun, why = whyNotNow();
  fill(parts, { studySettings: kind === "study", loadSettings: kind === "load", about: question?.about ?? RACE,
    wordsBox: choiceOf("prompts") === "here", need: needs.need ?? "", whyNot: door.says || why });
  parts.need.className = kind === "load" ? "ps-wide ps-caution" : "ps-wide pf-note";
  for (const step of ["whatStep", "promptsStep", "questionStep"]) parts[step].disabled = isBusy;
  parts.start.textContent = kind === "race" ? "Race" : question.isResumed?.() ? "Continue" : "Start";
  parts.start.hidden = running() !== null;
  parts.start.disabled = isBusy || why !== "";
  parts.stop.hidden = running() === null;
}

function drawGoes() {
  const kind = running() ?? latest.current, result = results[kind], isGoing = running() !== null;
  const { share, brief, says, left } = QUESTIONS[kind].goes();
  fill(parts, { goes: isGoing || (result.state !== "idle" && !result.frame?.opened && says !== ""), progress: isGoing,
    goesSays: result.state === "asked" ? "Contacting the server." : says, left: isGoing ? left : "" });
  if (share === null) parts.progress.removeAttribute("value"); else parts.progress.value = share;
  for (const opener of document.querySelectorAll("#page-yours-button"))
    opener.textContent = brief ? `${DOOR}: ${brief}` : DOOR;
}

const isDrawn = (kind) => QUESTIONS[kind].isThere() && results[kind].frame !== null;
const drawnKinds = () => shownKinds().filter(isDrawn);
// Of another model, or of other servers.
const earlierKinds = () => KINDS.filter((kind) => isDrawn(kind) && !shownKinds().includes(kind));

function drawResults() {
  const kinds = drawnKinds(), said = saidOfServers(QUESTIONS);
  const isOpened = kinds.some((kind) => results[kind].frame.opened), [earlier] = earlierKinds();
  fill(parts, { results: kinds.length > 0, short: shortly(said).join("\n"), keep: running() === null,
    copy: !isOpened && kinds.some((kind) => QUESTIONS[kind].isOwn()),
    opened: isOpened ? results[kinds[0]].frame.text : "",
    earlier: earlier ? `Show: ${sections[earlier].question.textContent}` : "" });
  for (const kind of KINDS) {
    const { section } = sections[kind], isThere = kinds.includes(kind);
    section.hidden = !isThere;
    if (!isThere) continue;
    fill(sections[kind], QUESTIONS[kind].values(said));
    section.dataset.verdict = QUESTIONS[kind].colour(said);
  }
}

// The name of a file: with the model's own name and the minute.
function resultName(suffix) {
  const kinds = drawnKinds(), [kind] = kinds, [model, created] = QUESTIONS[kind].nameOf(results[kind].frame.report);
  const own = model.split("/").at(-1).replace(/[^\w.-]+/g, "-").slice(0, 60);
  const names = [kinds.length > 1 ? "results" : kind, own, created?.slice(0, 16).replace(/[ T:]/g, "-")];
  return `${names.filter(Boolean).join("_")}.${suffix}`;
}

// What Save saves: a report as a command prints it, with what was asked for; or several.
function toSave() {
  const reports = drawnKinds().map((kind) => ({ ...results[kind].frame.report, asked: QUESTIONS[kind].asked() }));
  return reports.length > 1 ? { format: "photofinish-results", results: reports } : reports[0];
}

function answerWords() {
  const linesOf = (kind) => [...QUESTIONS[kind].answer.map((name) => sections[kind][name].textContent),
    QUESTIONS[kind].evidence?.() ?? ""];
  const lines = [parts.short.textContent, ...drawnKinds().flatMap(linesOf)];
  return lines.map((line) => line.trim()).filter(Boolean).join("\n");
}

parts.form.addEventListener("input", () => { door.says = ""; draw(); });
parts.form.addEventListener("submit", (event) => { event.preventDefault(); begin(); });
parts.stop.addEventListener("click", () => stop(running()));
parts.file.addEventListener("change", () => {
  const [file] = parts.file.files;
  parts.file.value = "";
  if (file) take(file);
});
for (const name of ["open", "openSaved"]) parts[name].addEventListener("click", () => parts.file.click());
dialog.addEventListener("drop", (event) => {
  const [file] = event.dataTransfer.files;
  if (!file) return;              // words, dragged into a box
  event.preventDefault();
  take(file);
});
parts.save.addEventListener("click", () =>
  saveAs(new Blob([JSON.stringify(toSave())], { type: "application/json" }), resultName("json")));
parts.savePage.addEventListener("click", () => {
  draw();
  const short = parts.short.textContent.split("\n").filter(Boolean);
  const page = reportPage(drawnKinds().map((kind) => sections[kind]), short);
  saveAs(new Blob([page], { type: "text/html" }), resultName("html"));
});
copyOn(parts.copy, () => drawnKinds().map((kind) => QUESTIONS[kind]).filter((question) => question.isOwn())
  .map((question) => question.command()).join("\n"));
copyOn(parts.copyAnswer, answerWords);
parts.earlier.addEventListener("click", () => {
  [latest.current] = earlierKinds();
  draw();
});
for (const [kind, name, next] of [["study", "measureLoad", "load"], ["study", "examine", "checkup"],
  ["load", "examine", "checkup"]]) sections[kind][name].addEventListener("click", () => {
  setChoice("question", next);
  draw();
  parts.start.focus();
});
document.addEventListener("click", ({ target }) => {
  const opener = target.closest?.("[data-yours]");
  if (!opener) return;
  if (opener.dataset.yours) setChoice("question", opener.dataset.yours);
  if (opener.dataset.yours && S.fromFile && root.hasAttribute("data-servers")) setChoice("what", "servers");
  draw();
  openDialog();
});
document.addEventListener(OPENS, (event) => {
  event.preventDefault();
  take(event.detail);
});

for (const name of ["header", "over"]) on(name, () => { if (dialog.open) draw(); });      // of a race in this tab
document.addEventListener("photofinish:mounted", draw);        // now the page's button is there
comeBackToStudy();
draw();
