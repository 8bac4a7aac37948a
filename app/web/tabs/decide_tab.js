// The tab "Decide": the race's answer, what it would save, and commands to serve it. Drawn when open; the visitor's
// input stays in this browser.

import { CHECKED, SAYS } from "../host.js";
import { make, makeButton, numberIn, put, tableRow, write } from "../base/text.js";
import { isOfServers } from "../base/model.js";
import { remember, rememberedJson } from "../base/dom.js";
import { copyFrom, on, refs, root, S } from "../board/screen.js";
import { choiceWords, noiseWords, nothingWords, othersWords, verdictWords } from "./answer.js";
import { hasDollars, moneyRows, pricesFor, priceWords } from "./money.js";
import { productionOf } from "./production.js";
import { answerNow, isBeingMade, whatIfOf } from "./whatif_tab.js";

const DECIDE_KEY = "photofinish.decide";
const ENTERED = { dollars: "", tokens: "10000000", hours: "24", goalTokens: "200", goalSeconds: "2" };
const WHOLE = ["tokens", "goalTokens"];
const dayBoxes = root.querySelectorAll("[data-day]");
const boxes = new Map([...root.querySelectorAll("[data-decide]")].map((node) => [node.dataset.decide, node]));
const NO_LOOP = "Nothing follows from it: race a text that does not repeat itself. Prose needs a temperature, such as "
  + "0.8 in Settings.";
const CPU_BASIS = "Take the percentages. Dollars are at this CPU's speed: for a GPU's, race on the GPU that you would "
  + "rent.";
const FORMULA = "$ per 1,000,000 tokens = 1,000,000 / tok/s \u00d7 $ per hour / 3,600.";
let decided = [];       // what the tab was drawn from
const typed = { ...rememberedJson(DECIDE_KEY) };         // the visitor's input, by box

// Fill the boxes with earlier input or defaults; a price has none.
function fillBoxes() {
  for (const [name, box] of boxes) {
    const value = typeof typed[name] === "string" ? typed[name] : ENTERED[name];
    if (box !== document.activeElement && box.value !== value) box.value = value;
  }
}

function keepBox({ target }) {
  if (target.value === "") delete typed[target.dataset.decide]; else typed[target.dataset.decide] = target.value;
  remember(DECIDE_KEY, JSON.stringify(typed));
  decided = [];
  drawDecide();
}

// The numbers in the boxes; the default where one is invalid, with a sentence in `odd`. dollars: null if unknown.
function entered() {
  const odd = [];
  const number = (name, most, least = 0) => {
    const { value: text } = boxes.get(name), usual = ENTERED[name] === "" ? null : Number(ENTERED[name]);
    const num = numberIn(text, WHOLE.includes(name));
    if (num > least && num <= most) return num;
    if (text !== "") odd.push(`${text} must be above ${least} and at most ${most}; using ${usual ?? "none"}.`);
    return usual;
  };
  return { odd, dollars: number("dollars", 1e6), tokens: number("tokens", 1e15), hours: number("hours", 24),
    goalTokens: number("goalTokens", 1e6), goalS: number("goalSeconds", 1e6) };
}

function drawDecide() {
  if (root.dataset.tab !== "decide") return;
  const now = [S.race, S.sides[1], S.header, S.recording, S.live, S.chosen, S.complete];
  if (now.every((value, i) => value === decided[i]) && decided.length) return;
  decided = now;
  fillBoxes();
  const answer = S.live || isBeingMade() ? null : answerNow();
  refs.answer.hidden = refs.decide.hidden = !answer;
  write(refs.decideWaits, answer ? "" : whyNoAnswer());
  if (!answer) return;
  const inputs = entered();
  for (const box of dayBoxes) box.hidden = isOfServers(S.header);       // what a server writes in a day is not known
  refs.answer.dataset.tone = answer.subject.canServe ? answer.tone : "doubtful";
  put(refs, { ...answerValues(answer, inputs), ...moneyValues(answer, inputs), ...productionValues(answer) });
}

function whyNoAnswer() {
  if (S.live) return "Verdict, money and commands follow after the race.";
  if (isBeingMade())
    return "Still computing what other draft lengths would give. Verdict, money and commands follow when that is "
      + "final.";
  return "There is nothing to compare: this race needs a plain lane and a speculative lane with at least one token.";
}

// Verdict, caveats, what measures a load, and what only this engine can do.
function answerValues(answer, { odd }) {
  const noise = noiseWords(answer.noise), lengths = whatIfOf();         // a sentence if there are no tables
  const isOther = answer.subject.canServe && answer.subject.lane !== S.sides[1];
  const scope = `${isOther ? "What a server can run, not the race above: " : ""}${answer.scope}`;
  return { answerScope: `${scope}, one prompt${noise && `; noise of the ratio ${noise}`}`,
    decideSays: verdictWords(answer), decideCaution: [...odd, answer.caution].filter(Boolean).join(" "),
    answerBatch: answer.isEvidence ? SAYS.one_text : NO_LOOP,
    answerElse: [othersWords(answer), typeof lengths === "string" && lengths].filter(Boolean).join(" ") };
}

function rowOf([words, term, ...cells]) {
  const row = Object.assign(tableRow([words], cells), { title: term });
  row.firstChild.scope = "row";
  return row;
}

function moneyValues(answer, inputs) {
  const { device } = S.header, { dollars } = inputs, isCpu = device.type === "cpu";
  const options = [["", "GPU prices"], ...pricesFor(device)].map(([value, words]) =>
    Object.assign(make("option", "", words), { value, selected: value === String(dollars) }));
  return { gpus: options, priceNote: priceWords(dollars, device), decideOther: choiceWords(answer.subject),
    moneyHead: isCpu ? "Money, from a race on a CPU" : "Money", moneyBasis: isCpu ? CPU_BASIS : "",
    decideRows: moneyRows(answer, inputs, device.type).map(rowOf),
    decideFormula: hasDollars(answer, inputs) ? FORMULA : "" };
}

// A command in which lines break only between options.
const commandBox = (text) => make("pre", "pf-serve-command",
  ...text.split(/(?<= )(?=--)/).map((word) => make("span", "", word)));

const serverSection = ({ name, version, command, notes }) => make("section", "pf-serve",
  make("h4", "pf-serve-head", name, " ", make("span", "pf-serve-version", `${version}, checked ${CHECKED}`),
    command && makeButton("pf-button", "Copy", ({ target }) => copyFrom(target, command),
      { ariaLabel: `Copy the command for ${name}` })),
  command && commandBox(command), notes.length > 0 && make("p", "pf-note", notes.join(" ")));

function productionValues(answer) {
  const nothing = answer.subject.canServe && !isOfServers(S.header) && nothingWords(answer);
  if (nothing) return { serveNotes: nothing, serve: [], serveLoad: "" };
  const { servers, notes, asIf: loadTest } = productionOf(S.recording ?? S.header, answer.subject);
  return { serveNotes: notes.join(" "), serve: servers.map(serverSection), serveLoad: loadTest };
}

for (const box of boxes.values()) box.addEventListener("input", keepBox);
refs.gpus.addEventListener("change", () => {
  boxes.get("dollars").value = refs.gpus.value;
  keepBox({ target: boxes.get("dollars") });
});
on("tab", drawDecide);
on("painted", drawDecide);
