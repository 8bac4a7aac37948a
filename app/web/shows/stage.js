// Stage mode: the race in full screen with large text, controlled by keys. Only racing an example live changes the
// page's prompt and settings; leaving brings back the race before, unless one was run on the stage.

import { hasSteps, metricsOf, reasonsOf } from "../base/model.js";
import { closed, isLoopback, keyName, opened } from "../base/dom.js";
import { make, makeButton, put, times, write } from "../base/text.js";
import { waiting } from "../board/card.js";
import { stopAutoplay } from "../board/deck.js";
import { examples, isLinked, promptBox } from "../board/page.js";
import { paint, showResult, showVerdict } from "../board/paint.js";
import { board, countNow, mark, on, refs, replay, root, S, shownLanes, verdictOn, views } from "../board/screen.js";
import { choose, showTexts } from "../board/tabs.js";
import { shortChoice } from "../tabs/answer.js";
import { leaveGame } from "../tabs/guess_tab.js";
import { sizeOf, WhatIf } from "../tabs/whatif.js";
import { answerNow, chosenDrafter, endWhatIf, isBeingMade, racedLane, showChosen,
  whatIfOf } from "../tabs/whatif_tab.js";
import { aloud } from "./aloud.js";
import { armed, live, raceLive, recordedInstead, showExample, showView, stopLive, unwatchLive,
  watchLive } from "./live.js";
import { fetchRecorded, nameOf } from "./recorded.js";
import { bringBack, endStory } from "./story.js";
import { closePrompt, openPrompt, promptKey, racePrompt } from "./typed.js";

const SLOWEST = 1 / 8;
const FASTEST = 4;
const HINT_MS = 5000;
const GIVEN_LETTERS = 1200;
// [browser's names of the keys, label, description, action]; an exported page has no examples
const STAGE_KEYS = [
  [[" "], "Space", "play or pause", () => { if (!S.live) replay.toggle(); }],
  [["s"], "S", "play slower", () => replay.setSpeed(Math.max(SLOWEST, replay.speed / 2))],
  [["f"], "F", "play faster", () => replay.setSpeed(Math.min(FASTEST, replay.speed * 2))],
  [["Home"], "Home", "to the start", () => step(0)],
  [["ArrowRight"], "\u2192", "one step forward", () => step(1)],
  [["ArrowLeft"], "\u2190", "one step back", () => step(-1)],
  [["ArrowUp", "+"], "\u2191", "longer draft (k + 1)", () => changeLength(1)],
  [["ArrowDown", "-"], "\u2193", "shorter draft (k \u2212 1)", () => changeLength(-1)],
  [["0"], "0", "as raced", () => endWhatIf()],
  [["m"], "M", "marks on or off", () => toggleMarks()],
  [["v"], "V", "the verdict or the texts", () => turnView()],
  [["?"], "?", "these keys", () => turnKeys(false)],
  [["Escape"], "Esc", "leave the stage", () => endStage()],
];
const WITH_EXAMPLES = [
  [["n", "PageDown"], "N", "next example", () => turnTo(1)],
  [["p", "PageUp"], "P", "previous example", () => turnTo(-1)],
  [["Enter"], "Enter", "race it live", () => raceLive()],
  [["r"], "R", "its recorded race instead", () => recordedInstead()],
  [["t"], "T", "type a prompt to race", () => openPrompt()],
  [["q"], "Q", "the page on their phones", () => turnKeys(true)],
  [["x", "."], "X", "stop the live race", () => stopLive()],
];
// kept: the race, marks and focus before, null when off stage; byLink: the page's address opens the stage; played: whether
// the replay was running when the screen was last drawn; hint: hides the most important keys after a while.
const stage = { kept: null, byLink: new URLSearchParams(location.search).has("stage"), played: false, hint: 0 };
const keys = () => (examples().length ? [...WITH_EXAMPLES, ...STAGE_KEYS] : STAGE_KEYS);

function beginStage() {
  if (stage.kept) return;
  endStory();
  leaveGame();
  stage.byLink = false;
  stage.kept = { S, marks: refs.marks.getAttribute("aria-pressed"), focused: document.activeElement };
  showView("on");
  mark("stage", true);
  choose("whatif");             // same texts as the tab Text, and keys may change the length
  document.activeElement?.blur();
  Object.values(views).forEach((view) => { view.follows = true; });
  showTexts();
  if (!S.live) armed();
  fullScreen();
  listKeys();
  showHint();
  watchLive();
  fetchRecorded();
  opened(back);
  board.announce("Stage mode. Press ? for all keys, Esc to leave.");
}

// After the verdict an audience compares the texts, so they are shown without struck-out guesses.
function turnView() {
  if (root.dataset.stage !== "verdict") return showView("verdict");
  showView("on");
  if (phaseNow() === "over") root.dataset.view = "plain";
  requestAnimationFrame(() => {       // laid out again: both show their ends, to be compared
    for (const box of [refs.leftText, refs.rightText]) box.scrollTop = box.scrollHeight;
  });
  return undefined;
}

function toggleMarks() {
  showView("on");
  refs.marks.setAttribute("aria-pressed", String(root.dataset.view === "plain"));
  showTexts();
}

// 0: to the start.
function step(by) {
  if (S.live) return undefined;
  if (!by) return armed();
  showView("on");
  return replay.step(by);
}

// isCode: the page's address takes the place of the keys.
function turnKeys(isCode) {
  const box = refs.stageKeys, isSame = box.hasAttribute("data-code") === isCode;
  box.toggleAttribute("data-code", isCode);
  box.hidden = isSame && !box.hidden;
}

function listKeys() {
  const list = keys().map(([, shown, words, action]) => make("div", "", make("dt", "", make("kbd", "", shown)),
    make("dd", "", makeButton("pf-stage-key", words, () => { stopAutoplay(); action(); }))));
  const { origin, pathname } = location, address = origin + pathname, isServed = examples().length > 0;
  const says = isLoopback() ?
    "No phone reaches localhost: start with --host 0.0.0.0, open this machine's address, and a QR code is here." :
    address;
  put(refs, { stageList: list, stageAddress: isServed ? says : "" });
  refs.stageCode.hidden = !isServed || isLoopback();
  if (!refs.stageCode.hidden) refs.stageCode.src = `code.svg?${new URLSearchParams({ of: address })}`;
}

// The keys to begin with and a way out, for a few seconds. Where there is only touch they are buttons, and stay.
function showHint() {
  clearTimeout(stage.hint);
  root.dataset.touch = String(window.matchMedia("(hover: none)").matches);
  refs.stageLiveKey.hidden = refs.stageTypeKey.hidden = refs.stageNextKey.hidden = !examples().length;
  refs.stageHint.hidden = false;
  if (root.dataset.touch === "false") stage.hint = setTimeout(() => { refs.stageHint.hidden = true; }, HINT_MS);
}

// A browser may forbid it or require a key press first.
function fullScreen() {
  if (!document.fullscreenElement) document.documentElement.requestFullscreen?.().catch(() => {});
}

// The browser's Back closes what lies over the stage first.
function back() {
  const isCovered = !refs.stagePrompt.hidden || !refs.stageKeys.hidden;
  if (!isCovered) return endStage();
  closePrompt();
  refs.stageKeys.hidden = true;
  return opened(back);
}

function endStage() {
  const { kept } = stage;
  if (!kept) return;
  const isRunHere = live.aside === kept.S.id || !S.ribbon.includes("RECORDED");
  const fault = unwatchLive();
  stage.kept = null;
  delete root.dataset.stage;
  mark("stage", false);
  delete root.dataset.touch;
  root.removeAttribute("data-before");
  clearTimeout(stage.hint);
  refs.stageHint.hidden = true;
  closed(back);
  refs.stageKeys.hidden = refs.stagePrompt.hidden = true;
  if (document.fullscreenElement) document.exitFullscreen();
  replay.pause();
  replay.setSpeed(1);
  refs.marks.setAttribute("aria-pressed", kept.marks);
  choose("text");        // back to the race as it was run
  if (S !== kept.S && !isRunHere) bringBack(kept.S);
  S.verdictWaits = false;
  if (!S.live) replay.seek(replay.duration);
  showVerdict();
  paint();
  kept.focused?.focus?.({ preventScroll: true });
  if (fault) board.alert(fault);
}

// Show the recorded race of the previous or next example without changing prompt and settings.
function turnTo(by) {
  const all = examples(), at = all.findIndex((button) => nameOf(button) === (live.example || S.name));
  showExample(all[at < 0 ? (by > 0 ? 0 : all.length - 1) : (at + by + all.length) % all.length]);
}

function phaseNow() {
  if (S.live) return waiting || S.state !== "running" ? "waiting" : "running";
  if (replay.t === 0) return "before";
  return replay.t >= replay.duration ? "over" : "running";
}

// The race on the screen as `aloud` takes it.
function moment() {
  const lanes = shownLanes(), [, right] = lanes, phase = phaseNow();
  const isKnown = phase === "over" && right && hasSteps(S.header, right);
  const { perStep = 0, cost = 0 } = (isKnown && reasonsOf(S.race, S.first, right)) || {};
  return { moment: phase, tokens: lanes.map((lane) => lane?.tokens[countNow(lane, replay.t)] ?? 0),
    ratio: refs.ratio.textContent, sense: root.dataset.sense, kind: verdictOn(S.sides[1])?.kind ?? "",
    perStep, cost, kept: perStep ? metricsOf(right).acceptance_rate : null, cautions: S.shown?.cautions };
}

// The best that a server can run, if that is not the lane on the right; "" as long as it is not known.
function servedNow([, right] = S.sides) {
  const answer = isBeingMade() ? null : answerNow(null), best = answer?.best;
  if (!answer?.isEvidence || S.shown?.cautions.whole || best?.lane === right) return "";
  return best ? `A server can run ${shortChoice(best)}: ${times(best.ratio)}${best.isMeasured ? "" : " (computed)"}.` :
    "No server runs this drafter.";
}

// The prompt, in the place of the texts until they begin: its end, if it is long.
function givenNow() {
  const text = (!S.live && S.header?.prompt?.text) || promptBox()?.value || "";
  return `${text.length > GIVEN_LETTERS ? "\u2026" : ""}${text.slice(-GIVEN_LETTERS)}`;
}

// Until the race is over the audience bets.
function hideResult() {
  put(refs, { ratio: "?", ratioWords: "times as fast as plain", caution: "" });
  root.dataset.sense = "none";
  root.removeAttribute("data-doubted");
}

// Show the race at the next longer or shorter k; from an automatic length, at the shortest or longest.
function changeLength(by) {
  const whatIf = whatIfOf();
  if (!(whatIf instanceof WhatIf)) return board.announce(whatIf);
  const ks = whatIf.offered.get(chosenDrafter()), raced = ks.indexOf(sizeOf(racedLane().k));
  const from = S.computed ? Number(refs.whatIfK.value) : raced >= 0 ? raced : by > 0 ? -1 : ks.length;
  refs.whatIfK.value = String(Math.max(0, Math.min(ks.length - 1, from + by)));
  return showChosen();
}

window.addEventListener("keydown", (event) => {
  if (!refs.stagePrompt.hidden) return promptKey(event);
  if (!stage.kept || refs.proof.open || event.ctrlKey || event.metaKey || event.altKey) return undefined;
  const name = keyName(event);
  const entry = keys().find(([names]) => names.includes(name));
  if (!entry && name !== "Tab") return undefined;
  event.preventDefault();
  event.stopImmediatePropagation();
  if (!entry) return undefined;
  const listed = !refs.stageKeys.hidden;
  if (!["?", "q"].includes(name)) refs.stageKeys.hidden = true;
  if (root.dataset.touch === "false") refs.stageHint.hidden = true;
  if (name === "Escape" && listed) return undefined;      // the first Escape closes the list alone
  if (name !== "Escape") fullScreen();
  stopAutoplay();
  return entry[3]();
}, true);
// Without a keyboard: any click shows the list of keys, whose rows are buttons, and closes it.
root.addEventListener("click", (event) => {
  if (!stage.kept || !event.isTrusted || event.target.closest("[data-leave], .pf-stage-prompt, .pf-proof-open, dialog"))
    return;
  const pressed = event.target.closest("[data-key]")?.dataset.key, typed = !refs.stagePrompt.hidden;
  if (typed) closePrompt();
  if (typed && pressed === "Enter") racePrompt();
  else if (pressed) {
    stopAutoplay();
    keys().find(([names]) => names.includes(pressed))[3]();
  } else if (!typed) {
    const { stageKeys: box } = refs, isCode = !box.hidden && box.hasAttribute("data-code");
    if (!isCode || !event.target.closest("dl")) turnKeys(isCode);        // a click on the list's own Q has just shown it
  }
});
root.querySelectorAll("[data-leave]").forEach((button) => button.addEventListener("click", () => endStage()));
root.addEventListener("pointermove", ({ movementX, movementY }) => {
  if (stage.kept && (movementX || movementY)) showHint();
});
// Escape leaves the full screen without a key press that a page sees.
document.addEventListener("fullscreenchange", () => {
  if (document.fullscreenElement) return;
  if (refs.proof.open) refs.proof.close(); else back();
});
document.addEventListener("click", (event) => { if (event.target.closest?.("#page-stage-button")) beginStage(); });
on("painted", () => {
  if (stage.byLink && (S.header || isLinked())) beginStage();
  if (!stage.kept) return;
  if (replay.playing && !stage.played) showView("on");
  if (stage.played && !S.live && !replay.playing && replay.t >= replay.duration) showView("verdict");
  stage.played = replay.playing;
  if (S.verdictWaits && replay.t >= replay.duration) {
    S.verdictWaits = false;
    showResult();
  }
  const now = moment(), isBefore = ["before", "waiting"].includes(now.moment);
  root.toggleAttribute("data-before", isBefore);
  if (isBefore) write(refs.stageGiven, givenNow());
  if (now.moment !== "over" && root.dataset.view === "plain") showTexts();
  if (now.moment !== "over" && (S.live || !S.met)) hideResult();
  write(refs.stageSays, `${aloud(now)} ${now.moment === "over" && now.kind ? servedNow() : ""}`.trim());
});
