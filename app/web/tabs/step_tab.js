// The tab "One step": goes through the speculative lane's steps one at a time, by hand or automatically.

import { makeButton } from "../base/dom.js";
import { numDrafted, rowsOf } from "../base/steps.js";
import { make, oneLine, plural, putText, write } from "../base/text.js";
import { stopAutoplay } from "../board/deck.js";
import { schedule } from "../board/paint.js";
import { on, root } from "../board/root.js";
import { refs, replay } from "../board/screen.js";
import { S, titles } from "../board/state.js";
import { choose, panelInSight, pressable } from "../board/tabs.js";
import { diceSection, partsAt } from "./dice.js";
import { askedPlace, betSays, stepSays, Walk, whyStruck } from "./step.js";
import { CHECK_TERM, checkRow, costRow, fold, guessRow, keepRow, oneRow } from "./step_view.js";

const WALK_MS = 2500;
// Kinds of steps to find.
const FINDS = { all: (kind) => kind === "all", wrong: (kind) => kind === "none" || kind === "some",
  empty: (kind) => kind === "empty" };
// Shared by all races. asks: hide the check until there is a bet; bets, won: how many, and how many were right; timer:
// of the automatic walk; drawn: key of what is shown.
const walking = { asks: false, bets: 0, won: 0, timer: 0, drawn: null };

// Position in the race on the screen: step, place in it (null: the model's own token), whether its check was revealed,
// the bet on it (undefined: none), which seed's dice, and the height of the tallest step so far.
const stand = () => (S.walk ??= { index: 0, place: null, revealed: false, bet: undefined, die: 0, of: null, tall: 0 });

function walkOf() {
  const { recording, race } = S, at = stand();
  if (at.of?.recording !== (recording ?? S.header) || at.of.lane !== race.lane(S.sides[1]))
    at.of = new Walk(recording ?? S.header ?? {}, race, S.sides);
  return at.of;
}

const notWalked = () => (S.live ? "Each step is shown after the race." :
  walkOf().steps.length ? "" : "This race has no speculative steps.");

function pauseForSteps() {
  stopAutoplay();
  replay.pause();
  schedule();
}

// Open the tab at a step of the speculative lane.
export function openStep(index) {
  goTo(index);
  choose("onestep");
  refs.stepHead.focus({ preventScroll: true });
}

function explain(step) {
  openStep(step.index);
  panelInSight();
}

function goTo(index) {
  const last = walkOf().steps.length - 1;
  Object.assign(stand(), { index: Math.max(0, Math.min(last, index)), place: null, revealed: false,
    bet: undefined });
  schedule();
}

// Go to the first step of a kind, or to the next if one is shown.
function find(name) {
  const walk = walkOf(), indices = walk.steps.flatMap((step, i) => (FINDS[name](walk.kind(step)) ? [i] : []));
  const at = indices.indexOf(stand().index);
  if (indices.length) goTo(indices[(at + 1) % indices.length]);
}

const isHidden = () => walking.asks && !stand().revealed && numDrafted(walkOf().steps[stand().index]) > 0;

function pick(place) {
  if (isHidden()) return bet(place);
  stand().place = place;
  return schedule();
}

// The visitor's answer to the quiz, which reveals the right one.
function bet(place) {
  const walk = walkOf(), at = stand();
  walking.bets += 1;
  if (place === askedPlace(walk, walk.steps[at.index])) walking.won += 1;
  Object.assign(at, { bet: place, place, revealed: true });
  schedule();
}

function stopWalk() {
  clearInterval(walking.timer);
  walking.timer = 0;
  schedule();
}

// Walk automatically; a hidden check is revealed before the next step.
function startWalk() {
  const race = S, onward = () => {
    const at = stand(), last = walkOf().steps.length - 1;
    if (S !== race || root.dataset.tab !== "onestep") return stopWalk();
    if (walking.asks && !at.revealed) at.revealed = true;
    else if (at.index < last) goTo(at.index + 1);
    if (at.index === last && (at.revealed || !walking.asks)) return stopWalk();
    return schedule();
  };
  if (stand().index === walkOf().steps.length - 1) goTo(0);
  walking.timer = setInterval(onward, WALK_MS);
  schedule();
}

// Draw the step if anything about it has changed.
function drawStep() {
  const at = stand(), why = notWalked(), key = [S, S.recording, S.race, at.index, at.place, at.revealed, at.die, why,
    walking.asks, walking.timer].map((value) => value ?? "");
  if (root.dataset.tab !== "onestep" || key.every((value, i) => value === walking.drawn?.[i])) return;
  walking.drawn = key;
  const walk = why ? null : walkOf(), step = walk?.steps[at.index], last = (walk?.steps.length ?? 0) - 1;
  const kinds = new Set(walk?.steps.map((walked) => walk.kind(walked)));
  refs.stepBack.disabled = !walk || at.index === 0;
  refs.stepNext.disabled = !walk || at.index === last;
  refs.stepPlay.disabled = refs.stepAsk.disabled = !walk;
  write(refs.stepPlay, walking.timer ? "Pause" : "Play");
  root.querySelectorAll("[data-find]").forEach((button) =>
    { button.disabled = ![...kinds].some(FINDS[button.dataset.find]); });
  write(refs.stepHead, walk ? `Step ${at.index + 1} of ${last + 1}` : "One step");
  const hidden = walk && isHidden();
  const asked = `Which guess ${step?.parents ? "will be kept last" : "is the first wrong one"}? Your click is a bet.`;
  const result = walk && at.bet !== undefined ?
    `${betSays(walk, step, at.bet)} ${walking.won} of ${plural(walking.bets, "bet")} won. ` : "";
  write(refs.stepSays, why || (hidden ? asked : result + stepSays(walk, step)));
  const focused = focusedButton();
  refs.stepRows.replaceChildren(...(walk ? sectionsOf(walk, step, at, hidden) : []));
  refs.stepRows.style.minHeight = `${at.tall}px`;      // else a short step scrolls the page up
  at.tall = Math.max(at.tall, refs.stepRows.offsetHeight);
  if (focused) (refs.stepRows.querySelector(focused) ?? refs.stepHead).focus({ preventScroll: true });
}

// A selector of the focused button, to restore the focus after redrawing; "" if none.
function focusedButton() {
  const focused = document.activeElement, { die } = focused.dataset;
  if (!refs.stepRows.contains(focused)) return "";
  return die === undefined ? `.${focused.classList[0]}[tabindex="0"]` : `[data-die="${die}"]`;
}

function sectionsOf(walk, step, at, hidden) {
  const places = walk.places(step), [plainName, name] = titles();
  const chosen = Math.min(at.place ?? walk.lastPlace(step), places.length - 1);
  const so = make("p", "pf-one-so-far", "Text so far: ",
    putText(make("span", "pf-one-word"), oneLine(`\u2026${walk.soFar(step)}`)));
  const guessed = guessRow(walk, step, places, hidden ? at.place ?? 0 : chosen, pick, hidden);
  if (hidden) {
    const look = makeButton("pf-button pf-one-look", "Show the answer", () => { at.revealed = true; schedule(); });
    const none = makeButton("pf-button", step.parents ? "None is kept" : "All are right", () => bet(null));
    return [so, guessed, oneRow(2, "Check", CHECK_TERM, "", none, " ", look)];
  }
  const struck = whyStruck(walk, step, places), why = struck ? make("p", "pf-one-why", struck) : "";
  return [so, guessed, checkRow(walk, step, places, chosen, pick), why, keepRow(step), costRow(walk, step, plainName),
    walk.silent() ? "" : diceRow(walk, step, places[chosen], [plainName, name], at)].filter(Boolean);
}

function diceRow(walk, step, place, names, at) {
  const position = step.position + place.depth, parts = partsAt(walk);
  const same = walk.rejects ? "Same probabilities" : walk.temperature > 0 ? "Same random numbers" : "Same scores";
  const nodes = rowsOf(step).includes(place.row) ?
    diceSection(walk, names, position, at.die, (die) => { at.die = die; schedule(); }) :
    [make("p", "pf-dice-says", `Position ${place.depth + 1} was discarded, so nothing was chosen there.`)];
  const odd = nodes.some((node) => node.classList.contains("pf-dice-odd"));
  const equal = !walk.rejects && parts === null ? ": why both texts are equal" : "";
  const head = make("h4", "pf-dice-head", odd ? "Not the same in both lanes" : same + equal);
  const box = fold("dice", head, odd || parts !== null, ...nodes);
  if (walk.rejects && parts !== null && position !== parts) box.append(toPartButton(walk, parts));
  return box;
}

function toPartButton(walk, position) {
  return makeButton("pf-button", "Go to the first difference", () => {
    const index = walk.steps.findIndex((step) => position < step.position + step.token_ids.length);
    const step = walk.steps[index], row = rowsOf(step)[position - step.position];
    goTo(index);
    pick(walk.places(step).findIndex((place) => place.row === row));
  });
}

// The popover links here, for steps of the race as run.
const canExplain = (step) => !S.live && !S.computed && step.lane === S.sides[1];

// By keyboard: Enter on the step.
const explainButton = (step) => makeButton("pf-button pf-pop-explain", "Explain this step", () => explain(step),
  { tabIndex: -1, title: "Enter" });

root.addEventListener("keydown", (event) => {
  const node = event.key === "Enter" && event.target.closest?.(".pf-text .pf-step");
  const step = node && S.race.lane(node.dataset.lane)?.steps[node.dataset.step];
  if (step && canExplain(step)) explain(step);
});

const STEP_KEYS = { ArrowRight: () => goTo(stand().index + 1), ArrowLeft: () => goTo(stand().index - 1),
  Home: () => goTo(0), End: () => goTo(Infinity), " ": () => (walking.timer ? stopWalk() : startWalk()) };

root.querySelector("#pf-panel-onestep").addEventListener("keydown", (event) => {
  const act = STEP_KEYS[event.key], button = event.target.closest("button"), place = button?.dataset.place;
  const along = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (event.ctrlKey || event.metaKey || event.altKey || notWalked()) return;
  if (along && place !== undefined) {
    event.preventDefault();
    const all = [...button.closest("ol").querySelectorAll("[data-place]")], next = all[all.indexOf(button) + along];
    next?.focus();
    if (next && !isHidden()) pick(Number(next.dataset.place));
    return;
  }
  if (!act || (event.key === " " && button && place === undefined)) return;
  event.preventDefault();
  if (event.key !== " ") stopWalk();
  act();
});
refs.stepBack.addEventListener("click", () => { stopWalk(); goTo(stand().index - 1); });
refs.stepNext.addEventListener("click", () => { stopWalk(); goTo(stand().index + 1); });
refs.stepPlay.addEventListener("click", () => (walking.timer ? stopWalk() : startWalk()));
root.querySelectorAll("[data-find]").forEach((button) =>
  button.addEventListener("click", () => { stopWalk(); find(button.dataset.find); }));
pressable(refs.stepAsk, (pressed) => {
  Object.assign(walking, { asks: pressed, bets: 0, won: 0 });
  Object.assign(stand(), { revealed: false, bet: undefined });
  schedule();
});
// The race that shows a finding of a check-up: opens the step with that token.
let wanted = null;
export function openWhenRaced(prompt, position) { wanted = { prompt, position }; }
on("over", () => {
  if (wanted === null || S.header?.prompt.text !== wanted.prompt) return false;
  const { position } = wanted;
  wanted = null;
  const index = walkOf().steps.findIndex((step) =>
    position < step.position + step.token_ids.length);
  if (index >= 0) openStep(index);
  return index >= 0;
});
on("tab", (name) => { if (name === "onestep") pauseForSteps(); });
on("popover", ({ step, box }) => { if (canExplain(step)) box.append(explainButton(step)); });
on("painted", drawStep);
