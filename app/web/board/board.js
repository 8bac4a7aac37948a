// Everything around the texts: figures, ratio, track, verdict, acceptance, facts.

import { clockWords, isNoise } from "../base/caveats.js";
import { tableRow } from "../base/dom.js";
import { isOfServers, laneSpec, quotient, ruleOf, sides } from "../base/model.js";
import { cut, duration, make, oneLine, percent, plural, rate, sentence, times, write } from "../base/text.js";
import { ALONE, differs, fixedWords, guessWords, laneTitle, RIBBONS, saysOf, verdictWord } from "../base/words.js";

// Rows of the timing table: plain words, the technical term, the formatted value.
const TIMING = [
  ["tokens", "tokens written, the end token included", (lane) => String(lane.num_tokens)],
  ["tokens per second", "tokens / time of all steps, without reading the prompt", (lane) =>
    rate(lane.tokens_per_s)],
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

export class Board {
  constructor(root) {
    this.root = root;
    this.refs = {};
    root.querySelectorAll("[data-ref]").forEach((node) => { this.refs[node.dataset.ref] = node; });
    this.rows = Object.fromEntries(["left", "right"].map((side) =>
      [side, this.trackRow(make("div", `pf-track-row pf-track-${side}`))]));
  }

  // Put the row of a lane, an empty node, at the end of the track.
  trackRow(row) {
    const [name, rail, run, then, count] = ["pf-track-name", "pf-rail", "pf-run", "pf-then", "pf-track-count pf-num"]
      .map((className) => make("span", className));
    rail.append(run, then);
    row.append(name, rail, count);
    this.refs.track.append(row);
    return { row, name, run, then, count };
  }

  fill(run, tokens, total) {
    run.style.clipPath = `inset(0 ${100 - 100 * (total ? Math.min(1, tokens / total) : 0)}% 0 0)`;
  }

  ribbon(words) {
    const node = this.refs.ribbon;
    node.hidden = words.length === 0;
    if (node.dataset.words === words.join()) return;
    node.dataset.words = words.join();
    node.replaceChildren(...words.flatMap((word) =>
      [make("strong", "", oneLine(word)), make("span", "", RIBBONS[word] ?? "")]));
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
    write(this.refs.titleName, cut(oneLine(name), 60));
    write(this.refs.titleFacts, facts);
    const term = sampled ? "Temperature: how random the text is. The seed fixes the random numbers." :
      "Greedy: always the likeliest token.";
    this.refs.titleFacts.title = params ? `${facts}. ${term}` : "";
  }

  // first: the name of the first lane of each role
  names(header, sideNames, first) {
    this.root.toggleAttribute("data-servers", isOfServers(header));
    sideNames.forEach((name, i) => {
      const side = i ? "right" : "left", lane = laneSpec(header, name), words = laneTitle(name, first);
      for (const ref of [`${side}Name`, `${side}TextName`]) write(this.refs[ref], words);
      write(this.rows[side].name, words);
      const drafts = lane ? lane.drafter !== "none" : i === 1;
      write(this.refs[`${side}Kind`], !drafts ? "no guesses" : lane ? guessWords(lane) : "guesses ahead, then checks");
      this.refs[`${side}Kind`].title = lane ?
        cut(oneLine(`${guessWords(lane)}; drafter ${lane.drafter}, k = ${lane.k}, rule ${lane.rule}`), 320) : "";
    });
  }

  // speedup: the engine's, once the race is over, else null; noise: ratioNoise of it, null if unknown; final: the
  // timing table is already final; not: why the ratio is no result, "" if it may be one.
  figures(metrics, speedup, sideNames, first, { noise = null, final = false, not = "" } = {}) {
    const [left, right, plain] = [...sideNames, first.plain].map((name) => metrics?.[name]), { refs } = this;
    for (const [side, lane] of [["left", left], ["right", right]]) {
      write(refs[`${side}Figure`], rate(lane?.tokens_per_s));
      refs[`${side}Figure`].classList.toggle("pf-none", !lane?.tokens_per_s);
    }
    this.root.toggleAttribute("data-unmarked", this.root.hasAttribute("data-servers")
      && (right?.acceptance_rate ?? null) === null);           // its server reports no drafts, or not yet
    const fastest = plainIsFaster(metrics, sideNames, first) ? plain : left;
    const value = speedup ?? quotient(right?.tokens_per_s ?? null, fastest?.tokens_per_s ?? null);
    const even = value !== null && (Math.abs(value - 1) < 0.005 || isNoise(value, noise));
    const sense = this.root.dataset.sense = value === null ? "none" : even ? "even" : value > 1 ? "faster" : "slower";
    const isWhole = speedup !== null, counts = [fastest, right].map((lane) => lane?.num_tokens ?? 0);
    const whole = [fastest, right].map((lane) => (lane?.prefill_s > 0 ? lane.prefill_s + lane.decode_s : null));
    const withPrompt = isWhole && counts[0] === counts[1] ? quotient(...whole) : null;
    write(refs.ratio, not && value !== null ? "no result" : times(value));
    this.root.toggleAttribute("data-no-result", not !== "" && value !== null);
    write(refs.ratioWords, value === null ? "as fast as plain" : [
      even && noise > 0 && `no difference: the noise is \u00b1${(100 * noise).toFixed(0)} %; `,
      not && `${not.replace("no result: ", "")}; it ran ${times(value)} as fast as plain: `,
      !not && sense === "slower" && "slower: ",
      `${rate(right?.tokens_per_s)} against ${rate(fastest?.tokens_per_s)} tok/s`,
      plain && plain !== left && !not && ", Plain's faster run",
      isWhole && counts[0] !== counts[1] && `, over the ${Math.min(...counts)} tokens that both wrote`,
      !isWhole && ", so far", withPrompt && !not && `; ${times(withPrompt)} including the prompt`]
      .filter(Boolean).join(""));
    refs.ratioWords.title = "How many times as fast as plain decoding: tokens per second "
      + "divided, after reading the prompt. From unrounded times. Plain runs twice, once at its fastest width, and the "
      + "faster run counts (see Details, Timing).";
    if (final) return;
    const cost = [left, right].every((lane) => typeof lane?.ttft_s === "number") ? right.ttft_s - left.ttft_s : 0;
    write(refs.ttftNote, [
      cost > 0.0005 && duration(left.ttft_s) !== duration(right.ttft_s)
        && `With guesses the first token came ${duration(cost)} later.`,
      withPrompt && "The clocks start after the prompt has been read. Including the prompt, the speculative lane was "
        + `${times(withPrompt)} as fast as Plain${fastest === left ? "" : " (its faster run)"}.`,
    ].filter(Boolean).join(" "));
    this.timing(metrics, sideNames, first, fastest !== left);
  }

  // The timing table, with all lanes.
  timing(metrics, sideNames, first, isAlone) {
    const names = Object.keys(metrics ?? {}).sort((a, b) => sideOf(sideNames, a) - sideOf(sideNames, b));
    const head = tableRow([], ["", ...names.map((name) => make("th", "", laneTitle(name, first, sideNames)))]);
    this.refs.timingHead.replaceChildren(...(names.length ? [head] : []));
    this.refs.timing.replaceChildren(...(names.length ? TIMING.map(([words, term, value]) =>
      Object.assign(tableRow([words], names.map((name) => value(metrics[name]))), { title: term })) : []));
    write(this.refs.fastest, !names.includes(first.plain) || sideNames[0] === first.plain ? "" :
      `Plain uses the same widths as the speculative lane, which makes both texts exact. \u201c${ALONE}\u201d uses `
        + "the fastest width found before the race. The speed-up is against the faster of the two: here "
        + `${isAlone ? `\u201c${ALONE}\u201d` : "Plain"}.`);
  }

  // Warnings that belong to the ratio: see cautionsOf. verdict: of the lane on the right, once it is known.
  cautions({ whole, loop, copies, says }, verdict) {
    this.refs.disturbed.hidden = !whole;
    write(this.refs.disturbed, whole);
    write(this.refs.caution, says);
    this.root.toggleAttribute("data-doubted", Boolean(says || saysOf(verdict)?.no_result || differs(verdict)));
    this.refs.caution.title = [whole, loop, copies].filter(Boolean).join(" ");
  }

  // counts: tokens of each side; total: where the track ends; places: words for each side whose lane is over, and
  // `then`: the tokens of the side that was later when the other one, `by`, finished.
  track(counts, total, places, atLimit = {}) {
    for (const [side, row] of Object.entries(this.rows)) {
      const n = counts[side];
      row.row.hidden = n === null;
      if (n === null) continue;
      this.fill(row.run, n, total);
      const { then } = places, place = (100 * then[side]) / (total || 1);
      row.then.hidden = then[side] === undefined;
      row.then.style.left = `${place}%`;
      row.then.toggleAttribute("data-late", place > 60);
      if (!row.then.hidden) row.then.replaceChildren(String(then[side]), make("span", "", ` when ${then.by} finished`));
      write(row.count, String(n));
    }
    for (const side of ["left", "right"]) {
      write(this.refs[`${side}Count`], plural(counts[side] ?? 0, "token") + (atLimit[side] ? " (limit)" : ""));
      write(this.refs[`${side}Place`], places[side]);
    }
    this.refs.track.setAttribute("aria-label", "Tokens written by each lane");
  }

  // again: for a recorded race that was run again, whether the tokens were the same. isOver: no verdict will come.
  verdict(verdict, plainVerdict, names, again = "", isOver = false) {
    const { refs } = this, known = saysOf(verdict);
    refs.verdict.dataset.kind = known ? verdict.kind : "none";
    write(refs.verdictIcon, known?.sign ?? "");
    write(refs.verdictWord, known ? verdictWord(verdict) : isOver ?
      "No verdict: there is nothing to compare." : "Are both texts the same? The verdict comes after the race.");
    refs.proofOpen.disabled = !known;
    write(refs.verdictMeans, oneLine(again) || (known ? known.means : isOver ? "" :
      "One model writes it twice: token by token, and by checking several guesses at once."));
    refs.verdictMeans.title = oneLine(again);
    refs.verdict.toggleAttribute("data-again", Boolean(again));
    write(refs.verdictRows, known ? oneLine(verdict.short) : "");
    write(refs.verdictSentence, known ? sentence(oneLine(verdict.sentence)) : "The verdict comes after the race.");
    write(refs.plainVerdict, plainVerdict ?
      `The plain lane not shown: ${oneLine(plainVerdict.sentence)}.` : "");
  }

  // The verdict on a computed race: nothing to compare.
  sameAtEveryLength() {
    write(this.refs.verdictWord, "The same text at every length");
    write(this.refs.verdictRows, "every token is the model's own choice, whatever was guessed");
    write(this.refs.verdictMeans, "");
  }

  facts(header) {
    if (!header) { write(this.refs.facts, ""); return; }
    write(this.refs.timingNote, clockWords(header));
    const { model, device, widths, spec, created, commit } = header, params = spec?.params;
    const sampling = params ?
      [params.temperature > 0 ? `temperature ${params.temperature}, seed ${params.seed}` : "greedy (temperature 0)",
      !isOfServers(header) && `rule ${ruleOf(header)}`, `at most ${params.max_new_tokens} tokens`] : [];
    const parts = [model && `${model.name} in ${model.dtype}`, device && `on ${device.name}`, ...sampling,
      !isOfServers(header) && widths?.note,
      ...Object.entries(header.promises ?? {}).map(([lane, words]) => `${laneTitle(lane, {})}: ${words}`),
      created, commit && `commit ${commit}`, model?.licence && `licence: ${model.licence}`];
    write(this.refs.facts, cut(oneLine(parts.filter(Boolean).join("; ")), 1200));
  }
}

// Whether the hidden plain lane was faster than the one on the board.
export function plainIsFaster(metrics, sideNames, first) {
  return sideNames[0] !== first.plain
    && metrics?.[first.plain]?.tokens_per_s > metrics?.[sideNames[0]]?.tokens_per_s;
}

function sideOf(sideNames, name) { return sideNames.includes(name) ? sideNames.indexOf(name) : sideNames.length; }
