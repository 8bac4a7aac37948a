// Stage mode: the race alone on the whole screen, in letters for the back row, by keys. Beside an example's live race
// nothing here sets the page's prompt or settings; leaving brings back what the page showed before.

const SLOWEST = 1 / 8, FASTEST = 4;
// What a key does: the keys as the browser names them, how they are written, in words, and the act.
const STAGE_KEYS = [
  [["n", "PageDown"], "N", "next example", () => showExample(1)],
  [["p", "PageUp"], "P", "previous example", () => showExample(-1)],
  [["Enter", "r"], "Enter", "race it live here", () => raceLive()],
  [[" "], "Space", "play or pause", () => { if (!S.live) replay.toggle(); }],
  [["s"], "S", "slower", () => replay.setSpeed(Math.max(SLOWEST, replay.speed / 2))],
  [["f"], "F", "faster", () => replay.setSpeed(Math.min(FASTEST, replay.speed * 2))],
  [["ArrowRight"], "\u2192", "one step on", () => { if (!S.live) replay.step(1); }],
  [["ArrowLeft"], "\u2190", "one step back", () => { if (!S.live) replay.step(-1); }],
  [["ArrowUp", "+"], "\u2191", "guess one token more at once (k)", () => tellLength(1)],
  [["ArrowDown", "-"], "\u2193", "guess one token less", () => tellLength(-1)],
  [["0"], "0", "as raced", () => endWhatIf()],
  [["m"], "M", "marks on or off", () => refs.marks.click()],
  [["v"], "V", "the verdict alone", () => { root.dataset.stage = root.dataset.stage === "verdict" ? "on" : "verdict"; }],
  [["?"], "?", "these keys", () => { refs.stageKeys.hidden = !refs.stageKeys.hidden; }],
  [["Escape"], "Esc", "leave the stage", () => endStage()],
];
// kept: what the page showed before, null while it is not on the stage; example: the last one asked for; byLink: whether
// the page's address asks for the stage.
const stage = { kept: null, example: null, byLink: new URLSearchParams(location.search).has("stage") };
const textBoxes = () => [refs.leftText, refs.rightText];

function beginStage() {
  if (stage.kept) return;
  endStory();
  skipOpening();
  leaveGame();
  stage.byLink = false;
  stage.kept = { S, served, live: S.live, t: replay.t, speed: replay.speed, playing: replay.playing, tab: root.dataset.tab,
    marks: refs.marks.getAttribute("aria-pressed"), told: S.told && [refs.whatIfDrafter.value, refs.whatIfK.value],
    focused: document.activeElement, scroll: [window.scrollX, window.scrollY],
    texts: textBoxes().map((box) => box.scrollTop), follows: Object.values(views).map((view) => view.follows) };
  root.dataset.stage = "on";
  choose("whatif");             // its texts are those of the tab Text, and a key may ask for another length
  document.activeElement?.blur();
  Object.values(views).forEach((view) => { view.follows = true; });
  showTexts();
  fullScreen();
  board.announce("On the stage. The key ? shows all keys, Escape leaves.");
}

// A browser may forbid it, or ask for a key first.
function fullScreen() {
  if (!document.fullscreenElement) document.documentElement.requestFullscreen?.().catch(() => {});
}

function endStage() {
  const { kept } = stage, stays = kept && S !== kept.S && !S.ribbon.includes("RECORDED");     // a race held on the stage
  if (!kept) return;
  Object.assign(stage, { kept: null, example: null });
  delete root.dataset.stage;
  refs.stageKeys.hidden = true;
  if (document.fullscreenElement) document.exitFullscreen();
  replay.pause();
  replay.setSpeed(kept.speed);
  refs.marks.setAttribute("aria-pressed", kept.marks);
  choose(kept.tab === "whatif" ? "text" : kept.tab);        // ends what the slider told
  if (S !== kept.S && !stays) bringBack(kept.S, kept.served);
  choose(kept.tab);
  if (kept.told && !stays) {
    [refs.whatIfDrafter.value] = kept.told;
    offerLengths(null);
    refs.whatIfK.value = kept.told[1];
    tellWhatIf();
  }
  if (!kept.live && !stays) replay.seek(kept.t);
  paint();
  Object.values(views).forEach((view, i) => { view.follows = kept.follows[i]; });
  textBoxes().forEach((box, i) => { box.scrollTop = kept.texts[i]; });
  window.scrollTo(...kept.scroll);
  kept.focused?.focus?.({ preventScroll: true });
  if (kept.playing && !stays) replay.play();
}

// The recorded race of the example before or after this one; its prompt and settings stay in their places.
function showExample(by) {
  const names = [...document.querySelectorAll("#page-presets button:not(#page-settings-button)")]
    .map((button) => button.textContent.trim());
  const at = names.indexOf(stage.example ?? S.name);
  if (!names.length) return;
  stage.example = names[at < 0 ? (by > 0 ? 0 : names.length - 1) : (at + by + names.length) % names.length];
  if (S.fromFile) served = "";          // else a race that a file covers would stay covered
  trigger("select", { name: stage.example });
}

// As the page's own buttons do; while they can do nothing, nothing.
function raceLive() { (refs.liveHere.hidden ? pageButton("race") : refs.liveHere)?.click(); }

// The race on the screen at one more or one less; from an automatic length, the shortest or the longest.
function tellLength(by) {
  const whatIf = whatIfOf();
  if (!(whatIf instanceof WhatIf)) return board.announce(whatIf);
  const ks = whatIf.offered.get(toldDrafter()), raced = ks.indexOf(Number(racedLane().k));
  const from = S.told ? Number(refs.whatIfK.value) : raced >= 0 ? raced : by > 0 ? -1 : ks.length;
  refs.whatIfK.value = String(Math.max(0, Math.min(ks.length - 1, from + by)));
  return tellWhatIf();
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
  mine();
  found[3]();
}, true);
// Without a keyboard: any press shows the keys, with a button that leaves.
root.addEventListener("click", (event) => {
  if (!stage.kept || !event.isTrusted || event.target === refs.stageLeave) return;
  refs.stageKeys.hidden = !refs.stageKeys.hidden;
});
refs.stageLeave.addEventListener("click", endStage);
document.addEventListener("fullscreenchange", () => { if (!document.fullscreenElement) endStage(); });
document.addEventListener("click", (event) => { if (event.target.closest?.("#page-stage-button")) beginStage(); });
root.addEventListener("photofinish:painted", () => { if (stage.byLink) beginStage(); });
