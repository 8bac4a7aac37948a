// Renders one step of a Walk in rows: guess, check, keep, cost.

import { duration, joinCharacters, make, makeButton, makeUnheard, plural, putText } from "../base/text.js";
import { followsOf, isRefuted, keptOf, numDrafted, tokensOf } from "../base/model.js";
import { chanceWords, oddsSay, quoted } from "./step.js";

const VERDICT_MARKS = { ok: ["\u2713", "ok"], no: ["\u2715", "no"], unused: ["\u2013", "not used"],
  extra: ["+", "extra"], own: ["+", "its own"] };
const CHECK_TERM = "verify: one pass of the model over all positions at once";
const VERDICT_TERMS = { ok: "accepted: the model picks this token too",
  no: "rejected: the model picks another token",
  unused: "not used: comes after the first wrong guess, or after the end of the text",
  extra: "bonus: all guesses were right, so the next token counts too",
  own: "no guess: the same as plain decoding" };

const SOURCE_WORDS = { "made up": "was made up, right at a chosen rate", guess: "comes from an unknown source" };

// By kind of a token, what is said before the model's own.
const OWN_WORDS = { plain: ["the model's own token:", "plain decoding"],
  correction: ["+ the model's own token:", "correction"], bonus: ["+ bonus token:", "bonus token"],
  together: ["kept guesses and the model's own:", "the server sent this step's text as a whole"] };

const ROW_EM = 2.2;           // a line of a drawn tree with its gap, see step.css

const abbreviation = (className, words, term) => Object.assign(make("abbr", className, words), { title: term });

const oneRow = (number, word, term, time, ...content) => make("section", "pf-one-row",
  make("h4", "pf-one-head", make("span", "pf-one-number", String(number)), abbreviation("", word, term),
    make("span", "pf-one-time pf-num", time)),
  make("div", "pf-one-body", ...content));

// What can be unfolded, and then stays so in every step. isOpen: unfolded anyway.
const unfolded = new Set();
export function fold(name, summary, isOpen, ...content) {
  const head = make("summary", "", summary), node = make("details", `pf-fold pf-${name}`, head, ...content);
  node.open = isOpen || unfolded.has(name);
  head.addEventListener("click", () => { if (node.open) unfolded.delete(name); else unfolded.add(name); });
  return node;
}

// A token's text; spaces alone are marked, to be visible.
export function wordNode(text, className = "") {
  const seen = text === "" ? "pf-empty" : /^ +$/.test(text) ? "pf-one-blank" : "";
  return putText(make("span", `pf-one-word ${className} ${seen}`), text);
}

// A place's button, which calls picked(r). Only the chosen one is a tab stop; arrow keys move from it.
function placeButton(r, chosen, className, label, picked, ...content) {
  const button = makeButton(className, "", () => picked(r),
    { tabIndex: r === chosen ? 0 : -1, ariaPressed: String(r === chosen) });
  button.dataset.place = r;
  button.append(make("span", "pf-sr", label), ...content.filter(Boolean));
  return button;
}

const placeList = (ariaLabel, isTree = false) =>
  Object.assign(make("ol", `pf-one-places${isTree ? " pf-one-tree" : ""}`), { ariaLabel });

// The guesses as buttons: a chain in a row, a tree as it branches.
export function guessRow(walk, step, places, chosen, picked) {
  const list = placeList("Guesses; arrows up and down choose one", Boolean(step.parents));
  const from = make("div", "pf-one-from"), last = places.length - 2, tabStop = Math.min(chosen, last);
  const show = (r) => from.replaceChildren(...fromNodes(walk, step, places, r));
  for (const { r, line, up } of drawnTree(step)) {
    const { id, text, source, verdict, chance, depth } = places[r], item = make("li");
    const label = step.parents ? `Guess ${depth + 1} of a path: ` : `Guess ${r + 1}: `;
    const word = wordNode(id === null ? "not known" : text,
      `pf-token ${verdict === "ok" ? "pf-accepted" : "pf-rejected"}`);
    const button = placeButton(r, tabStop, "pf-one-guess", label, picked, word,
      make("span", "pf-one-sure pf-num", chance === null ? "" : chanceWords(chance)),
      make("span", "pf-one-of", source));
    button.ariaPressed = String(r === chosen);
    for (const name of ["pointerenter", "focus"]) button.addEventListener(name, () => show(r));
    button.addEventListener("pointerleave", () => show(chosen));
    if (step.parents) {
      const joint = make("span", "pf-one-line");
      item.style.gridArea = `${line} / ${depth + 1}`;
      item.classList.toggle("pf-one-branch", up > 0);
      joint.style.height = `${up * ROW_EM}em`;
      item.dataset.kept = verdict === "ok";
      item.append(joint);
    }
    item.append(button);
    list.append(item);
  }
  show(chosen);
  const isRated = places.some(({ chance }) => chance !== null);
  return oneRow(1, "Guess", "draft: tokens proposed by something fast, before the model checks them",
    walk.onServer ? "" : duration(step.draft_s), places.length > 1 ? list : make("p", "pf-one-none", "no guess"),
    isRated && make("p", "pf-note", "%: how likely the drafter finds it that this guess is kept."), from);
}

// The guesses in the order in which they are drawn: {r, line, up}. A guess is on the line of the one it follows, or
// `up` lines below it. The kept one comes first, then the likelier ones.
function drawnTree(step) {
  const follows = followsOf(step), kept = new Set(keptOf(step)), drawn = [];
  if (!step.parents) return Array.from({ length: numDrafted(step) }, (_, r) => ({ r, line: 1, up: 0 }));
  let lines = 1;
  const worth = (r) => (kept.has(r) ? 2 : step.chances?.[r] ?? 0);
  const draw = (row, line) => {
    const after = [...follows.keys()].filter((r) => follows[r] === row).sort((a, b) => worth(b) - worth(a));
    after.forEach((r, i) => {
      const own = i ? (lines += 1) : line;
      drawn.push({ r, line: own, up: own - line });
      draw(r + 1, own);
    });
  };
  draw(0, 1);
  return drawn;
}

// Where the guess at place r came from; for a copy, with an excerpt of its source.
function fromNodes(walk, step, places, r) {
  const guess = Math.min(r, places.length - 2), { source, text, id } = places[guess] ?? {};
  if (!source) return [];
  const origin = walk.excerpt(step, guess), quote = id === null ? "not known" : quoted(text);
  const which = step.parents ? `The guess ${quote} ` : `Guess ${guess + 1}, ${quote}, `;
  const said = source === "copied" && origin ? `${which}was copied from ${origin.where}:` :
    source === "copied" ? `${which}was copied from earlier text; the recording does not say from where.` :
    `${which}${SOURCE_WORDS[source] ?? `was guessed by the ${source}`}.`;
  const words = make("p", "pf-one-source", said);
  if (!origin) return [words];
  const stretch = make("mark", "pf-one-copied", ...origin.copied.map((piece, i) =>
    putText(make("span", origin.run[i] === guess ? "pf-one-here" : ""), piece)));
  const line = make("p", "pf-one-excerpt", putText(make("span"), `\u2026${origin.before}`), stretch,
    putText(make("span"), `${origin.after}\u2026`));
  joinCharacters([line.firstChild, ...stretch.children, line.lastChild]);
  return [words, line];
}

// The model's answers at each row where something was guessed, or decided.
export function checkRow(walk, step, places, chosen, picked) {
  const lists = [0, 1].map(() => placeList("Positions checked in one pass; arrows up and down choose one"));
  const shown = checkedPlaces(step, places), isUnused = (r) => places[r].verdict === "unused";
  const tabStop = shown.find((r) => places[r].row === places[chosen].row) ?? shown[0];
  for (const r of shown) {
    const { verdict, answers, depth, row } = places[r], [mark, word] = VERDICT_MARKS[verdict];
    const button = placeButton(r, tabStop, "pf-one-verdict", `Position ${depth + 1}: `, picked,
      makeUnheard("span", "", mark), make("span", "", word), step.parents && make("span", "pf-one-after",
        row === 0 ? "first token" : `after ${quoted(places[row - 1].text ?? "")}`));
    button.title = VERDICT_TERMS[verdict];
    const item = make("li", "pf-one-place", button, answers && answersNode(answers));
    item.dataset.verdict = verdict;
    lists[Number(isUnused(r))].append(item);
  }
  const all = numDrafted(step) + 1, ends = all - shown.length, num = shown.filter(isUnused).length;
  const left = ends > 0 ? `, ${plural(ends, "end")} of branches not listed` : "";
  const over = all > 1 ? `${all} positions${left}` : "one position";
  const legend = walk.silent() || `The likeliest tokens${walk.filters ? " left by top-k and top-p" : ""} at each: %: `
    + `how likely the model finds them; \u25b6 its choice; ? ${step.parents ? "a guess" : "the guess"}.`;
  const odds = oddsSay(walk, places[chosen]);
  return oneRow(2, "Check", CHECK_TERM, walk.onServer ? "" : duration(step.verify_s),
    num < shown.length && lists[0], make("p", "pf-note", `One pass of the model over ${over}. ${legend}`),
    odds && make("p", "pf-one-odds", odds),
    num > 0 && fold("unused", `${plural(num, "position")} not used: after a wrong guess or the end`,
      isUnused(tabStop), lists[1]));
}

// One place of every row to show, those on the kept path first: the kept guess, else the first one.
function checkedPlaces(step, places) {
  const shown = [...places.keys()].filter((r) => !step.parents || r < places.length - 1 || !isRefuted(step));
  const byRow = new Map(), weight = { ok: 0, no: 1, extra: 1, own: 1, unused: 2 };
  for (const r of shown) {
    const first = byRow.get(places[r].row);
    if (first === undefined || weight[places[r].verdict] < weight[places[first].verdict]) byRow.set(places[r].row, r);
  }
  const used = (r) => places[r].verdict !== "unused";
  return [...byRow.values()].sort((a, b) => used(b) - used(a) || places[a].row - places[b].row);
}

function answersNode(row) {
  return make("ol", "pf-one-answers", ...row.map(({ id, text, chance, guess, chosen }) => {
    const said = [chosen && "the model's choice", guess && "the guess"].filter(Boolean).join(", ");
    const bar = make("span", "pf-one-bar");
    const item = make("li", "pf-one-answer",
      makeUnheard("span", "pf-one-sign", `${chosen ? "\u25b6" : ""}${guess ? "?" : ""}`), wordNode(text),
      make("span", "pf-one-chance pf-num", chanceWords(chance)), bar, said && make("span", "pf-sr", said));
    item.dataset.tokenId = id;
    item.classList.toggle("pf-one-chosen", chosen);
    item.classList.toggle("pf-one-guessed", guess);
    bar.style.width = `${(100 * Math.min(1, chance)).toFixed(2)}%`;
    return item;
  }));
}

// The step's tokens of these kinds.
const tokenWords = (step, kinds) => tokensOf(step).filter(({ kind }) => kinds.includes(kind))
  .map(({ kind, text }) => wordNode(text, `pf-token pf-${kind}`));

export function keepRow(step) {
  const own = tokensOf(step).find(({ kind }) => Object.hasOwn(OWN_WORDS, kind));
  return oneRow(3, "Keep", "accept: the right guesses and the model's own token become text",
    plural(step.token_ids.length, "token"), make("p", "pf-one-kept", ...tokenWords(step, ["accepted"]),
      own && abbreviation("pf-one-plus", ...OWN_WORDS[own.kind]), ...tokenWords(step, Object.keys(OWN_WORDS))));
}

function costWords(walk, step, plainName) {
  const { seconds: spent, tokens, plain, saved } = walk.cost(step);
  if (walk.onServer && !spent) return "No time of its own: it came with the first text, or with the step before.";
  const own = `${plural(tokens, "token")} in ${duration(spent)}.`;
  const gain = saved >= 0 ? `Saved: ${duration(saved)}` : `Lost: ${duration(-saved)}`;
  return plain === null ? own :
    `${own} ${plainName}: ${tokens} \u00d7 ${duration(plain)} = ${duration(tokens * plain)}. ${gain}.`;
}

export function costRow(walk, step, plainName) {
  const numDropped = numDrafted(step) - step.num_accepted;
  return oneRow(4, "Cost", "the time of this step against plain decoding of as many tokens", "",
    make("p", "pf-one-cost-words", costWords(walk, step, plainName)),
    numDropped > 0 && make("p", "pf-one-dropped", abbreviation("", `Dropped, ${plural(numDropped, "guess")}:`,
      "rollback: the cache is reset to the end of the kept text"),
    ...tokenWords(step, ["rejected"]), step.drafted.length === 0 && "not known which"));
}
