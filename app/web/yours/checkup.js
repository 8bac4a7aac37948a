// The question "what makes it slow or wrong?": a check-up of a pair or of two servers, finding by finding.

import { BY_ROUNDING, NUM_PROMPTS } from "../host.js";
import { cut, DEFAULT_TARGET, drafterName, make, makeButton, makeUnheard, oneLine, plural, sentence, serversWords,
  settingsOptions, startOf } from "../base/text.js";
import { fillIn, pageButton } from "../board/page.js";
import { openWhenRaced } from "../tabs/step_tab.js";
import { choiceOf, closeDialog, sections } from "./box.js";
import { isFlat, promptsOption, promptSource } from "./own_prompts.js";
import { isRunning, results } from "./results.js";
import { differingPrompts } from "./study.js";
import { onServers } from "./what.js";

const SIGNS = { ok: ["\u2713", "ok"], doubt: ["?", "doubt"], fault: ["\u2715", "fault"],
  untested: ["\u2013", "not tested"] };
const examined = results.checkup;

// The visitor's own prompts: those whose texts differed in a study of them, if any did; null for the check-up's three.
function sourceNow() {
  const source = promptSource(), differing = differingPrompts();
  if (differing) return { ...source, ...differing, isFlat: false, isDiffering: true };
  return choiceOf("prompts") === "own" && source ? { ...source, isFlat: isFlat() } : null;
}

function promptWords() {
  const source = sourceNow();
  if (!source) return "With three short prompts.";
  const num = Math.min(source.num, NUM_PROMPTS), name = cut(oneLine(source.name), 80);
  if (source.isDiffering) return `With ${plural(num, "prompt")} whose texts differ (${name}).`;
  return num < source.num ? `With ${num} of your ${source.num} prompts, evenly by kind (${name}).` :
    `With your ${plural(num, "prompt")} (${name}).`;
}

const numDiffering = () => examined.frame.asked ?? { num_differing: examined.source?.isDiffering ?
  Math.min(examined.source.num, NUM_PROMPTS) : 0 };

// Words whose lines do not break within an option of a command.
const unbroken = (words) => words.split(/(--[\w-]+)/).map((part, i) =>
  (i % 2 ? make("span", "pc-option", part) : part));

// What to do, as it is written: it may begin with a name.
const withStop = (words) => (/[.!?]$/.test(words) ? words : `${words}.`);

function firstWords({ first }) {
  const isSure = first?.level === "fault" || !isRunning("checkup");       // after a doubt a fault may come
  if (first) return `${isSure ? "Change first" : "So far"}: ${withStop(oneLine(first.change || first.says))}`;
  return examined.state === "finished" ? "Nothing to change." : "No fault so far.";
}

// first: the finding whose change is in the heading.
function findingRow({ level, check, says, change, prompt, position }, races, first) {
  const [sign, word] = SIGNS[level], isElsewhere = change && change !== first?.change;
  const line = make("li", "pc-finding", make("span", "pc-mark", makeUnheard("span", "pc-sign", sign), ` ${word}`),
    make("div", "pc-body",
      make("p", "", make("strong", "", `${sentence(oneLine(check)).slice(0, -1)}: `), oneLine(says)),
      isElsewhere && make("p", "pc-change", ...unbroken(`Change: ${withStop(oneLine(change))}`)),
      races[prompt] && raceButton(races[prompt], position)));
  line.dataset.level = level;
  if (says === first?.says) line.dataset.first = "true";
  return line;
}

function raceButton(settings, position) {
  const words = position === undefined ? "Race" : "Show it in", where = oneLine(startOf(settings.prompt));
  const title = "Races it on the page as the check-up did" + (position === undefined ? "" : ", then opens the step");
  return makeButton("pf-button", `${words} ${where}`, () => raceFinding(settings, position),
    { title, disabled: isRunning("checkup") });
}

// As the check-up did.
async function raceFinding(settings, position) {
  closeDialog();
  if (position !== undefined) openWhenRaced(settings.prompt, position);
  await fillIn(settings);
  pageButton("race").click();
}

export const checkup = {
  about: "Examines the model and the drafter, or the servers: are the texts right, and why is it not faster? It "
    + "names the one thing to change first. Servers get about 450 short requests each.",
  sourceNow, needsTwo: false, needs: () => ({ need: promptWords() }),
  isOwn: () => !isRunning("checkup") && !examined.source?.isFlat,         // which the command does not do
  isThere: () => Boolean(examined.frame?.report?.findings.length),
  colour: () => examined.frame.report.first?.level ?? (examined.state === "finished" ? "ok" : ""),
  answer: ["scope", "verdict"],
  evidence: () => sections.checkup.list.querySelector("[data-first] p")?.textContent ?? "",
  asked: numDiffering,
  nameOf: ({ target, models }) => [target ?? models[0], ""],
  order() {
    const { text, isFlat: flatten } = examined.source ?? {};
    examined.with = promptWords();
    return examined.source ? { text, flatten } : {};
  },
  heard({ state, params, opened }) {
    if (opened || examined.state === "finished" || state !== "finished") return;
    const now = new Date().toISOString().slice(0, 16).replace("T", " ");
    examined.about = `Seed ${params.seed}. ${examined.with} ${now} UTC`;
  },
  summary({ frame: { report }, state }) {
    const texts = report?.findings.find(({ check }) => check === "texts");
    const finding = report?.first?.level === "fault" ? report.first : texts;
    return state === "finished" && finding && report.models ? { ...finding,
      numDiffering: numDiffering().num_differing ?? 0,
      numRounding: texts?.says.includes(BY_ROUNDING) ? Number.parseInt(texts.says, 10) : 0 } : null;
  },
  values() {
    const { frame: { report, races }, state } = examined;
    return {
      scope: cut(oneLine(report.lanes ?
        `${[...new Set(report.models)].join(" and ")} on ${serversWords(report.lanes)}` :
        `${report.target} with ${drafterName(report.drafter)}`), 300),
      verdict: unbroken(firstWords(report)),
      list: report.findings.map((finding) => findingRow(finding, races, report.first)),
      circumstances: state === "finished" ? examined.about ?? "" : "",
    };
  },
  goes() {
    const { share = null, text = "" } = examined.frame ?? {};
    const brief = isRunning("checkup") ? "check-up" : "", says = examined.state === "finished" ? "" : oneLine(text);
    return { share, brief, says, left: "" };
  },
  command() {
    const { params, chat, report: { target, drafter, lanes, models } } = examined.frame;
    const { before, prompts } = promptsOption(examined.source);
    const settings = settingsOptions({ ...params, target: target ?? DEFAULT_TARGET, top_p: 1 });
    const options = { model: lanes?.map((lane, i) => `${lane}=${models[i]}`), target: settings.target, drafter, prompts,
      temperature: settings.temperature, seed: settings.seed, chat: lanes && chat };
    return before + onServers("doctor", examined.servers, lanes ?? [], options);
  },
};
