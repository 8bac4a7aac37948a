// The tab "One step": goes through the speculative lane's steps one at a time.

import { make, makeButton, oneLine, put, putText } from "../base/text.js";
import { rowsOf } from "../base/model.js";
import { stopAutoplay } from "../board/deck.js";
import { schedule } from "../board/paint.js";
import { on, refs, replay, root, S, titles } from "../board/screen.js";
import { choose, panelInSight } from "../board/tabs.js";
import { diceSection, partsAt } from "./dice.js";
import { stepSays, Walk, whyStruck } from "./step.js";
import { checkRow, costRow, fold, guessRow, keepRow } from "./step_view.js";

let drawn = null;            // key of what is shown

// Position in the race on the screen: step, place in it (null: the model's own token), and the height of the tallest
// step so far.
const stand = () => (S.walk ??= { index: 0, place: null, of: null, tall: 0 });

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
  Object.assign(stand(), { index: Math.max(0, Math.min(last, index)), place: null });
  schedule();
}

function pick(place) {
  stand().place = place;
  schedule();
}

// Draw the step if anything about it has changed.
function drawStep() {
  const at = stand(), why = notWalked();
  const key = [S, S.recording, S.race, at.index, at.place, why].map((value) => value ?? "");
  if (root.dataset.tab !== "onestep" || key.every((value, i) => value === drawn?.[i])) return;
  drawn = key;
  const walk = why ? null : walkOf(), step = walk?.steps[at.index], last = (walk?.steps.length ?? 0) - 1;
  refs.stepBack.disabled = !walk || at.index === 0;
  refs.stepNext.disabled = !walk || at.index === last;
  const focused = focusedButton();
  put(refs, { stepHead: walk ? `Step ${at.index + 1} of ${last + 1}` : "One step",
    stepSays: why || stepSays(walk, step), stepRows: walk ? sectionsOf(walk, step, at) : [] });
  refs.stepRows.style.minHeight = `${at.tall}px`;      // else a short step scrolls the page up
  at.tall = Math.max(at.tall, refs.stepRows.offsetHeight);
  if (focused) (refs.stepRows.querySelector(focused) ?? refs.stepHead).focus({ preventScroll: true });
}

// A selector of the focused button, to restore the focus after redrawing; "" if none.
function focusedButton() {
  const focused = document.activeElement;
  return refs.stepRows.contains(focused) ? `.${focused.classList[0]}[tabindex="0"]` : "";
}

function sectionsOf(walk, step, at) {
  const places = walk.places(step), [plainName, name] = titles();
  const chosen = Math.min(at.place ?? walk.lastPlace(step), places.length - 1);
  const so = make("p", "pf-one-so-far", "Text so far: ",
    putText(make("span", "pf-one-word"), oneLine(`\u2026${walk.soFar(step)}`)));
  const struck = whyStruck(walk, step, places), why = struck ? make("p", "pf-one-why", struck) : "";
  return [so, guessRow(walk, step, places, chosen, pick), checkRow(walk, step, places, chosen, pick), why,
    keepRow(step), costRow(walk, step, plainName),
    walk.silent() ? "" : diceRow(walk, step, places[chosen], [plainName, name])].filter(Boolean);
}

function diceRow(walk, step, place, names) {
  const position = step.position + place.depth, parts = partsAt(walk);
  const same = walk.rejects ? "Same probabilities" : walk.temperature > 0 ? "Same random numbers" : "Same scores";
  const nodes = rowsOf(step).includes(place.row) ?
    diceSection(walk, names, position) :
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
  Home: () => goTo(0), End: () => goTo(Infinity) };

root.querySelector("#pf-panel-onestep").addEventListener("keydown", (event) => {
  const act = STEP_KEYS[event.key], button = event.target.closest("button"), place = button?.dataset.place;
  const along = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (event.ctrlKey || event.metaKey || event.altKey || notWalked()) return;
  if (along && place !== undefined) {
    event.preventDefault();
    const all = [...button.closest("ol").querySelectorAll("[data-place]")], next = all[all.indexOf(button) + along];
    next?.focus();
    if (next) pick(Number(next.dataset.place));
    return;
  }
  if (!act) return;
  event.preventDefault();
  act();
});
refs.stepBack.addEventListener("click", () => goTo(stand().index - 1));
refs.stepNext.addEventListener("click", () => goTo(stand().index + 1));
// The race that shows a finding of a check-up: opens the step with that token.
let wanted = null;
export function openWhenRaced(prompt, position) { wanted = { prompt, position }; }
on("over", () => {
  if (wanted === null || S.header?.prompt.text !== wanted.prompt) return false;
  const { position } = wanted;
  wanted = null;
  const index = walkOf().steps.findIndex((step) => position < step.position + step.token_ids.length);
  if (index >= 0) openStep(index);
  return index >= 0;
});
on("tab", (name) => { if (name === "onestep") pauseForSteps(); });
on("popover", ({ step, box }) => { if (canExplain(step)) box.append(explainButton(step)); });
on("painted", drawStep);
