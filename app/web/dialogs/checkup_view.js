// The dialog "Check-up", of the pair chosen in Settings, finding by finding.

import { NUM_PROMPTS, ROUNDING, trigger } from "../host.js";
import { makeButton } from "../base/dom.js";
import { DEFAULT_TARGET, drafterName, make, makeUnheard, oneLine, optionWords, plural, sentence, serversWords,
  settingsOptions, shellQuoted, startOf } from "../base/text.js";
import { refs } from "./box.js";
import { connect, drawControls, fileName, onServers, PASTED, promptsOption, runs, study } from "./dialog.js";
import { savesPage, saveWords } from "./report.js";
import { shortly, tell } from "./together.js";

const BUTTON = ".page-checkup-button";
const HEAD = "Check-up";
const SIGNS = { ok: ["\u2713", "ok"], doubt: ["?", "doubt"], fault: ["\u2715", "fault"],
  untested: ["\u2013", "not tested"] };

// The prompts chosen in "Your prompts", if any are: see draw() in study_view.js.
function order() {
  const source = window.photofinishPrompts ?? null;
  study.source = source?.differ ? { ...source, name: PASTED, text: source.differ, isWhole: false, isJson: true,
    flatten: false } : source;
  const { name, text, isWhole, flatten } = study.source ?? {};
  return study.source ? { name, text, whole: isWhole, flatten } : {};
}

// Other dialogs say what this means for their results.
function heard({ state, servers, report, params }) {
  const texts = report?.findings.find(({ check }) => check === "texts"), { differ, num } = study.source ?? {};
  const finding = report?.first?.level === "fault" ? report.first : texts;
  if (state === "finished" && finding) tell("checkup", servers, { ...finding, model: report.models?.[0],
    numDiffering: differ ? Math.min(num, NUM_PROMPTS) : 0,
    numRounding: texts?.says.includes(ROUNDING) ? Number.parseInt(texts.says, 10) : 0 });
  if (state === "finished") study.about = `Seed ${params.seed}. ${refs.prompts.textContent} ${
    new Date().toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

function draw() {
  const { frame } = study, report = frame?.report ?? null, share = runs() ? frame?.share ?? null : null;
  drawControls(["start"], BUTTON, HEAD);
  if (!runs()) refs.prompts.textContent = promptWords(window.photofinishPrompts);
  if (share === null) refs.progress.removeAttribute("value"); else refs.progress.value = share;
  refs.says.textContent = study.state === "asked" ? "Contacting the server." : study.state === "finished" ? "" : oneLine(frame?.text ?? "");
  refs.goes.hidden ||= !runs() && !refs.says.textContent;
  refs.result.hidden = !report?.findings.length;
  if (refs.result.hidden) return;
  refs.scope.textContent = oneLine(report.lanes ? `${[...new Set(report.models)].join(" and ")} on `
    + serversWords(report.lanes) : `${report.target} with ${drafterName(report.drafter)}`).slice(0, 300);
  refs.first.replaceChildren(...unbroken(firstWords(report)));
  refs.short.textContent = shortly(serversOf()).join("\n");
  refs.circumstances.textContent = study.state === "finished" ? study.about ?? "" : "";
  refs.result.dataset.level = report.first?.level ?? (study.state === "finished" ? "ok" : "");
  refs.list.replaceChildren(...report.findings.map((finding) =>
    row(finding, frame.races, finding.change === report.first?.change)));
  refs.evidence = refs.list.children[report.findings.findIndex(({ says }) => says === report.first?.says)]
    ?.querySelector("p") ?? make("p");
  refs.save.disabled = refs.savePage.disabled = refs.copy.disabled = refs.copyAnswer.disabled = runs();
  refs.savePage.textContent = saveWords("checkup");
  refs.copy.hidden = Boolean(study.source?.flatten);       // which the command does not do
}

function promptWords(source) {
  if (!source) return "With three short prompts." + (document.getElementById("page-study-button") ?
    " To use your own, choose them in \u201cYour prompts\u201d." : "");
  const num = Math.min(source.num, NUM_PROMPTS), name = oneLine(source.name).slice(0, 80);
  if (source.differ) return `With ${plural(num, "prompt")} whose texts differ (${name}).`;
  return num < source.num ? `With ${num} of your ${source.num} prompts, evenly by kind (${name}).` :
    `With your ${plural(num, "prompt")} (${name}).`;
}

// Words whose lines do not break within an option of a command.
const unbroken = (words) => words.split(/(--[\w-]+)/).map((part, i) =>
  (i % 2 ? make("span", "pc-option", part) : part));

// What to do, as it is written: it may begin with a name.
const withStop = (words) => (/[.!?]$/.test(words) ? words : `${words}.`);

function firstWords({ first }) {
  const isSure = first?.level === "fault" || !runs();       // after a doubt a fault may come
  if (first) return `${isSure ? "Change first" : "So far"}: ${withStop(oneLine(first.change || first.says))}`;
  return study.state === "finished" ? "Nothing to change." : "No fault so far.";
}

// isInHead: the heading says what to change.
function row({ level, check, says, change, prompt, position }, races, isInHead) {
  const [sign, word] = SIGNS[level], line = make("li", "pc-finding"), mark = make("span", "pc-mark");
  line.dataset.level = level;
  mark.append(makeUnheard("span", "pc-sign", sign), ` ${word}`);
  const body = make("div", "pc-body"), evidence = make("p");
  evidence.append(make("strong", "", `${sentence(oneLine(check)).slice(0, -1)}: `), oneLine(says));
  body.append(evidence);
  if (change && !isInHead) {
    body.append(make("p", "pc-change"));
    body.lastChild.append(...unbroken(`Change: ${withStop(oneLine(change))}`));
  }
  if (races[prompt]) {
    const words = position === undefined ? "Race" : "Show it in", where = oneLine(startOf(races[prompt].prompt));
    const button = makeButton("pf-button", `${words} ${where}`, () => race(races[prompt], position ?? null));
    button.title = "Races it on the page as the check-up did" + (position === undefined ? "" : ", then opens the step");
    button.disabled = runs();
    body.append(button);
  }
  line.append(mark, body);
  return line;
}

// Race a prompt as the check-up did; then the tab "One step" opens at that position, unless it is null.
function race(settings, position) {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  document.getElementById("page-presets")?.classList.add("page-own");       // hides the example's sentence
  Object.assign(window.photofinish, { raced: settings, wanted: { prompt: settings.prompt, position } });
  trigger("edit");
}

function command() {
  const { params, chat, report: { target, drafter, lanes, models } } = study.frame;
  const { before, prompts } = promptsOption(study.source);
  const settings = settingsOptions({ ...params, target: target ?? DEFAULT_TARGET, top_p: 1 });
  const options = { target: settings.target, drafter: drafter ?? null, prompts, temperature: settings.temperature,
    seed: settings.seed };
  const names = (lanes ?? []).map((lane, i) => `--model ${shellQuoted(`${lane}=${models[i]}`)}`);
  return [before + (lanes ? onServers("doctor", lanes) : "python -m engine doctor"), ...names, optionWords(options),
    ...(lanes && chat ? ["--chat"] : [])].filter(Boolean).join(" ");
}

const nameOf = ({ target, models }) => fileName("checkup", target ?? models[0]);
const serversOf = () => study.frame?.servers ?? null;
savesPage("checkup", { draw, servers: serversOf, nameOf: () => nameOf(study.frame.report) });
connect({ run: "check-up", order, draw, heard, result: () => study.frame.report, command,
  answer: ["scope", "first", "short", "evidence"] }, BUTTON, nameOf);
