// The question "does it pay?", of many prompts. Finished prompts are kept in this browser, so that a study can be
// resumed; its prompts and its result are kept in the tab, which shows them again when it is reloaded.

import { CHECKED, LEAST, MAX_NEW_TOKENS, MAX_PROMPTS, SAYS } from "../host.js";
import { copyOn, remember, rememberedJson } from "../base/dom.js";
import { cut, draftWords, make, makeButton, oneLine, plural, settingsOptions, withTimes } from "../base/text.js";
import { productionOf } from "../tabs/production.js";
import { parts, raceThere, setChoice } from "./box.js";
import { colourOf, heatMap, loadWords, MEANS, partings, promptTable, raceWords, strips, studyVerdict,
  textsWords } from "./prompt_results.js";
import { bringPrompts, entryAt, isFlat, promptAt, promptsOption, promptSource } from "./own_prompts.js";
import { isRunning, isWrong, results, subjectOf } from "./results.js";
import { onServers } from "./what.js";

const STUDY_KEY = "photofinish.study";
const PROMPTS_KEY = "photofinish.study.prompts";
const FRAME_KEY = "photofinish.study.frame";       // the last frame, without rows
const ENDED = ["finished", "stopped", "failed"];
const OTHERS = "These results are of the prompts and limits before. Start races those above.";
const studied = results.study;
// rows: by line and drafter; of: choiceKey() of their prompts.
const raced = { rows: new Map(), of: "" };
const rowKey = (row) => `${row.line} ${row.drafter}`;

// Identifies prompts and limits, to find kept rows. The server decides whether these really belong to them.
function choiceKey({ text } = promptSource() ?? { text: "" }) {
  const whole = `${[parts.limit.value, parts.length.value, isFlat()].join(" ")} ${text}`;
  let hash = 0;
  for (let i = 0; i < whole.length; i++) hash = (Math.imul(hash, 31) + whole.charCodeAt(i)) | 0;
  return `${hash} ${whole.length}`;
}

function keptRun(source = promptSource()) {
  const kept = rememberedJson(STUDY_KEY);
  return source && kept?.of === choiceKey(source) && Array.isArray(kept.rows) ? kept : null;
}

// Whether the results are of the prompts that are chosen now.
const isOwn = () => promptSource() !== null && raced.of === choiceKey();

// Show the study of this tab again, which the server may not even know any more.
export function comeBackToStudy() {
  const source = rememberedJson(PROMPTS_KEY, true), frame = rememberedJson(FRAME_KEY, true);
  if (source?.says === undefined || !frame || (frame.report && !frame.report.says)) return;     // of an older version
  parts.limit.value = source.limit;
  parts.length.value = source.length;
  bringPrompts(source);
  setChoice("question", "study");
  const isOver = ENDED.includes(frame.state), text = "Interrupted: the page was loaded again, or restarted.";
  Object.assign(studied, { state: isOver ? frame.state : "stopped", frame: isOver ? frame : { ...frame, text },
    is: subjectOf("study", frame) });
  raced.of = choiceKey(source);
  for (const row of frame.report?.rows ?? keptRun(source)?.rows ?? []) raced.rows.set(rowKey(row), row);
}

// The prompts on which servers differed, as JSON lines: those are what a check-up has to look at; null if none did.
export function differingPrompts() {
  const lines = isOwn() ? [...raced.rows.values()].filter(({ ways }) => ways).map(({ line }) => line) : [];
  const entries = lines.map((line) => entryAt(promptSource(), line));
  return lines.length ? { num: lines.length, text: entries.map((entry) => JSON.stringify(entry)).join("\n") } : null;
}

const studyAsked = ({ asked, params = {} }) => asked ?? { temperature: params.temperature ?? null,
  max_new_tokens: params.max_new_tokens ?? null };

// Servers have their own commands, and without a gain nobody needs one.
const isWorth = (report) => report?.best && report.best.k !== null
  && (report.verdict === "ship" || report.best.median_speedup >= SAYS.threshold);

function headValues(report, load, check) {
  const { frame } = studied, { temperature = null } = studyAsked(frame), best = report?.best ?? null;
  const loadSays = best && best.k === null ? loadWords(load, check) : "";
  return {
    others: frame.opened || isRunning("study") || isOwn() ? "" : OTHERS,
    scope: cut(oneLine(report?.said.scope ?? frame.target), 300),
    verdict: report ? studyVerdict(report, check, temperature) : "The verdict comes at the end",
    reason: report ? withTimes(report.reason) : "Each dot is a finished prompt.",
    money: report?.says.then ?? "", here: withTimes(report?.says.here ?? ""), load: loadSays,
    measureLoad: Boolean(loadSays && !load && !isRunning("study")),
  };
}

function textsValues(report, rows, check) {
  const ways = partings(rows), { temperature = null } = studyAsked(studied.frame);
  return { texts: report ? textsWords(report, temperature, check) : "", partings: ways,
    examine: Boolean(report && !isRunning("study") && !isWrong(check) && ways.length && isOwn()) };
}

function dotsValues(report, rows) {
  const hollow = rows.some((row) => row.loops || row.disturbed) ?
    " Hollow dots: the text repeats itself, or the machine was disturbed." : "";
  return { strips: strips(rows, SAYS.threshold, report?.best ?? null), means: report ? MEANS + hollow : "" };
}

function tableValues(report, rows) {
  const [drafters, kinds] = report ? heatMap(report.summary, raceWords) : [null, []];
  const [head, all] = promptTable(rows, report?.best ?? null, racing);
  return { tableBox: report !== null, heads: drafters ? [drafters] : [], table: kinds, allColumns: [head], all,
    ofDrafts: rows.some(({ mean_acceptance_length: length }) => typeof length === "number"),
    allHead: `All ${plural(studied.frame.num_done, "prompt")}, slowest first` };
}

function cautions(rows) {
  const { note, num_done: done, num_prompts: all } = studied.frame, faults = rows.filter((row) => row.fault).length;
  const disturbed = new Set([...raced.rows.values()].filter((row) => row.disturbed).map((row) => row.line)).size;
  return [note, !isRunning("study") && done < all && rows.length && "These are the results so far.",
    disturbed && `The machine was disturbed in ${disturbed} of ${plural(done, "race")}.`,
    faults && `${plural(faults, "race")} failed; see \u201cAll prompts\u201d.`].filter(Boolean).join(" ");
}

// A function that races the prompt of that line on the page, with the study's length; null if it is not known here.
function racing(line) {
  const text = isOwn() ? promptAt(promptSource(), line) : null;
  return text === null ? null : () => raceThere(text, parts.length.value);
}

// The commands of the verdict's drafter, with a button each.
function commandsToServe(target, best) {
  const params = { max_new_tokens: 0, temperature: 0, top_p: 1, top_k: 0, seed: 0, stop: [] };
  const { servers } = productionOf({ model: { name: target }, prompt: { text: "" }, spec: { params } }, best);
  const made = servers.filter(({ command }) => command).map(({ name, version, command }) => {
    const button = makeButton("pf-button", "Copy");
    copyOn(button, () => command);
    return make("p", "ps-serve", `${name} ${version}, checked ${CHECKED} `, button, make("code", "", command));
  });
  return made.length ? [make("p", "", `To serve it, ${draftWords(best)}:`), ...made] : [];
}

export const study = {
  about: "With a model here, each prompt is one fairly timed race with automatic draft length, of the drafter, "
    + "temperature and seed of Settings, and one of n-gram. Servers get each prompt once, and draft as they are set "
    + "up. The answer holds for this model on this machine. This page's server stores nothing.",
  sourceNow: promptSource, needsTwo: true,
  needs: () => ({ need: (promptSource()?.num ?? LEAST) < LEAST ? `A verdict takes at least ${LEAST} prompts.` : "" }),
  isResumed: () => Boolean(keptRun()?.rows.length),
  isOwn: () => isOwn() && !isRunning("study"),
  isThere: () => raced.rows.size > 0,
  colour: ({ load, checkup }) => (studied.frame.report ? colourOf(studied.frame.report, load, checkup,
    studyAsked(studied.frame).temperature ?? null) : ""),
  answer: ["scope", "verdict", "load", "reason", "texts", "money", "here", "circumstances"],
  asked: () => studyAsked(studied.frame),
  nameOf: ({ target, said }) => [target, said.created],
  // kept: what the server need not race again, if it belongs to the same study.
  order(kept = keptRun()) {
    const source = promptSource(), how = { limit: parts.limit.value, length: parts.length.value };
    Object.assign(raced, { rows: new Map(), of: choiceKey() });
    remember(FRAME_KEY, null, true);
    remember(PROMPTS_KEY, JSON.stringify({ ...source, entries: null, flatten: isFlat(), ...how }), true);
    return { name: source.name, text: source.text, flatten: isFlat(), limit: Number(how.limit),
      max_new_tokens: Number(how.length), kept: kept && JSON.stringify(kept) };
  },
  heard(frame) {
    const { rows, of: name } = raced, last = studied.frame;
    if (frame.opened || (frame.key && last?.key && (frame.key !== last.key || frame.num_done < last.num_done)))
      rows.clear();
    if (frame.opened) raced.of = "";
    const before = rows.size;
    for (const row of frame.report?.rows ?? frame.rows ?? []) rows.set(rowKey(row), row);
    if (!frame.key || (rows.size === before && !ENDED.includes(frame.state))) return;
    remember(STUDY_KEY, frame.state === "finished" ? null :
      JSON.stringify({ of: name, key: frame.key, ran_on: frame.ran_on, rows: [...rows.values()] }));
    remember(FRAME_KEY, JSON.stringify({ ...frame, rows: [] }), true);
  },
  // For other results of the same servers: see results.js.
  summary({ frame }) {
    const { report, num_done: num } = frame, { temperature = null, max_new_tokens: length = null } = studyAsked(frame);
    const { best } = report ?? {};
    if (!best || !report.said.on_servers || (frame.lanes?.length ?? 2) !== 2) return null;
    return { verdict: report.verdict, median: best.median_speedup, interval: best.interval, num,
      length, temperature, others: best.num_other_texts, compared: best.num_compared };
  },
  // What the section shows, part by part. said: see saidOfServers.
  values({ load, checkup: check }) {
    const { frame } = studied, rows = [...raced.rows.values()], report = frame.report ?? null;
    const circumstances = [...(report?.said.ribbons ?? []), report?.said.circumstances].filter(Boolean);
    return { ...headValues(report, load, check), ...textsValues(report, rows, check),
      ...dotsValues(report, rows), ...tableValues(report, rows), caution: cautions(rows),
      serve: isWorth(report) ? commandsToServe(report.target, report.best) : [],
      circumstances: circumstances.map(oneLine).join(". ") };
  },
  goes() {
    const { num_done: done, num_prompts: all, text = "", left_s: left } = studied.frame ?? {};
    return { share: all ? done / all : null, brief: done < all ? `${done}/${all}` : "", says: [all && `${done} of ${
      plural(all, "prompt")} finished.`, studied.state !== "finished" && oneLine(text)].filter(Boolean).join(" "),
    left: left ? `About ${left >= 90 ? `${Math.round(left / 60)} min` : `${Math.round(left)} s`} left.` : "" };
  },
  command() {
    const { drafters, params, lanes, chat, same_device: isInTurns, report } = studied.frame;
    const { target, ...settings } = settingsOptions({ ...studied.frame, ...params });
    const { before, prompts } = promptsOption(studied.source), isOnServers = report.said.on_servers;
    const options = { ...(isOnServers ? { model: report.target } : { target }), prompts, limit: parts.limit.value,
      drafter: isOnServers ? null : drafters.join(","), ...settings, chat: isOnServers && chat,
      "same-device": isOnServers && isInTurns, flatten: isFlat() };
    return before + onServers("study-prompts", studied.servers, isOnServers ? lanes : [], options);
  },
};

parts.limit.max = MAX_PROMPTS;
parts.length.max = MAX_NEW_TOKENS;
parts.length.value = Math.min(parts.length.value, MAX_NEW_TOKENS);
