// What a lane's speed is worth, one text at a time: machine time, latency and dollars. Formulas in docs/yours.md.
// And what GPUs cost. Pure: no DOM.

import { oneLine, rate } from "../base/text.js";

const SECONDS_AN_HOUR = 3600;
const DAYS_A_YEAR = 365;

// One lane's day. dollars: per machine and hour; tokens: per day; hours: of service per day. In the
// result, machines: needed for the work; whole: the same, rounded up for renting.
export function dayOf(tokensPerS, { dollars, tokens, hours }) {
  const work = tokens / tokensPerS / SECONDS_AN_HOUR, machines = work / hours;
  const whole = Math.max(1, Math.ceil(machines - 1e-9));
  return { perMillion: 1e6 / tokensPerS * dollars / SECONDS_AN_HOUR, workHours: work, machines, whole,
    byWork: work * dollars, rented: whole * hours * dollars };
}

// The second day's savings, as a share of the work and in dollars.
export function savedBy(plain, guessing) {
  const byWork = plain.byWork - guessing.byWork, rented = plain.rented - guessing.rented;
  return { share: 1 - guessing.workHours / plain.workHours, byWork, rented, byWorkYear: byWork * DAYS_A_YEAR,
    rentedYear: rented * DAYS_A_YEAR };
}

// Whether dollars are said: a price was entered, and a server can save some of it.
export const hasDollars = ({ subject, saves }, { dollars }) => dollars !== null && saves && subject.ratio > 1;

// The table of savings: [words, what it means, plain, lane, savings]. answer: see answerOf; inputs: as entered, dollars
// null without a price. device: the type.
export function moneyRows(answer, inputs, device) {
  const { plain, subject, tone, isEvidence, work } = answer;
  const speeds = ["tokens per second", "one text at a time", rate(plain.tokensPerS), rate(subject.tokensPerS),
    `${subject.ratio.toFixed(2)}\u00d7`];
  const time = [...work?.startsWith(" time") ? ["time per answer", "of equal length, one user"] :
    ["machine time", work ? "one text at a time" : "for the same tokens, one text at a time"], "100 %"];
  if (!isEvidence || tone === "even")
    return [speeds, [...time, "\u2013", isEvidence ? "within the noise" : "no result"]];
  const inTime = [plain, subject].map((lane) => secondsFor(lane, inputs.goalTokens));
  const goal = (seconds) => `${seconds.toFixed(2)} s: ${seconds <= inputs.goalS ? "yes" : "no"}`;
  const need = speedupNeeded(plain, subject.prefillS, inputs.goalTokens, inputs.goalS);
  return [
    speeds, [...time, percent1(1 / subject.ratio),
      subject.canServe || subject.ratio < 1 ? wasteWords(subject.ratio, "") : "this engine alone"],
    [`${inputs.goalTokens} tokens under ${inputs.goalS} s`, "latency: reading the prompt, then this many tokens",
      goal(inTime[0]), goal(inTime[1]), need === null ? "impossible: reading the prompt already takes longer" :
        inTime[0] <= inputs.goalS ? "Plain is enough" : `needs ${needWords(need)}\u00d7`],
    ...device === "server" ? [] : dayRows(answer, inputs, device === "cuda"),
  ];
}

// What a day's work costs. Dollars a year only from a GPU; each row says if it rests on a CPU.
function dayRows(answer, inputs, isGpu) {
  const [a, b] = [answer.plain, answer.subject].map(({ tokensPerS }) => dayOf(tokensPerS, inputs));
  const saved = savedBy(a, b);
  const machines = ({ machines: n, whole }) => `${n.toFixed(2)}: rent ${whole}`;
  const year = (day, whole) => `${dollarWords(day)}${isGpu ? `, ${dollarWords(whole)} a year` : ""}`;
  return [
    ["machine hours per day", "to write the day's tokens, one text at a time",
      ...[a.workHours, b.workHours, a.workHours - b.workHours].map((hours) => `${hours.toFixed(1)} h`)],
    [isGpu ? "machines (GPUs)" : "machines", "machine hours / hours per day; only whole machines can be rented",
      machines(a), machines(b), String(a.whole - b.whole)],
    ...hasDollars(answer, inputs) ? [
      ["1,000,000 tokens", "$/1M", dollarWords(a.perMillion), dollarWords(b.perMillion), percent1(saved.share)],
      ["per day, billed by the second", "paying only for the machine hours", dollarWords(a.byWork),
        dollarWords(b.byWork), year(saved.byWork, saved.byWorkYear)],
      ["per day, rented by the hour", "whole machines for all hours per day", dollarWords(a.rented),
        dollarWords(b.rented), year(saved.rented, saved.rentedYear)]] : [],
  ].map(([words, ...rest]) => [isGpu ? words : `${words} (on this CPU)`, ...rest]);
}

// The machine time saved at this ratio: "46.5 % less machine time for the same tokens".
export function wasteWords(ratio, what = " machine time for the same tokens") {
  const change = Math.abs(1 - 1 / ratio);
  if (change < 0.0005) return what ? `as much${what}` : "no change";
  return `${percent1(change)} ${ratio < 1 ? "more" : "less"}${what}`;
}

export function secondsFor(lane, goalTokens) { return lane.prefillS + goalTokens / lane.tokensPerS; }

// The speed-up over plain needed to write goalTokens within goalS seconds, prefill included; null if prefill alone
// takes longer.
export function speedupNeeded(plain, prefillS, goalTokens, goalS) {
  return goalS > prefillS ? goalTokens / (goalS - prefillS) / plain.tokensPerS : null;
}

// To the cent; from $1,000 to the dollar.
export function dollarWords(value) {
  const digits = Math.abs(value) < 1000 ? 2 : 0;
  return (value < 0 ? "-$" : "$") + Math.abs(value).toLocaleString("en-US",
    { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function percent1(share) { return `${(100 * share).toFixed(1)}\u00a0%`; }

// "1.71": rounded up, so that it is enough.
export function needWords(speedup) { return (Math.ceil(100 * speedup - 1e-9) / 100).toFixed(2); }

// What one GPU costs to rent on demand, in dollars an hour: as its provider's page had it on the day `read`, by public
// transcripts (tgarg01/silybench-data, datareceipts/data-receipts, api-evangelist/runpod and modal-labs). device: the
// end of its name in CUDA. No two cost the same.
const RUNPOD = "Runpod Secure Cloud, runpod.io/pricing", MODAL = "Modal without CPU and memory, modal.com/pricing";
export const PRICES = [
  { gpu: "H200", dollars: 4.59, source: RUNPOD, read: "2026-10-07", device: /H200$/ },
  { gpu: "H100 SXM", dollars: 3.99, source: RUNPOD, read: "2026-11-09", device: /H100 80GB HBM3$/ },
  { gpu: "H100 PCIe", dollars: 2.89, source: RUNPOD, read: "2026-11-09", device: /H100 PCIe$/ },
  { gpu: "A100 80 GB", dollars: 1.79, source: RUNPOD, read: "2026-11-09", device: /A100.80GB PCIe$|A100-SXM4-80GB$/ },
  { gpu: "L40S", dollars: 1.09, source: RUNPOD, read: "2026-09-25", device: /L40S$/ },
  { gpu: "L4", dollars: 0.8, source: MODAL, read: "2026-07-01", device: /L4$/ },
  { gpu: "RTX 4090", dollars: 0.74, source: RUNPOD, read: "2026-09-25", device: /RTX 4090$/ },
];

// The list to choose from, as [dollars, words]; the price of the race's own GPU comes first.
export const pricesFor = ({ name }) => PRICES.toSorted((a, b) => b.device.test(name) - a.device.test(name))
  .map(({ gpu, dollars, source, read }) =>
    [String(dollars), `${gpu}: ${dollarWords(dollars)} (${source.split(" ")[0]}, ${read})`]);

// Where the entered price is from, and of what the speeds are if that is another device; "" if it is not in the list.
export function priceWords(entered, { name }) {
  const { gpu, dollars, source, read, device } = PRICES.find((price) => price.dollars === entered) ?? {};
  return gpu ? `${gpu}: ${dollarWords(dollars)} an hour on demand (${source}, ${read}).${
    device.test(name) ? "" : ` The speeds are of another device: ${oneLine(name)}.`}` : "";
}
