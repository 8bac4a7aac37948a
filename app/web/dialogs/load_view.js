// The dialog "Under load". Finished levels are kept in this browser, so that a study can be resumed.

import { MAX_NEW_TOKENS, MAX_REQUESTS, MAX_WORDS, ROUGH, SAYS, SEPARATE, WARM_UP } from "../host.js";
import { remember, remembered, rememberedJson } from "../base/storage.js";
import { filled, oneLine, optionWords, plural, sentence, serversWords, times, withTimes } from "../base/text.js";
import { curve, DRAWN, headRow, legend, levelRows, METRICS } from "./curves.js";
import { canExamine, examine, refs } from "./box.js";
import { connect, drawControls, fileName, forget, onServers, plainText, promptsOption, readOr, runs, start,
  study } from "./dialog.js";
import { savesPage, saveWords } from "./report.js";
import { isCause, isWrong, knownOf, shortly, tell } from "./together.js";

const KEPT_KEY = "photofinish.load";
const BUTTON = "#page-load-button", OPENER = "#page-servers-button";
const TURNS = SEPARATE === null ? "The servers run at the same time, or take turns if they share a device." :
  SEPARATE ? "The servers run at the same time, since they share no device." :
    "The servers take turns at each level, because they may share a device.";

const settings = () => ({ users: refs.users.value, requests: refs.requests.value, length: refs.length.value,
  dollars: refs.dollars.value, words: refs.words.value, source: study.source });
let started = null;             // the settings of the study that is shown

// The server decides whether kept levels belong to this study.
function order() {
  const { users, requests, length, dollars, words, source } = started = settings();
  return { users, requests: Number(requests), max_new_tokens: Number(length), words: Number(words),
    dollars: dollars === "" ? null : Number(dollars), name: source?.name ?? null, text: source && plainText(source),
    kept: Array.isArray(rememberedJson(KEPT_KEY)?.rows) ? remembered(KEPT_KEY) : null };
}

// Say what the numbers and the chosen file mean together. The result says the same: `rough` in
// engine/studies/load/pays_under_load.py, and REPEATS in study.py.
function drawNeed() {
  const { entries } = study.source ?? {}, levels = refs.users.value.split(",").filter((level) => level.trim());
  const requests = Number(refs.requests.value), few = levels.filter((level) => ROUGH * Number(level) > requests);
  const words = `${requests} requests with ${few.map(Number).join(" and ")} users: fewer than ${ROUGH} each`;
  const most = Math.max(...few), would = `${ROUGH * most} would do`;
  refs.few.textContent = !few.length || requests < 1 || study.frame?.report?.rough.startsWith(words) ? "" :
    requests < most ? `${most} users need ${most} requests or more; ${would}.` :
      `${words}, so the ratio there will be rough; ${would}.`;
  refs.need.textContent = "";
  if (!entries) return;
  const num = levels.length * requests + WARM_UP;
  const asked = `${num} requests to each server, ${WARM_UP} of them to warm up`;
  const has = new Set([...entries.values()].map((value) => JSON.stringify(value))).size;
  refs.need.className = has >= num ? "pf-note" : "ps-caution";
  refs.need.textContent = has >= num ? `Enough for ${asked}, each with a prompt of its own.` : `${asked}, and ${
    plural(has, "different prompt")} in this file: they will be repeated. A server that caches prompts answers a `
    + `repeated one faster, whichever lane it is. ${num} prompts would avoid it.`;
}

function heard({ key, rows, begun, state, lanes, model, report, servers, max_new_tokens: length }) {
  const words = withTimes(report?.says[0] ?? "").split(": ")[0], sum = (name) =>
    report.levels.reduce((all, row) => all + (row[name] ?? 0), 0);
  if (key && state === "finished" && lanes.length === 2) tell("load", servers, { model, num: sum("num_compared"),
    others: sum("num_compared") - sum("num_same_text"), recommends: withTimes(report.recommends),
    length, says: words.charAt(0).toLowerCase() + words.slice(1), ratios: ratiosOf(report),
    loses: report.loses_with.length > 0 });
  if (key) remember(KEPT_KEY, state === "finished" && !begun.length ? null : JSON.stringify({ key, rows, begun }));
}

// `1.86x with 1 user, 0.62x with 16`.
const ratiosOf = ({ speedup_by_users: gains }) => Object.entries(gains).map(([num, gain], i) =>
  `${times(gain)} with ${i ? num : plural(Number(num), "user")}`).join(", ");

const serversOf = () => study.frame?.servers ?? null;

function draw() {
  const { frame, state } = study, report = frame?.report ?? null, share = frame?.share ?? 0;
  const check = knownOf("checkup", serversOf());
  drawControls(["start", "users", "requests", "length", "dollars", "words", "open", "forget"], BUTTON,
    runs() && frame ? `Under load ${Math.floor(100 * share)} %` : "Under load");
  drawOpener(share);
  refs.untried.hidden = document.querySelector(BUTTON)?.dataset.untried !== "true" || runs();
  refs.start.disabled ||= !refs.untried.hidden;
  refs.words.disabled ||= study.source !== null;
  refs.forget.hidden = study.source === null;
  drawNeed();
  refs.goes.hidden ||= Boolean(frame?.opened);
  refs.says.textContent = state === "asked" ? "Contacting the server." :
    oneLine(frame?.text ?? "");
  refs.progress.value = share;
  refs.result.hidden = !report;
  if (!report) return;
  refs.opened.textContent = frame.opened ? frame.text : "";
  refs.opened.hidden = !frame.opened;
  refs.result.dataset.verdict = runs() ? "" : colour(report, check);
  refs.short.textContent = shortly(serversOf()).join("\n");
  refs.rough.textContent = oneLine(report.rough);
  const metrics = Object.keys(METRICS).filter((name) => report.levels.some((row) => typeof row[name] === "number"));
  const users = report.levels.map((row) => row.concurrency), few = Math.min(...users), many = Math.max(...users);
  refs.scope.textContent = oneLine(`${frame.model} on ${serversWords(frame.lanes)}, ${few === many ? "" :
    `${few} to `}${plural(many, "user")} at once`).slice(0, 300);
  const [verdict, ...details] = report.says.map(withTimes);
  refs.said.textContent = isWrong(check) ? filled(SAYS.not_as_it_is, withTimes(report.recommends)) :
    (runs() ? "So far: " : "") + (verdict?.slice(0, -1) ?? "Throughput by number of users");
  const why = [report.differ, !isCause(check) && report.causes, differs(report) && check && `The check-up: ${
    check.says}`];
  refs.details.textContent = [...details, why.filter(Boolean).map(oneLine).join(" "), oneLine(report.said.repeats)]
    .filter(Boolean).join("\n");
  refs.examine.hidden = runs() || !differs(report) || isWrong(check) || !canExamine();
  refs.charts.replaceChildren(legend(frame.lanes), ...DRAWN.map((name) => curve(name, report.levels, frame.lanes)));
  refs.heads.replaceChildren(headRow(metrics));
  refs.levels.replaceChildren(...levelRows(report, frame.lanes, metrics));
  refs.notes.textContent = notes(report.levels);
  refs.circumstances.textContent = oneLine(report.said.circumstances);
  refs.save.disabled = refs.savePage.disabled = refs.copy.disabled = refs.copyAnswer.disabled = runs();
  refs.savePage.textContent = saveWords("load");
  refs.copy.disabled ||= Boolean(frame.opened);
}

const differs = ({ levels }) => levels.some((row) => row.num_same_text < row.num_compared);

function colour({ gains_with: gains, gains_little_with: little, loses_with: losses, rough, levels }, check) {
  if (isWrong(check)) return "do not ship";
  if (rough || differs({ levels }) || little.length || (gains.length && losses.length)) return "unclear";
  return gains.length ? "ship" : losses.length ? "do not ship" : "";
}

// In "Your servers" the button is out of sight once that is closed: its own opener shows the progress too.
function drawOpener(share) {
  const opener = document.querySelector(BUTTON)?.closest("dialog") && document.querySelector(OPENER);
  if (opener) opener.textContent = `Your servers${runs() ? `: load ${Math.floor(100 * share)} %` : ""}`;
}

function notes(levels) {
  const failed = levels.filter((row) => row.num_errors).map((row) =>
    sentence(`${oneLine(row.lane)} with ${plural(row.concurrency, "user")}: ${row.num_errors} of ${row.num_requests} `
      + `requests failed; the first: ${oneLine(row.fault ?? "")}`));
  const few = levels.filter((row) => row.num_requests < row.concurrency), most = few.at(-1);
  return [...failed, most && `${plural(most.concurrency, "user")} sent ${plural(most.num_requests, "request")}, so no `
    + "more than that ran at once: choose more requests per level.", levels.some((row) => row.asked_before)
    && "* repeated after an interruption; the server may have cached these prompts.",
  levels.some((row) => row.acceptance_from === "server")
    && "Tokens per step come from the servers' own counters, which cover all their users.",
  "Output tokens a second include each answer's wait for its first text; a race and \u201cYour prompts\u201d leave it "
    + "out."].filter(Boolean).join(" ");
}

function command() {
  const { frame } = study, { users, requests, length, dollars, words, source } = started;
  const { before, prompts } = promptsOption(source);
  const options = { model: frame.model, concurrency: users.replaceAll(" ", ""), requests,
    data: prompts ?? `synthetic:${words},${length}`, "max-new-tokens": source ? length : null,
    dollars: dollars || null, temperature: frame.temperature || null, seed: frame.seed || null };
  return [before + onServers("study", frame.lanes), optionWords(options), ...(frame.chat ? ["--chat"] : []),
    ...(frame.separate ? ["--separate"] : [])].join(" ");
}

refs.turns.textContent = TURNS;
refs.requests.max = MAX_REQUESTS;
refs.length.max = MAX_NEW_TOKENS;
refs.length.value = Math.min(refs.length.value, MAX_NEW_TOKENS);
refs.words.max = MAX_WORDS;
document.addEventListener("photofinish:tried", draw);
for (const name of ["users", "requests"]) refs[name].addEventListener("input", draw);
refs.examine.addEventListener("click", examine);
refs.forget.addEventListener("click", () => { forget("load"); draw(); });
async function take(file) {
  const saved = await readOr("load", file);
  if (saved) start({ saved });
  draw();
}
const nameOf = ({ said }) => fileName("load", said.model, said.created);
savesPage("load", { draw, servers: serversOf, nameOf: () => nameOf(study.frame.report) });
connect({ run: "load", order, draw, heard, kind: "load", take, result: () => study.frame.report, command, answer: ["scope", "said",
  "short", "rough", "details", "notes", "circumstances"] }, BUTTON, nameOf);
