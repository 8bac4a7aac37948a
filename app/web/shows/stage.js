// Stage mode: the race in full screen with large text, controlled by keys. Only racing an example live changes the
// page's prompt and settings; leaving restores what the page showed before.

import { trigger } from "../host.js";
import { make } from "../base/text.js";
import { stopAutoplay } from "../board/deck.js";
import { examples, pageButton } from "../board/page.js";
import { paint } from "../board/paint.js";
import { on, root } from "../board/root.js";
import { board, refs, replay, views } from "../board/screen.js";
import { S, session } from "../board/state.js";
import { choose, showTexts } from "../board/tabs.js";
import { leaveGame } from "../tabs/guess_tab.js";
import { sizeOf, WhatIf } from "../tabs/whatif.js";
import { chosenDrafter, endWhatIf, offerLengths, racedLane, showChosen, whatIfOf } from "../tabs/whatif_tab.js";
import { skipOpening } from "./opening.js";
import { bringBack, endStory } from "./story.js";

const SLOWEST = 1 / 8;
const FASTEST = 4;
// [browser's names of the keys, label, description, action]
const STAGE_KEYS = [
  [["n", "PageDown"], "N", "next example", () => showExample(1)],
  [["p", "PageUp"], "P", "previous example", () => showExample(-1)],
  [["Enter", "r"], "Enter", "race it live", () => raceLive()],
  [[" "], "Space", "play or pause", () => { if (!S.live) replay.toggle(); }],
  [["s"], "S", "slower", () => replay.setSpeed(Math.max(SLOWEST, replay.speed / 2))],
  [["f"], "F", "faster", () => replay.setSpeed(Math.min(FASTEST, replay.speed * 2))],
  [["ArrowRight"], "\u2192", "one step forward", () => { if (!S.live) replay.step(1); }],
  [["ArrowLeft"], "\u2190", "one step back", () => { if (!S.live) replay.step(-1); }],
  [["ArrowUp", "+"], "\u2191", "longer draft (k + 1)", () => changeLength(1)],
  [["ArrowDown", "-"], "\u2193", "shorter draft (k \u2212 1)", () => changeLength(-1)],
  [["0"], "0", "as raced", () => endWhatIf()],
  [["m"], "M", "marks on or off", () => refs.marks.click()],
  [["v"], "V", "the verdict alone",
    () => { root.dataset.stage = root.dataset.stage === "verdict" ? "on" : "verdict"; }],
  [["?"], "?", "these keys", () => { refs.stageKeys.hidden = !refs.stageKeys.hidden; }],
  [["Escape"], "Esc", "leave the stage", () => endStage()],
];
// kept: what the page showed before, null when off stage; example: the last one chosen; byLink: the page's address
// opens the stage.
const stage = { kept: null, example: null, byLink: new URLSearchParams(location.search).has("stage") };
const textBoxes = () => [refs.leftText, refs.rightText];

function beginStage() {
  if (stage.kept) return;
  endStory();
  skipOpening();
  leaveGame();
  stage.byLink = false;
  stage.kept = { S, served: session.served, live: S.live, t: replay.t, speed: replay.speed, playing: replay.playing,
    tab: root.dataset.tab, marks: refs.marks.getAttribute("aria-pressed"),
    whatIf: S.computed && [refs.whatIfDrafter.value, refs.whatIfK.value],
    focused: document.activeElement, scroll: [window.scrollX, window.scrollY],
    texts: textBoxes().map((box) => box.scrollTop), follows: Object.values(views).map((view) => view.follows) };
  root.dataset.stage = "on";
  choose("whatif");             // same texts as the tab Text, and keys may change the length
  document.activeElement?.blur();
  Object.values(views).forEach((view) => { view.follows = true; });
  showTexts();
  fullScreen();
  board.announce("Stage mode. Press ? for all keys, Esc to leave.");
}

// A browser may forbid it or require a key press first.
function fullScreen() {
  if (!document.fullscreenElement) document.documentElement.requestFullscreen?.().catch(() => {});
}

function endStage() {
  const { kept } = stage, stays = kept && S !== kept.S && !S.ribbon.includes("RECORDED");    // a race run on the stage
  if (!kept) return;
  Object.assign(stage, { kept: null, example: null });
  delete root.dataset.stage;
  refs.stageKeys.hidden = true;
  if (document.fullscreenElement) document.exitFullscreen();
  replay.pause();
  replay.setSpeed(kept.speed);
  refs.marks.setAttribute("aria-pressed", kept.marks);
  choose(kept.tab === "whatif" ? "text" : kept.tab);        // back to the race as it was run
  if (S !== kept.S && !stays) bringBack(kept.S, kept.served);
  choose(kept.tab);
  if (kept.whatIf && !stays) {
    [refs.whatIfDrafter.value] = kept.whatIf;
    offerLengths(null);
    refs.whatIfK.value = kept.whatIf[1];
    showChosen();
  }
  if (!kept.live && !stays) replay.seek(kept.t);
  paint();
  Object.values(views).forEach((view, i) => { view.follows = kept.follows[i]; });
  textBoxes().forEach((box, i) => { box.scrollTop = kept.texts[i]; });
  window.scrollTo(...kept.scroll);
  kept.focused?.focus?.({ preventScroll: true });
  if (kept.playing && !stays) replay.play();
}

// Show the recorded race of the previous or next example without changing prompt and settings.
function showExample(by) {
  const names = examples().map((button) => button.textContent.trim());
  const at = names.indexOf(stage.example ?? S.name);
  if (!names.length) return;
  stage.example = names[at < 0 ? (by > 0 ? 0 : names.length - 1) : (at + by + names.length) % names.length];
  if (S.fromFile) session.served = "";  // else the server's race would stay hidden behind the file
  trigger("select", { name: stage.example });
}

// Clicks the page's own button, which may be disabled.
function raceLive() { (refs.liveHere.hidden ? pageButton("race") : refs.liveHere)?.click(); }

// Show the race at the next longer or shorter k; from an automatic length, at the shortest or longest.
function changeLength(by) {
  const whatIf = whatIfOf();
  if (!(whatIf instanceof WhatIf)) return board.announce(whatIf);
  const ks = whatIf.offered.get(chosenDrafter()), raced = ks.indexOf(sizeOf(racedLane().k));
  const from = S.computed ? Number(refs.whatIfK.value) : raced >= 0 ? raced : by > 0 ? -1 : ks.length;
  refs.whatIfK.value = String(Math.max(0, Math.min(ks.length - 1, from + by)));
  return showChosen();
}

refs.stageList.append(...STAGE_KEYS.map(([, shown, words]) => {
  const row = make("div"), key = make("dt");
  key.append(make("kbd", "", shown));
  row.append(key, make("dd", "", words));
  return row;
}));
window.addEventListener("keydown", (event) => {
  if (!stage.kept || event.ctrlKey || event.metaKey || event.altKey) return;
  const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const found = STAGE_KEYS.find(([keys]) => keys.includes(name));
  if (!found && name !== "Tab") return;
  event.preventDefault();
  event.stopImmediatePropagation();
  if (!found) return;
  const listed = !refs.stageKeys.hidden;
  if (name !== "?") refs.stageKeys.hidden = true;
  if (name === "Escape" && listed) return;      // the first Escape closes the list alone
  if (name !== "Escape") fullScreen();
  stopAutoplay();
  found[3]();
}, true);
// Without a keyboard: any click shows the list of keys, which has a button to leave.
root.addEventListener("click", (event) => {
  if (!stage.kept || !event.isTrusted || event.target === refs.stageLeave) return;
  refs.stageKeys.hidden = !refs.stageKeys.hidden;
});
refs.stageLeave.addEventListener("click", endStage);
document.addEventListener("fullscreenchange", () => { if (!document.fullscreenElement) endStage(); });
document.addEventListener("click", (event) => { if (event.target.closest?.("#page-stage-button")) beginStage(); });
on("painted", () => { if (stage.byLink) beginStage(); });
