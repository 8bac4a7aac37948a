// The tab "Decide": the race's answer, what it would save, and commands to serve it. Drawn when open; the visitor's
// input stays in this browser.

import { CHECKED, SAYS } from "../host.js";
import { makeButton, tableRow } from "../base/dom.js";
import { isOfServers } from "../base/model.js";
import { DECIDE_KEY, rememberedJson, rememberJson } from "../base/storage.js";
import { make, numberIn, write } from "../base/text.js";
import { on, root } from "../board/root.js";
import { copyFrom, refs } from "../board/screen.js";
import { S } from "../board/state.js";
import { choiceWords, noiseWords, nothingWords, othersWords, verdictWords } from "./answer.js";
import { hasDollars, moneyRows } from "./money.js";
import { pricesFor, priceWords } from "./prices.js";
import { productionOf } from "./production.js";
import { answerNow, isBeingMade, whatIfOf } from "./whatif_tab.js";

const ENTERED = { dollars: "", tokens: "10000000", hours: "24", goalTokens: "200", goalSeconds: "2" };
const WHOLE = ["tokens", "goalTokens"];
const dayBoxes = root.querySelectorAll("[data-day]");
const boxes = new Map([...root.querySelectorAll("[data-decide]")].map((node) => [node.dataset.decide, node]));
const NO_LOOP = "Nothing follows from it: race a text that does not repeat itself. Prose needs a temperature, such as "
  + "0.8 in Settings.";
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
  rememberJson(DECIDE_KEY, typed);
  decided = [];
  drawDecide();
}

function offerPrices({ device }, { dollars }) {
  refs.gpus.replaceChildren(...[["", "GPU prices"], ...pricesFor(device)].map(([value, words]) =>
    Object.assign(make("option", "", words), { value, selected: value === String(dollars) })));
  write(refs.priceNote, priceWords(dollars, device));
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
  const isEarly = S.live || isBeingMade();         // the tables may bring a better option
  const answer = isEarly ? null : answerNow();
  refs.answer.hidden = refs.decide.hidden = !answer;
  write(refs.decideWaits, answer ? "" : S.live ? "Verdict, money and commands follow after the race." : isEarly ?
    "Still computing what other draft lengths would give. Verdict, money and commands follow when that is final." :
    "There is nothing to compare: this race needs a plain lane and a speculative lane with at least one token.");
  if (!answer) return;
  const inputs = entered();
  for (const box of dayBoxes) box.hidden = isOfServers(S.header);       // what a server writes in a day is not known
  offerPrices(S.header, inputs);
  drawAnswer(answer, inputs);
  drawMoney(answer, inputs);
  const nothing = answer.subject.canServe && !isOfServers(S.header) && nothingWords(answer);
  drawProduction(nothing ? { servers: [], notes: [nothing], asIf: "" } :
    productionOf(S.recording ?? S.header, answer.subject));
}

// Verdict, caveats, what measures a load, and what only this engine can do.
function drawAnswer(answer, inputs) {
  refs.answer.dataset.tone = !answer.subject.canServe ? "doubtful" : answer.tone;
  const noise = noiseWords(answer.noise);
  write(refs.answerScope, `${answer.scope}, one prompt${noise ? `; noise of the ratio ${noise}` : ""}`);
  write(refs.decideSays, verdictWords(answer));
  write(refs.decideCaution, [...inputs.odd, answer.caution].filter(Boolean).join(" "));
  write(refs.answerBatch, answer.isEvidence ? SAYS.one_text : NO_LOOP);
  const lengths = whatIfOf();         // a sentence if there are no tables
  write(refs.answerElse, [othersWords(answer), typeof lengths === "string" && lengths].filter(Boolean).join(" "));
}

function rowOf([words, term, ...cells]) {
  const row = tableRow([words], cells);
  row.firstChild.scope = "row";
  row.title = term;
  return row;
}

function drawMoney(answer, inputs) {
  const { type } = S.header.device;
  write(refs.decideOther, choiceWords(answer.subject));
  write(refs.moneyHead, type === "cpu" ? "Money, from a race on a CPU" : "Money");
  write(refs.moneyBasis, type === "cpu" ? "Take the percentages. Dollars are at this CPU's speed: for a GPU's, race on "
    + "the GPU that you would rent." : "");
  refs.decideRows.replaceChildren(...moneyRows(answer, inputs, type).map(rowOf));
  write(refs.decideFormula, hasDollars(answer, inputs) ? "$ per 1,000,000 tokens = 1,000,000 / tok/s \u00d7 $ per hour "
    + "/ 3,600." : "");
}

function copyButton(what, text) {
  const button = makeButton("pf-button", "Copy", () => copyFrom(button, text));
  button.setAttribute("aria-label", `Copy the ${what}`);
  return button;
}

// A command in which lines break only between options.
const commandBox = (text) => make("pre", "pf-serve-command",
  ...text.split(/(?<= )(?=--)/).map((word) => make("span", "", word)));

const snippet = (title, words, text, notes) => make("section", "pf-serve",
  make("h4", "pf-serve-head", title, " ", make("span", "pf-serve-version", words),
    text !== null && copyButton(title === words ? title : `command for ${title}`, text)),
  text !== null && commandBox(text),
  notes.length > 0 && make("p", "pf-note", notes.join(" ")));

function drawProduction({ servers, notes, asIf: loadTest }) {
  write(refs.serveNotes, notes.join(" "));
  refs.serve.replaceChildren(...servers.map(({ name, version, command, notes: about }) =>
    snippet(name, `${version}, checked ${CHECKED}`, command, about)));
  write(refs.serveLoad, loadTest);
}

for (const box of boxes.values()) box.addEventListener("input", keepBox);
refs.gpus.addEventListener("change", () => {
  boxes.get("dollars").value = refs.gpus.value;
  keepBox({ target: boxes.get("dollars") });
});
on("tab", drawDecide);
on("painted", drawDecide);
