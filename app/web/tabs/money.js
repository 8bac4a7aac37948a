// What a lane's speed is worth: dollars, machines, users, latency. One text at a time on one machine; formulas in
// docs/decide.md. Pure: no DOM.

const SECONDS_AN_HOUR = 3600;
const DAYS_A_YEAR = 365;

// On-demand price of one GPU per hour: [device name, dollars, source]. From the cheaper lists, so as not to inflate
// savings.
const LIST_PRICES = [
  [/\bB200\b/, 6.79, "RunPod, October 2026"],
  [/\bH200\b/, 4.59, "RunPod, October 2026"],
  [/\bH100 PCIe\b/, 2.89, "RunPod, November 2026"],
  [/\bH100\b/, 3.99, "RunPod, November 2026"],
  [/\bA100\b/, 1.79, "RunPod, November 2026"],
];

// {dollars, source} for a recording's device; null for a CPU or an unlisted GPU.
export function listPrice(device) {
  const found = device?.type === "cuda" && LIST_PRICES.find(([name]) => name.test(device.name));
  return found ? { dollars: found[1], source: found[2] } : null;
}

function costPerMillion(tokensPerS, dollars) { return 1e6 / tokensPerS * dollars / SECONDS_AN_HOUR; }

// One lane's day. dollars: per machine and hour, null if unknown; tokens: per day; hours: of service per day. In the
// result, machines: needed for the work; whole: the same, rounded up for renting.
export function dayOf(tokensPerS, { dollars, tokens, hours }) {
  const work = tokens / tokensPerS / SECONDS_AN_HOUR, machines = work / hours;
  const whole = Math.max(1, Math.ceil(machines - 1e-9));
  const priced = (value) => (dollars === null ? null : value);
  return { perMillion: priced(costPerMillion(tokensPerS, dollars)), workHours: work, machines, whole,
    byWork: priced(work * dollars), rented: priced(whole * hours * dollars) };
}

// The second day's savings, as a share of the work and in dollars.
export function savedBy(plain, other) {
  const dollars = (name) => (plain[name] === null ? null : plain[name] - other[name]);
  return { share: 1 - other.workHours / plain.workHours, byWork: dollars("byWork"), rented: dollars("rented"),
    byWorkYear: plain.byWork === null ? null : dollars("byWork") * DAYS_A_YEAR,
    rentedYear: plain.rented === null ? null : dollars("rented") * DAYS_A_YEAR };
}

// How many users, served in turns, get `wanted` tokens per second each.
export function usersAt(tokensPerS, wanted) { return Math.floor(tokensPerS / wanted + 1e-9); }

export function secondsFor(lane, goalTokens) { return lane.prefillS + goalTokens / lane.tokensPerS; }

// The speed-up over plain needed to write goalTokens within goalS seconds, prefill included; null if prefill alone
// takes longer.
export function speedupNeeded(plain, prefillS, goalTokens, goalS) {
  return goalS > prefillS ? goalTokens / (goalS - prefillS) / plain.tokensPerS : null;
}

// Figures published elsewhere: [what, as printed, as computed here].
export function sourceFigures() {
  const day = { dollars: 5, tokens: 10e6, hours: 24 }, [slow, fast] = [100, 250].map((speed) => dayOf(speed, day));
  const [saved, day9b] = [savedBy(slow, fast), [145, 424].map((speed) => dayOf(speed, day))];
  const study = (dollars) => [2620.89, 3250.07].map((speed) => costPerMillion(speed, dollars));
  const both = (values, words) => values.map(words).join(" \u2192 "), less = (pair) => percent1(1 - pair[1] / pair[0]);
  const each = (name, words) => both([slow[name], fast[name]], words);
  const cost = ({ perMillion }) => `${perThousand(perMillion)} / 1k, ${dollarWords(perMillion)} / 1M`;
  return [
    ["100 tokens/s at $5 an hour", "$0.05 / 1k", cost(slow)],
    ["250 tokens/s at $5 an hour", "$0.02 / 1k", cost(fast)],
    ["10M tokens a day", "$500 \u2192 $200 a day", each("byWork", dollarWords)],
    ["saved a year", "$109,500", `${dollarWords(saved.byWorkYear)} (${percent1(saved.share)} stands)`],
    ["GPUs needed, 24 hours", "one implied",
      `${each("machines", (n) => n.toFixed(2))} (${each("workHours", hourWords)})`],
    ["rented whole", "\u2013", `${each("whole", String)} GPUs: ${each("rented", dollarWords)} a day, `
      + `${dollarWords(saved.rentedYear)} a year`],
    ["145 \u2192 424 tokens/s at $5 an hour", "\u2013",
      `${both(day9b.map((one) => one.perMillion), dollarWords)} / 1M, ${percent1(savedBy(...day9b).share)} less`],
    ["gpt-oss-120b, EAGLE-3 at $41.62 an hour", "$4.41 \u2192 $3.56 / 1M", `right: ${both(study(41.62), dollarWords)}, `
      + `${less(study(41.62))} less. But that is the price of eight GPUs, and the study used one: about `
      + `${both(study(41.62 / 8), dollarWords)}`],
  ];
}

// To the cent; from $1,000 to the dollar.
export function dollarWords(value) {
  if (value === null) return "–";
  const digits = Math.abs(value) < 1000 ? 2 : 0;
  return (value < 0 ? "-$" : "$") + Math.abs(value).toLocaleString("en-US",
    { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function perThousand(perMillion) { return perMillion === null ? "–" : `$${(perMillion / 1000).toFixed(5)}`; }
export function percent1(share) { return `${(100 * share).toFixed(1)} %`; }
export function hourWords(hours) { return `${hours.toFixed(1)} h`; }

// "1.71": rounded up, so that it is enough.
export function needWords(speedup) { return (Math.ceil(100 * speedup - 1e-9) / 100).toFixed(2); }
