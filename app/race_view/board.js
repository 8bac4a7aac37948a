// Everything around the texts: figures, ratio, track, verdict, acceptance, facts. Reads values, writes text.

const VERDICTS = {
  __proto__: null,
  identical_bits: ["\u2261", "Identical, bit for bit",
    "Speculation changed the speed and nothing else: the same tokens, from scores that agree to the last bit."],
  identical_tokens: ["=", "Identical tokens", "Speculation changed the speed and not one token of the text."],
  near_tie: ["\u2248", "Near-tie flip",
    "Two candidates were so close that rounding at another width decided between them; neither text is wrong."],
  different: ["\u2715", "Different: a fault",
    "This must not happen: both lanes should have written the same. Please report it, with the race file."],
  same_distribution: ["\u223c", "Same distribution only",
    "These lanes promise the same odds for every token, not the same tokens; a difference is no fault."],
};
const RIBBONS = {
  __proto__: null,
  RECORDED: "an earlier race, played from its file",
  SYNTHETIC: "the drafts are made up at a chosen rate; the tokens are the target's own",
  RANDOM: "weights drawn by chance: step times are those of this shape; the text, and what is accepted, mean nothing",
};
const RANDOM_WEIGHTS = /^random:/;
// the engine's sentence begins with what stands above it
const GRADE = /^(?:identical, bit for bit|identical tokens|near-tie flip|a fault): /;
const TIMES = [["ttft", "ttft_s"], ["tpot", "tpot_s"], ["itl", "itl_p95_s"]];

function write(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

class Board {
  constructor(root) {
    this.root = root;
    this.refs = {};
    root.querySelectorAll("[data-ref]").forEach((node) => { this.refs[node.dataset.ref] = node; });
    this.cells = {};
    root.querySelectorAll("[data-time]").forEach((node) => { this.cells[node.dataset.time] = node; });
    this.rows = Object.fromEntries(["right", "left", "plain"].map((side) => [side, this.trackRow(side)]));
  }

  trackRow(side) {
    const row = make("div", `pf-track-row pf-track-${side}`), rail = make("span", "pf-rail"), run =
      make("span", "pf-run");
    const [name, count] = [make("span", "pf-track-name"), make("span", "pf-track-count pf-num")];
    rail.append(run);
    row.append(name, rail, count);
    this.refs.track.append(row);
    return { row, name, run, count };
  }

  ribbon(words) {
    const node = this.refs.ribbon;
    node.hidden = words.length === 0;
    if (node.dataset.words === words.join()) return;
    node.dataset.words = words.join();
    node.replaceChildren(...words.flatMap((word) =>
      [make("strong", "", oneLine(word)), make("span", "", RIBBONS[word] ?? "")]));
  }

  status(state, words, share) {
    this.root.dataset.state = state;
    write(this.refs.statusText, oneLine(words));
    this.refs.progress.hidden = typeof share !== "number";
    if (typeof share === "number") this.refs.progress.value = Math.max(0, Math.min(1, share));
  }

  announce(words) { write(this.refs.announce, words); }

  alert(words) {
    this.refs.alert.hidden = !words;
    write(this.refs.alert, words);
  }

  names(header, sideNames) {
    const title = (name) => oneLine(name.charAt(0).toUpperCase() + name.slice(1)).slice(0, 40);
    const spec = (name) => header?.spec?.lanes?.find((lane) => lane.name === name);
    sideNames.forEach((name, i) => {
      const side = i ? "right" : "left", lane = spec(name);
      write(this.refs[`${side}Name`], title(name));
      write(this.refs[`${side}TextName`], title(name));
      write(this.rows[side].name, title(name));
      const drafter = lane && lane.drafter !== "none" ? `drafter ${lane.drafter}, k = ${lane.k}` : lane ?
        "no drafter" : i ? "drafts, then verifies" : "no drafter";
      const width = header?.widths && !i ? `, at width ${header.widths.step_widths?.[0] ?? header.widths.width}` : "";
      write(this.refs[`${side}Kind`], oneLine(drafter + width).slice(0, 120));
    });
    write(this.rows.plain.name, "Plain");
  }

  // first: the name of the first lane of each role
  figures(metrics, speedup, sideNames, first) {
    const [left, right, plain] = [...sideNames, first.plain].map((name) => metrics?.[name]), { refs } = this;
    write(refs.leftFigure, rate(left?.tokens_per_s));
    write(refs.rightFigure, rate(right?.tokens_per_s));
    refs.leftFigure.classList.toggle("pf-none", !left?.tokens_per_s);
    refs.rightFigure.classList.toggle("pf-none", !right?.tokens_per_s);
    const against = !plain?.tokens_per_s ? null : sideNames[0] === first.baseline &&
      left?.tokens_per_s > plain.tokens_per_s ? "this lane" : `${rate(plain.tokens_per_s)} tok/s`;
    write(refs.fastest, against ? `fastest plain: ${against}; the ratio is against this` : "fastest plain: –");
    write(refs.perStep, right?.mean_acceptance_length ?
      `${right.mean_acceptance_length.toFixed(2)} tokens a step; `
        + `${left?.mean_acceptance_length?.toFixed(2) ?? "–"} on the left`
      : "tokens a step: –");
    const known = typeof speedup === "number";
    write(refs.ratio, known ? `${speedup.toFixed(2)}×` : "–");
    const sense = !known || Math.abs(speedup - 1) < 0.005 ? "even" : speedup > 1 ? "faster" : "slower";
    this.root.dataset.sense = known ? sense : "none";
    write(refs.ratioWords, !known ? "against the fastest plain decoding" : sense === "even" ?
      "as fast as the fastest plain decoding" : `${sense} than the fastest plain decoding`);
    for (const [cell, key] of TIMES) {
      const values = [left?.[key], right?.[key]], texts = values.map(duration);
      const comparable = values.every((value) => typeof value === "number") && texts[0] !== texts[1];
      ["left", "right"].forEach((side, i) => {
        const node = this.cells[`${side}-${cell}`], worse = comparable && values[i] > values[1 - i];
        write(node.querySelector("dd"), texts[i]);
        node.classList.toggle("pf-worse", worse);
      });
    }
    const cost = typeof left?.ttft_s === "number" && typeof right?.ttft_s === "number" ? right.ttft_s - left.ttft_s : 0;
    write(refs.ttftNote, cost > 0.0005 && duration(left.ttft_s) !== duration(right.ttft_s) ?
      `The first token came ${duration(cost)} later with speculation.` : "");
  }

  disturbed(words) {
    this.refs.disturbed.hidden = !words;
    write(this.refs.disturbed, oneLine(words));
  }

  // counts: tokens of each side; total: where the track ends; places: {left, right} -> words once a lane is over.
  track(counts, total, places) {
    for (const [side, row] of Object.entries(this.rows)) {
      const n = counts[side];
      row.row.hidden = n === null;
      if (n === null) continue;
      row.run.style.clipPath = `inset(0 ${100 - 100 * (total ? Math.min(1, n / total) : 0)}% 0 0)`;
      write(row.count, String(n));
    }
    for (const side of ["left", "right"]) {
      write(this.refs[`${side}Count`], plural(counts[side] ?? 0, "token"));
      write(this.refs[`${side}Place`], places[side]);
    }
    this.refs.track.setAttribute("aria-label", "Tokens written by each lane");
  }

  verdict(verdict, plainVerdict, names) {
    const { refs } = this, known = verdict && VERDICTS[verdict.kind];
    refs.verdict.dataset.kind = known ? verdict.kind : "none";
    refs.difference.hidden = true;
    write(refs.verdictIcon, known ? VERDICTS[verdict.kind][0] : "");
    write(refs.verdictWord, known ? VERDICTS[verdict.kind][1] : "");
    write(refs.verdictMeans, known ? VERDICTS[verdict.kind][2] : "");
    write(refs.verdictSentence, known ? sentence(oneLine(verdict.sentence).replace(GRADE, "")) : "");
    write(refs.verdictRows, known ? comparedWords(verdict) : "");
    write(refs.plainVerdict, plainVerdict ? `Against the plain lane: ${oneLine(plainVerdict.sentence)}.` : "");
    const first = known && verdict.first_difference;
    if (first) {
      const choice = (i) => `${oneLine(JSON.stringify(first.pieces[i]))} #${first.tokens[i]}, width ${first.widths[i]}`;
      const margin = typeof first.margin === "number" ?
        first.margin.toPrecision(3)
          + `${typeof first.rounding === "number" ? ` (rounding ${first.rounding.toPrecision(2)})` : ""}`
        : "not measured";
      const items = [["first at", `token ${first.position}`], [names[0], choice(0)], [names[1], choice(1)],
        ["margin", margin]];
      refs.difference.replaceChildren(...items.map(([term, words]) =>
        { const item = make("div"); item.append(make("dt", "", oneLine(term)), make("dd", "", words)); return item; }));
      refs.difference.hidden = false;
    }
  }

  acceptance(metrics, drafts, over) {
    const { refs } = this, drafted = metrics ? sum(metrics.per_step_drafted) : 0;
    const silent = drafts && over && metrics !== undefined && drafted === 0;
    refs.warning.hidden = !silent;
    write(refs.warning, silent ?
      "Speculation was on, but nothing was drafted: every token of this lane is the target's own, one a step." : "");
    write(refs.rate, percent(metrics?.acceptance_rate));
    write(refs.rateWords, drafted ?
      `${sum(metrics.per_step_accepted)} accepted of ${drafted} proposed draft tokens` :
        "accepted of proposed draft tokens");
    write(refs.meanLength, metrics?.mean_acceptance_length?.toFixed(2) ?? "–");
    const counts = [];
    let most = 0, without = 0;
    metrics?.per_step_drafted.forEach((size, i) => {
      if (!size) { without += 1; return; }
      const kept = metrics.per_step_accepted[i];
      most = Math.max(most, size);
      counts[kept] = (counts[kept] ?? 0) + 1;
    });
    const tallest = counts.reduce((a, b) => Math.max(a, b ?? 0), 1);
    const histogram = most ?
      Array.from({ length: most + 1 }, (_, i) =>
      ({ label: String(i), value: (counts[i] ?? 0) / tallest, words: String(counts[i] ?? 0) })) : [];
    bars(refs.histogram, without && most ?
      [...histogram, { label: "none", value: without / Math.max(tallest, without),
      words: String(without) }] : histogram, "pf-bars-steps");
    bars(refs.byPosition, (metrics?.acceptance_by_position ?? []).map((share, i) =>
      ({ label: String(i + 1), value: share, words: percent(share).replace(" ", "\u202f") })), "pf-bars-places");
  }

  facts(header) {
    if (!header) { write(this.refs.facts, ""); return; }
    const { model, device, widths, spec, created, commit } = header, params = spec?.params;
    const sampling = params ?
      [params.temperature > 0 ? `temperature ${params.temperature}, seed ${params.seed}` : "greedy (temperature 0)",
      `at most ${params.max_new_tokens} tokens`] : [];
    const parts = [model && `${model.name} in ${model.dtype}`, device && `on ${device.name}`, ...sampling, widths?.note,
      created, commit && `commit ${commit}`, model?.licence && `licence: ${model.licence}`];
    write(this.refs.facts, oneLine(parts.filter(Boolean).join("; ")).slice(0, 1200));
  }
}

function sentence(words) {
  const whole = words.charAt(0).toUpperCase() + words.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}

function comparedWords(verdict) {
  const rows = verdict.rows_compared;
  return typeof verdict.rows_different === "number" ?
    `${plural(rows, "row")} of logits compared, ${verdict.rows_different} differ` :
      `${plural(rows, "row")} compared, by token`;
}
