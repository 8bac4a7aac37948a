// One step as a picture, in rows: guess, check, keep, what it cost. Values of a Walk in, nodes out.

const VERDICT_MARKS = { ok: ["\u2713", "ok"], no: ["\u2715", "no"], unused: ["\u2013", "not used"],
  extra: ["+", "extra"], own: ["+", "its own"] };
const CHECK_TERM = "verify: one run (forward) of the model over all places at once";
const VERDICT_TERMS = { ok: "accepted: the model itself would have written this token",
  no: "rejected: the model itself would have written another token",
  unused: "thrown away with all that stands behind the first wrong guess",
  extra: "bonus: all guesses were right, so the answer behind the last one counts too",
  own: "nothing was guessed: this is what plain decoding does" };
// How sure a head was: least margin in logits, in words.
const SURE = [[4, "very sure"], [1.5, "sure"], [0.5, "half sure"], [-Infinity, "unsure"]];
const sureWord = (margin) => SURE.find(([least]) => margin >= least)[1];

const SOURCE_WORDS = { "extra network": "was guessed by an extra network; how sure it was is not recorded",
  "smaller model": "was guessed by a smaller model", "made up": "was made up from the answer, right at a chosen rate" };

function oneRow(number, word, term, time, ...content) {
  const row = make("section", "pf-one-row"), head = make("h4", "pf-one-head");
  const name = make("abbr", "", word);
  name.title = term;
  head.append(make("span", "pf-one-number", String(number)), name, make("span", "pf-one-time pf-num", time));
  const body = make("div", "pf-one-body");
  body.append(...content.filter(Boolean));
  row.append(head, body);
  return row;
}

// A token's text. One of spaces alone is marked, or nobody would see it.
function wordNode(text, className = "") {
  const seen = text === "" ? "pf-empty" : /^ +$/.test(text) ? "pf-one-blank" : "";
  return putText(make("span", `pf-one-word ${className} ${seen}`), text);
}

// A place's button: picked chooses it. Only the chosen one is a tab stop; the arrows up and down go on from it.
function placeButton(r, chosen, className, label, picked) {
  const button = make("button", className);
  button.type = "button";
  button.dataset.place = r;
  button.tabIndex = r === chosen ? 0 : -1;
  button.setAttribute("aria-pressed", String(r === chosen));
  button.append(make("span", "pf-sr", label));
  button.addEventListener("click", () => picked(r));
  return button;
}

function guessRow(walk, step, places, chosen, picked, hidden) {
  const list = make("ol", "pf-one-places"), from = make("div", "pf-one-from");
  list.setAttribute("aria-label", "Guesses; arrows up and down choose one");
  const show = (r) => from.replaceChildren(...fromNodes(walk, step, places, r));
  places.slice(0, -1).forEach(({ id, text, source, margin, verdict }, r) => {
    const words = id === null ? "not known" : text;
    const of = margin === null ? source : `${sureWord(margin)} (+${margin.toFixed(1)})`;
    const item = make("li"), button = placeButton(r, Math.min(chosen, places.length - 2), "pf-one-guess",
      `Guess ${r + 1}: `, picked);
    button.append(wordNode(words, hidden ? "" : `pf-token ${verdict === "ok" ? "pf-accepted" : "pf-rejected"}`),
      make("span", "pf-one-of", of));
    button.setAttribute("aria-pressed", String(r === chosen));
    for (const name of ["pointerenter", "focus"]) button.addEventListener(name, () => show(r));
    button.addEventListener("pointerleave", () => show(chosen));
    item.append(button);
    list.append(item);
  });
  show(chosen);
  return oneRow(1, "Guess", "draft: tokens proposed by something quick, before the model is asked",
    duration(step.draft_s), places.length > 1 ? list : make("p", "pf-one-none", "no guess"), from);
}

// Where the guess at place r came from; of a copy, the place that was copied, in its surroundings.
function fromNodes(walk, step, places, r) {
  const { source, margin, text, id } = places[Math.min(r, places.length - 2)] ?? {}, found = walk.excerpt(step);
  if (!source) return [];
  const which = `Guess ${Math.min(r, places.length - 2) + 1}, ${id === null ? "not known" : quoted(text)}, `;
  const said = source === "copied" && found ? `${which}was copied from ${found.where}:` :
    source === "copied" ? `${which}was copied from earlier text; the recording does not say from where.` :
    margin !== null ? `${which}was guessed by an extra network. It was ${sureWord(margin)}: in its scores this `
      + `token led the next best by ${margin.toFixed(1)}.` :
    `${which}${SOURCE_WORDS[source] ?? "comes from a source that the recording does not tell"}.`;
  const words = make("p", "pf-one-source", said);
  if (margin !== null) words.title = "margin: by how many logits the first choice of the network (a draft head) led its second";
  if (!found) return [words];
  const line = make("p", "pf-one-excerpt"), stretch = make("mark", "pf-one-copied");
  stretch.append(...found.copied.map((each, i) =>
    putText(make("span", step.copied[0] + i === r ? "pf-one-here" : ""), each)));
  line.append(putText(make("span"), `\u2026${found.before}`), stretch, putText(make("span"), `${found.after}\u2026`));
  return [words, line];
}

function checkRow(walk, step, places, chosen, picked) {
  const list = make("ol", "pf-one-places"), silent = walk.silent();
  list.setAttribute("aria-label", "Places checked in one run; arrows up and down choose one");
  places.forEach(({ verdict, row }, r) => {
    const [mark, word] = VERDICT_MARKS[verdict], item = make("li", "pf-one-place");
    item.dataset.verdict = verdict;
    const button = placeButton(r, chosen, "pf-one-verdict", `Place ${r + 1}: `, picked);
    button.title = VERDICT_TERMS[verdict];
    const sign = make("span", "", mark);
    sign.setAttribute("aria-hidden", "true");
    button.append(sign, make("span", "", word));
    item.append(button, ...(row ? [answersNode(row)] : []));
    list.append(item);
  });
  const over = places.length === 1 ? "one place" : `all ${places.length} places`;
  const dropped = places.some(({ verdict, row }) => verdict === "unused" && row);
  const legend = silent || `The likeliest tokens at every place${walk.filters ? " that top-k and top-p left" : ""}: `
    + "\u25b6 the model's choice, ? the guess."
    + (dropped ? " The grey answers stand on a wrong guess, or behind the end, and are thrown away." : "");
  return oneRow(2, "Check", CHECK_TERM, duration(step.verify_s), list,
    make("p", "pf-note", `One run of the model over ${over}. ${legend}`));
}

function answersNode(row) {
  const list = make("ol", "pf-one-answers");
  for (const { id, text, chance, guess, chosen } of row) {
    const item = make("li", "pf-one-answer"), bar = make("span", "pf-one-bar"), word = wordNode(text);
    item.dataset.tokenId = id;
    item.classList.toggle("pf-one-chosen", chosen);
    item.classList.toggle("pf-one-guessed", guess);
    const sign = make("span", "pf-one-sign", `${chosen ? "\u25b6" : ""}${guess ? "?" : ""}`);
    sign.setAttribute("aria-hidden", "true");
    bar.style.width = `${(100 * Math.min(1, chance)).toFixed(2)}%`;
    item.append(sign, word, make("span", "pf-one-chance pf-num", chanceWords(chance)), bar);
    const said = [chosen && "the model's choice", guess && "the guess"].filter(Boolean).join(", ");
    if (said) item.append(make("span", "pf-sr", said));
    list.append(item);
  }
  return list;
}

function keepRow(step) {
  const own = step.token_ids.length > step.num_accepted, drafted = numDrafted(step), kept = step.num_accepted;
  const line = make("p", "pf-one-kept");
  const part = (kinds) => tokensOf(step).filter(({ kind }) => kinds.includes(kind)).map(({ kind, text }) =>
    wordNode(text, `pf-token pf-${kind}`));
  const word = drafted === 0 ? "the model's own:" : kept === drafted ? "+ one more by the model:" :
    "+ the model's own instead:";
  const said = make("abbr", "pf-one-plus", word);
  said.title = drafted === 0 ? "plain decoding" : kept === drafted ? "bonus token" : "correction";
  line.append(...part(["accepted"]), ...(own ? [said, ...part(["correction", "bonus", "plain"])] : []));
  return oneRow(3, "Keep", "accept: the right guesses and the model's own token become text",
    plural(step.token_ids.length, "token"), line);
}

function costRow(walk, step, plainName) {
  const { seconds: spent, tokens, plain, saved } = walk.cost(step), numDropped = numDrafted(step) - step.num_accepted;
  const line = make("p", "pf-one-cost-words", `${plural(tokens, "token")} in ${duration(spent)}.`
    + (plain === null ? "" : ` ${plainName}: ${tokens} \u00d7 ${duration(plain)} = ${duration(tokens * plain)} `
      + `(its usual step, the median). ${saved >= 0 ? `Saved: ${duration(saved)}` : `Lost: ${duration(-saved)}`}.`));
  const dropped = make("p", "pf-one-dropped");
  if (numDropped > 0) {
    const term = make("abbr", "", `Dropped, ${guesses(numDropped)}:`);
    term.title = "rollback: the model's memory (cache) goes back to where the kept text ends";
    dropped.append(term, ...tokensOf(step).filter(({ kind }) => kind === "rejected").map(({ text }) =>
      wordNode(text, "pf-token pf-rejected")), ...(step.drafted.length ? [] : ["not known which"]));
  }
  return oneRow(4, "Cost", "the time of this step against plain decoding of as many tokens", "", line,
    numDropped > 0 && dropped);
}
