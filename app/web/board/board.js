// Everything around the texts: figures, ratio, track, verdict, acceptance, facts.

import { clockWords, isNoise, isOfServers, laneSpec, quotient, ruleOf, sides } from "../base/model.js";
import { ALONE, cut, differs, duration, fill, fixedWords, guessWords, laneTitle, make, oneLine, percent, plural, put,
  rate, RIBBONS, saysOf, sentence, tableRow, times, verdictWord, write } from "../base/text.js";

// Rows of the timing table: plain words, the technical term, the formatted value.
const TIMING = [
  ["tokens", "tokens written, the end token included", (lane) => String(lane.num_tokens)],
  ["tokens per second", "tokens / time of all steps, without reading the prompt", (lane) => rate(lane.tokens_per_s)],
  ["total, with prompt", "prefill and decoding", (lane) =>
    duration(lane.prefill_s === null ? null : lane.prefill_s + lane.decode_s)],
  ["reading the prompt", "prefill, including the drafter's", (lane) => duration(lane.prefill_s)],
  ["first token with prompt", "TTFT, time to first token", (lane) => duration(lane.ttft_s)],
  ["per token", "TPOT, time per output token", (lane) => duration(lane.tpot_s)],
  ["median step", "median step time", (lane) => duration(lane.itl_p50_s)],
  ["95 % of steps within", "95th percentile of step times", (lane) => duration(lane.itl_p95_s)],
  ["steps", "passes of the model after the prompt", (lane) => String(lane.num_steps ?? "–")],
  ["tokens a step", "mean acceptance length", (lane) => lane.mean_acceptance_length?.toFixed(2) ?? "–"],
  ["guesses kept", "acceptance rate", (lane) => percent(lane.acceptance_rate)],
];

const NO_VERDICT = { ever: "No verdict: there is nothing to compare.",
  yet: "Are both texts the same? The verdict comes after the race." };
const SAME_AT_EVERY_LENGTH = { verdictWord: "The same text at every length",
  verdictRows: "every token is the model's own choice, whatever was guessed", verdictMeans: "" };
const RATIO_TERM = "How many times as fast as plain decoding: tokens per second divided, after reading the prompt. "
  + "From unrounded times. Plain runs twice, once at its fastest width, and the faster run counts (see Details, "
  + "Timing).";
const SIDES = ["left", "right"];

export class Board {
  constructor(root) {
    this.root = root;
    this.refs = {};
    root.querySelectorAll("[data-ref]").forEach((node) => { this.refs[node.dataset.ref] = node; });
    this.refs.ratioWords.title = RATIO_TERM;
    this.rows = Object.fromEntries(SIDES.map((side) =>
      [side, this.trackRow(make("div", `pf-track-row pf-track-${side}`))]));
  }

  // Put the row of a lane, an empty node, at the end of the track.
  trackRow(row) {
    const [name, run, then, count] = ["pf-track-name", "pf-run", "pf-then", "pf-track-count pf-num"]
      .map((className) => make("span", className));
    row.append(name, make("span", "pf-rail", run, then), count);
    this.refs.track.append(row);
    return { row, name, run, then, count };
  }

  // How much of a row is run.
  run(row, tokens, total) {
    row.run.style.clipPath = `inset(0 ${100 - 100 * (total ? Math.min(1, tokens / total) : 0)}% 0 0)`;
  }

  ribbon(words) {
    const node = this.refs.ribbon;
    if (node.dataset.words === words.join()) return;
    node.dataset.words = words.join();
    fill(this.refs, { ribbon: words.flatMap((word) =>
      [make("strong", "", oneLine(word)), make("span", "", RIBBONS[word] ?? "")]) });
    node.title = words.map((word) => RIBBONS[word] ?? "").join("; ");
  }

  status(state, words) {
    this.root.dataset.state = state;
    write(this.refs.statusText, oneLine(words));
  }

  announce(words) { write(this.refs.announce, words); }

  alert(words) {
    this.refs.alert.hidden = !words;
    write(this.refs.alertText, words);
  }

  title(name, header) {
    const { prompt, spec } = header ?? {}, params = spec?.params;
    const sampled = params?.temperature > 0, facts = [
      isOfServers(header) && header.model?.name,
      fixedWords(laneSpec(header, sides(spec?.lanes ?? [])[1])),
      prompt?.token_ids?.length > 0 && `${prompt.token_ids.length}-token prompt`, prompt?.chat && "as a chat message",
      params && (sampled ? `temperature ${+params.temperature.toFixed(2)}, seed ${params.seed}` : "greedy"),
      sampled && ruleOf(header) === "rejection" && "same probabilities (rejection)"].filter(Boolean).join(", ");
    put(this.refs, { titleName: cut(oneLine(name), 60), titleFacts: facts });
    const term = sampled ? "Temperature: how random the text is. The seed fixes the random numbers." :
      "Greedy: always the likeliest token.";
    this.refs.titleFacts.title = params ? `${facts}. ${term}` : "";
  }

  // first: the name of the first lane of each role
  names(header, sideNames, first) {
    this.root.toggleAttribute("data-servers", isOfServers(header));
    sideNames.forEach((name, i) => {
      const side = SIDES[i], lane = laneSpec(header, name), words = laneTitle(name, first);
      put(this.refs, { [`${side}Name`]: words, [`${side}TextName`]: words, [`${side}Kind`]: kindWords(side, lane) });
      write(this.rows[side].name, words);
      this.refs[`${side}Kind`].title = lane ?
        cut(oneLine(`${guessWords(lane)}; drafter ${lane.drafter}, k = ${lane.k}, rule ${lane.rule}`), 320) : "";
    });
  }

  // speedup: the engine's, once the race is over, else null; noise: ratioNoise of it, null if unknown; final: the
  // timing table is already final; not: why the ratio is no result, doubt: why not to quote it, else "".
  figures(metrics, speedup, sideNames, first, { noise = null, final = false, not = "", doubt = "" } = {}) {
    const now = compared(metrics, speedup, sideNames, first, noise), { root, refs } = this;
    const isNone = not !== "" && now.value !== null, speeds = [now.left, now.right].map((lane) => lane?.tokens_per_s);
    put(refs, { leftFigure: rate(speeds[0]), rightFigure: rate(speeds[1]),
      ratio: isNone ? "no result" : times(now.value), ratioWords: ratioWords(now, not, doubt) });
    SIDES.forEach((side, i) => refs[`${side}Figure`].classList.toggle("pf-none", !speeds[i]));
    root.dataset.sense = now.sense;
    root.toggleAttribute("data-no-result", isNone);
    root.toggleAttribute("data-unmarked", root.hasAttribute("data-servers")
      && (now.right?.acceptance_rate ?? null) === null);           // its server reports no drafts, or not yet
    if (!final)
      put(refs, { ttftNote: prefillWords(now), ...timing(metrics, sideNames, first, now.fastest !== now.left) });
  }

  // Warnings that belong to the ratio: see cautionsOf. verdict: of the lane on the right, once it is known.
  cautions({ whole, loop, copies, says }, verdict) {
    fill(this.refs, { disturbed: whole });
    write(this.refs.caution, says);
    this.root.toggleAttribute("data-doubted", Boolean(says || saysOf(verdict)?.no_result || differs(verdict)));
    this.refs.caution.title = [whole, loop, copies].filter(Boolean).join(" ");
  }

  // counts: tokens of each side; total: where the track ends; places: words for each side whose lane is over, and
  // `then`: the tokens of the side that was later when the other one, `by`, finished.
  track(counts, total, { then, ...places }, atLimit) {
    for (const [side, row] of Object.entries(this.rows)) {
      const num = counts[side], isLater = then[side] !== undefined, place = (100 * then[side]) / (total || 1);
      this.run(row, num, total);
      row.then.hidden = !isLater;
      row.then.style.left = `${place}%`;
      row.then.toggleAttribute("data-late", place > 60);
      if (isLater) row.then.replaceChildren(String(then[side]), make("span", "", ` when ${then.by} finished`));
      write(row.count, String(num));
      put(this.refs, { [`${side}Place`]: places[side],
        [`${side}Count`]: plural(num, "token") + (atLimit[side] ? " (limit)" : "") });
    }
  }

  // plain: the verdict on the lane that is not shown; again: for a recorded race that was run again, whether the tokens
  // were the same. isOver: no verdict will come; isComputed: of a computed race there is nothing to compare.
  verdict(verdict, plain, again = "", isOver = false, isComputed = false) {
    const { refs } = this, isKnown = saysOf(verdict) !== undefined;
    put(refs, verdictValues(verdict, plain, oneLine(again), isOver, isComputed));
    refs.verdict.dataset.kind = isKnown ? verdict.kind : "none";
    refs.verdict.toggleAttribute("data-again", Boolean(again));
    refs.proofOpen.disabled = !isKnown;
    refs.verdictMeans.title = oneLine(again);
  }

  facts(header) {
    if (!header) { write(this.refs.facts, ""); return; }
    const { model, device, widths, spec, created, commit } = header, params = spec?.params;
    const sampling = params ?
      [params.temperature > 0 ? `temperature ${params.temperature}, seed ${params.seed}` : "greedy (temperature 0)",
      !isOfServers(header) && `rule ${ruleOf(header)}`, `at most ${params.max_new_tokens} tokens`] : [];
    const parts = [model && `${model.name} in ${model.dtype}`, device && `on ${device.name}`, ...sampling,
      !isOfServers(header) && widths?.note,
      ...Object.entries(header.promises ?? {}).map(([lane, words]) => `${laneTitle(lane, {})}: ${words}`),
      created, commit && `commit ${commit}`, model?.licence && `licence: ${model.licence}`];
    put(this.refs, { timingNote: clockWords(header), facts: cut(oneLine(parts.filter(Boolean).join("; ")), 1200) });
  }
}

function kindWords(side, lane) {
  if (lane ? lane.drafter === "none" : side === "left") return "no guesses";
  return lane ? guessWords(lane) : "guesses ahead, then checks";
}

// Whether the hidden plain lane was faster than the one on the board.
export function plainIsFaster(metrics, sideNames, first) {
  return sideNames[0] !== first.plain && metrics?.[first.plain]?.tokens_per_s > metrics?.[sideNames[0]]?.tokens_per_s;
}

// The lanes of a ratio, and what it is: value, null if it is unknown; sense; isWhole: of a race that is over, and then
// common: how many tokens both wrote, null if both wrote as many, or withPrompt: the ratio with reading the prompt.
function compared(metrics, speedup, sideNames, first, noise) {
  const [left, right, plain] = [...sideNames, first.plain].map((name) => metrics?.[name]);
  const fastest = plainIsFaster(metrics, sideNames, first) ? plain : left, isWhole = speedup !== null;
  const value = speedup ?? quotient(right?.tokens_per_s ?? null, fastest?.tokens_per_s ?? null);
  const counts = [fastest, right].map((lane) => lane?.num_tokens ?? 0), isEqual = counts[0] === counts[1];
  const whole = [fastest, right].map((lane) => (lane?.prefill_s > 0 ? lane.prefill_s + lane.decode_s : null));
  return { left, right, plain, fastest, value, noise, sense: senseOf(value, noise), isWhole,
    common: isWhole && !isEqual ? Math.min(...counts) : null,
    withPrompt: isWhole && isEqual ? quotient(...whole) : null };
}

function senseOf(ratio, noise) {
  if (ratio === null) return "none";
  if (Math.abs(ratio - 1) < 0.005 || isNoise(ratio, noise)) return "even";
  return ratio > 1 ? "faster" : "slower";
}

function ratioWords({ left, right, plain, fastest, value, noise, sense, isWhole, common, withPrompt }, not, doubt) {
  if (value === null) return "times as fast as plain";
  return [sense === "even" && noise > 0 && `no difference: the noise is \u00b1${(100 * noise).toFixed(0)} %; `,
    not && `${not}; it ran ${times(value)} as fast as plain: `,
    doubt && "do not quote: ",
    !not && sense === "slower" && "slower: ",
    common === null ? `${rate(right?.tokens_per_s)} against ${rate(fastest?.tokens_per_s)} tok/s`
      : `over the ${plural(common, "token")} that both wrote`,
    !not && plain && plain !== left && " in Plain's best run", !isWhole && ", so far",
    !not && withPrompt && `; ${times(withPrompt)} including the prompt`].filter(Boolean).join("");
}

// What reading the prompt costs.
function prefillWords({ left, right }) {
  const later = [left, right].every((lane) => typeof lane?.ttft_s === "number") ? right.ttft_s - left.ttft_s : 0;
  return later > 0.0005 && duration(left.ttft_s) !== duration(right.ttft_s) ?
    `With guesses the first token came ${duration(later)} later.` : "";
}

// The timing table, with all lanes. isAlone: the plain lane that is not shown was the faster one.
function timing(metrics, sideNames, first, isAlone) {
  const place = (name) => (sideNames.includes(name) ? sideNames.indexOf(name) : sideNames.length);
  const names = Object.keys(metrics ?? {}).sort((a, b) => place(a) - place(b));
  if (!names.length) return { timingHead: [], timing: [], fastest: "" };
  const heads = ["", ...names.map((name) => make("th", "", laneTitle(name, first, sideNames)))];
  const rows = TIMING.map(([words, term, value]) =>
    Object.assign(tableRow([words], names.map((name) => value(metrics[name]))), { title: term }));
  const hasTwo = names.includes(first.plain) && sideNames[0] !== first.plain;
  return { timingHead: [tableRow([], heads)], timing: rows, fastest: hasTwo ?
    "Plain uses the same widths as the speculative lane, which makes both texts exact. "
      + `\u201c${ALONE}\u201d uses the fastest width found before the race. The speed-up is against the faster of the `
      + `two: here ${isAlone ? `\u201c${ALONE}\u201d` : "Plain"}.` : "" };
}

function verdictValues(verdict, plain, again, isOver, isComputed) {
  const known = saysOf(verdict), none = NO_VERDICT[isOver ? "ever" : "yet"];
  return { verdictIcon: known?.sign ?? "", verdictMeans: again || known?.means || "",
    verdictWord: known ? verdictWord(verdict) : none,
    verdictRows: known ? oneLine(verdict.short) : "",
    verdictSentence: known ? sentence(oneLine(verdict.sentence)) : none,
    plainVerdict: plain ? `The plain lane not shown: ${oneLine(plain.sentence)}.` : "",
    ...isComputed ? SAME_AT_EVERY_LENGTH : {} };
}
