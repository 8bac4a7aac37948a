// The tab "Decide": what the race on the screen would save, and commands to serve it. Drawn when open; the visitor's
// input stays in this browser.

import { isNoise, loopSentence, ratioNoise } from "../base/caveats.js";
import { copy, makeButton, tableRow } from "../base/dom.js";
import { isElsewhere, laneSpec, metricsOf, sum } from "../base/model.js";
import { DECIDE_KEY, remember, rememberedJson } from "../base/storage.js";
import { make, rate, write } from "../base/text.js";
import { laneTitle } from "../base/words.js";
import { on, root } from "../board/root.js";
import { board, refs } from "../board/screen.js";
import { S } from "../board/state.js";
import {
  dayOf, dollarWords, hourWords, listPrice, needWords, percent1, perThousand, savedBy, secondsFor, sourceFigures,
  speedupNeeded, usersAt,
} from "./money.js";
import { CHECKED, memoryKnown, memoryOf, OLD_FLAGS, productionOf } from "./production.js";

const ENTERED = { dollars: "", tokens: "10000000", hours: "24", wanted: "30", goalTokens: "200", goalSeconds: "2" };
const ENTER_A_PRICE = "enter a price";
const boxes = new Map([...root.querySelectorAll("[data-decide]")].map((node) => [node.dataset.decide, node]));
let decided = [];       // what the tab was drawn from
const typed = { ...rememberedJson(DECIDE_KEY) };         // the visitor's input, by box

// Fill the boxes with earlier input or defaults; the default price is the device's.
function fillBoxes() {
  const price = listPrice(S.header?.device);
  const usual = { ...ENTERED, dollars: price ? String(price.dollars) : "" };
  for (const [name, box] of boxes) {
    const value = typeof typed[name] === "string" ? typed[name] : usual[name];
    if (box !== document.activeElement && box.value !== value) box.value = value;
  }
  write(refs.priceSource, typed.dollars ? "your price" : price ? `about; ${price.source}` : ENTER_A_PRICE);
}

function keepBox({ target }) {
  if (target.value === "") delete typed[target.dataset.decide]; else typed[target.dataset.decide] = target.value;
  remember(DECIDE_KEY, JSON.stringify(typed));
  decided = [];
  drawDecide();
}

// The numbers in the boxes; the default (null for the price) where one is invalid, with a sentence in `odd`.
function entered() {
  const odd = [];
  const number = (name, most) => {
    const { value: text } = boxes.get(name), usual = ENTERED[name] === "" ? null : Number(ENTERED[name]);
    if (Number(text) > 0 && Number(text) <= most) return Number(text);
    if (text !== "") odd.push(`${text} must be above 0 and at most ${most}; using ${usual ?? "no price"}.`);
    return usual;
  };
  return { odd, dollars: number("dollars", 1e6), tokens: number("tokens", 1e15), hours: number("hours", 24),
    wanted: number("wanted", 1e6), goalTokens: number("goalTokens", 1e6), goalS: number("goalSeconds", 1e6) };
}

// {name, steps, tokensPerS, prefillS} of the faster plain lane and of the speculative one; null if there is none.
function lanesToPrice() {
  const of = (name) => {
    const lane = S.race.lane(name), found = lane && (S.metrics?.[name] ?? metricsOf(lane, lane.steps.length));
    return found?.tokens_per_s > 0 ? { name: laneTitle(name, S.first, S.sides), steps: lane.steps,
      tokensPerS: found.tokens_per_s, prefillS: found.prefill_s ?? 0 } : null;
  };
  const plain = [of(S.first.plain), S.first.baseline ? of(S.first.baseline) : null].filter(Boolean)
    .sort((a, b) => b.tokensPerS - a.tokensPerS)[0] ?? null;
  return { plain, other: isElsewhere(S.header, S.sides[1]) ? null : of(S.sides[1]) };
}

function drawDecide() {
  if (root.dataset.tab !== "decide") return;
  const now = [S.race, S.sides[1], S.header, S.recording, S.live, S.metrics];
  if (now.every((value, i) => value === decided[i]) && decided.length) return;
  decided = now;
  fillBoxes();
  const { plain, other } = lanesToPrice(), ready = !S.live && plain && other;
  refs.decide.hidden = !ready;
  write(refs.decideWaits, ready ? "" : S.live ? "Shown after the race." :
    isElsewhere(S.header, S.sides[1]) ? "The right lane ran on a server and Plain ran here. Savings can only be "
      + "computed for one program on one device." :
    "There is nothing to compare: this race needs a plain lane and a speculative lane with at least one token.");
  if (!ready) return;
  drawMoney(plain, other);
  const lane = laneSpec(S.header, S.sides[1]);
  drawProduction(productionOf(S.header, lane, other.steps));
  drawMemory(lane, sum(other.steps.map((step) => step.token_ids.length)),
    usersAt(other.tokensPerS, entered().wanted));
}

// The drafter's memory, if the race recorded it. numUsers: as in the table of costs.
function drawMemory(lane, numTokens, numUsers) {
  const { rows, words } = memoryKnown(S.header, lane) ?
    memoryOf(S.header.drafter_bytes[lane.name], S.header.prompt.token_ids.length + numTokens, numUsers) :
    { rows: [], words: "" };
  refs.memory.hidden = !rows.length;
  refs.memoryUsers.hidden = numUsers < 2;
  write(refs.memoryUsers, `${numUsers} users`);
  refs.memoryRows.replaceChildren(...rows.map(([what, ...cells]) => rowOf(what, "", cells)));
  write(refs.memoryWords, words);
}

function rowOf(words, term, cells) {
  const row = tableRow([words], cells);
  row.firstChild.scope = "row";
  row.title = term;
  return row;
}

function drawMoney(plain, other) {
  const inputs = entered(), [a, b] = [plain, other].map((lane) => dayOf(lane.tokensPerS, inputs));
  const saved = savedBy(a, b);
  const priced = inputs.dollars !== null, cash = (value) => (priced ? dollarWords(value) : ENTER_A_PRICE);
  const per = (value) => (priced ? perThousand(value) : ENTER_A_PRICE);
  const year = (day, whole) => (priced ? `${dollarWords(day)}, ${dollarWords(whole)} a year` : "");
  const machines = ({ machines: n, whole }) => `${n.toFixed(2)}: rent ${whole}`;
  const users = [plain, other].map((lane) => usersAt(lane.tokensPerS, inputs.wanted));
  const inTime = [plain, other].map((lane) => secondsFor(lane, inputs.goalTokens));
  const goal = (time) => `${time.toFixed(2)} s: ${time <= inputs.goalS ? "yes" : "no"}`;
  const need = speedupNeeded(plain, other.prefillS, inputs.goalTokens, inputs.goalS);
  const rows = [
    ["tokens per second", "for one text at a time", rate(plain.tokensPerS), rate(other.tokensPerS),
      `${(other.tokensPerS / plain.tokensPerS).toFixed(2)}\u00d7`],
    ["1,000 tokens", "$/1k", per(a.perMillion), per(b.perMillion), percent1(saved.share)],
    ["1,000,000 tokens", "$/1M", cash(a.perMillion), cash(b.perMillion), percent1(saved.share)],
    ["machine hours per day", "to write the day's tokens on one machine",
      ...[a.workHours, b.workHours, a.workHours - b.workHours].map(hourWords)],
    ["machines (GPUs)", "machine hours / hours per day; only whole machines can be rented", machines(a), machines(b),
      String(a.whole - b.whole)],
    ["cost per day, by use", "paying only for the machine hours", cash(a.byWork), cash(b.byWork),
      year(saved.byWork, saved.byWorkYear)],
    ["cost per day, rented", "whole machines for all hours per day", cash(a.rented), cash(b.rented),
      year(saved.rented, saved.rentedYear)],
    [`users at ${inputs.wanted} tok/s each`,
      "lane speed / user speed, rounded down; users take turns", String(users[0]), String(users[1]),
      `${users[1] < users[0] ? "" : "+"}${users[1] - users[0]}`],
    [`${inputs.goalTokens} tokens under ${inputs.goalS} s`, "latency: reading the prompt, then this many tokens",
      goal(inTime[0]), goal(inTime[1]), need === null ? "impossible: reading the prompt already takes longer" :
        inTime[0] <= inputs.goalS ? "Plain is enough" : `needs ${needWords(need)}\u00d7`],
  ];
  write(refs.decidePlain, plain.name);
  write(refs.decideOther, other.name);
  refs.decideRows.replaceChildren(...rows.map(([words, term, ...cells]) => rowOf(words, term, cells)));
  const less = (value, words) => `${words(Math.abs(value))} ${value < 0 ? "more" : "less"}`;
  write(refs.decideSays, `${less(saved.share, percent1)} machine time for the same tokens${priced ?
    `: ${less(saved.byWork, dollarWords)} a day by use, ${less(saved.rented, dollarWords)} rented` : ""}.`);
  write(refs.decideCaution, [...inputs.odd, ...moneyCautions(plain, other)].join(" "));
  const shown = (lane) => `1,000,000 / ${rate(lane.tokensPerS)} tok/s \u00d7 $${inputs.dollars} / 3,600`;
  write(refs.decideFormula, priced ? [[plain, a], [other, b]].map(([lane, day]) =>
    `${lane.name}: ${shown(lane)} = ${dollarWords(day.perMillion)}.`).join(" ") :
    "1,000,000 / tok/s \u00d7 $ per hour / 3,600. Enter a price.");
}

// The ratio's caveats apply to the money too.
function moneyCautions(plain, other) {
  const noise = ratioNoise(plain.steps, other.steps);
  return [isNoise(other.tokensPerS / plain.tokensPerS, noise) ?
    `The difference is within the noise (\u00b1${(100 * noise).toFixed(0)} %), so this race shows no saving.` : "",
  S.disturbed && "The machine was disturbed: do not quote these figures.",
  S.header.synthetic?.includes(S.sides[1])
    && "The drafts are made up: this is what a real drafter of that accuracy would save.",
  loopSentence(other.steps.flatMap((step) => step.token_ids))].filter(Boolean);
}

function copyButton(what, text) {
  const button = makeButton("pf-button", "Copy", async () => {
    if (await copy(button, text)) board.announce("Copied.");
    else board.alert("This browser blocks copying. Select the text instead.");
  });
  button.setAttribute("aria-label", `Copy the ${what}`);
  return button;
}

// A command in which lines break only between options.
function commandBox(text) {
  const box = make("pre", "pf-serve-command");
  box.append(...text.split(/(?<= )(?=--)/).map((word) => make("span", "", word)));
  return box;
}

function snippet(title, words, text, notes) {
  const box = make("section", "pf-serve"), head = make("h4", "pf-serve-head", title);
  head.append(" ", make("span", "pf-serve-version", words));
  if (text !== null) head.append(copyButton(title === words ? title : `command for ${title}`, text));
  box.append(head);
  if (text !== null) box.append(commandBox(text));
  if (notes.length) box.append(make("p", "pf-note", notes.join(" ")));
  return box;
}

function drawProduction({ servers, client, notes }) {
  write(refs.serveNotes, notes.join(" "));
  refs.serve.replaceChildren(...servers.map(({ name, version, command, notes: about }) =>
    snippet(name, `${version}, checked ${CHECKED}`, command, about)));
  refs.client.hidden = client === null;
  refs.clientRows.replaceChildren(...(client ? [snippet("curl", "this race's request", client.curl, []),
    snippet("Python", "package openai", client.python, ["Servers use other random numbers, so above temperature 0 "
      + "the text may differ."])] : []));
  write(refs.serveOld, servers.length ? OLD_FLAGS : "");
}

refs.sources.replaceChildren(...sourceFigures().map(([what, printed, known]) => rowOf(what, "", [printed, known])));
for (const box of boxes.values()) box.addEventListener("input", keepBox);
on("tab", drawDecide);
on("painted", drawDecide);
