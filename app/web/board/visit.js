// The page around the race: its keys, its side panel, and what it remembers about a visitor.

import { closed, fetchOurs, keyName, nextEvent, opened, remember, remembered, SILENT, typeInto,
  within } from "../base/dom.js";
import { sentence } from "../base/text.js";
import { onFrame } from "./frames.js";
import { waiting } from "./card.js";
import { examples, isLinked, isOwnPrompt, pageButton, promptBox, racedSettings, RACING, updatePageButtons } from "./page.js";
import "./prompt.js";
import { board, mark, on, refs, S } from "./screen.js";
import { comeBackToRace, raceAgain, raceNow } from "./races.js";
import { stop } from "./stream.js";

const RACE_KEY = "photofinish.race";         // the last race of this tab
const OVER_KEY = "photofinish.over";          // the last one that is over
const RECORDING_KEY = "photofinish.recording";       // its recording
const FILLED_MS = 8000;          // how long the settings of an example may take
const panel = () => document.getElementById("page-panel");

document.addEventListener("keydown", (event) => {
  const key = event.ctrlKey || event.metaKey ? keyName(event) : "";
  if (key === "Enter" && !document.querySelector("dialog[open]")) {
    event.preventDefault();
    document.activeElement?.blur();         // Gradio reads a text box when it loses focus
    pageButton("race")?.click();
  }
  if (key === "z" && !event.shiftKey && chosen?.isOwn && event.target.closest?.("#page-prompt")) {
    event.preventDefault();
    typeInto(event.target, chosen.before);         // an example is in its place, and nothing that a browser undoes
  }
  if (event.key === "Escape") board.alert("");
  const listed = event.target.closest?.("[aria-expanded=true]");        // Escape closes a list of choices first
  if (event.key === "Escape" && !listed && panel()?.classList.contains("open")) toggleSettings();
});

// Open the side panel and focus it, unless the visitor has moved on; or close it and return the focus.
function toggleSettings() {
  const opens = !panel().classList.contains("open"), button = pageButton("settings");
  panel().querySelector(".toggle-button").click();
  mark("settings", opens);
  button?.focus();
  if (!opens) return closed(toggleSettings);
  opened(toggleSettings);
  return setTimeout(() => { if (document.activeElement === button) panel().querySelector("input")?.focus(); }, 60);
}

// The second click of a double click on Race falls on Stop, which has taken its place.
document.addEventListener("click", ({ target, detail }) => {
  if (target.closest?.("#page-settings-button, #page-panel-close")) toggleSettings();
  if (target.closest?.("#page-race-button")) raceNow();
  if (target.closest?.("#page-stop-button") && detail < 2) stop("race");
});

// "More" shows all examples. On a phone "Menu" shows them and the doors, until one of them is chosen.
document.addEventListener("click", ({ target }) => {
  const menu = pageButton("menu"), more = pageButton("more"), isOpen = menu?.ariaExpanded === "true";
  const opener = target.closest?.("#page-menu-button, #page-more-button");
  const chosen = isOpen && menu.checkVisibility() && target.closest?.(".page-header button, [id^=page-example-]");
  if (!opener && !chosen) return;
  menu.ariaExpanded = String(!isOpen);
  mark("more", !isOpen);
  if (opener && more.contains(opener)) more.previousElementSibling.focus();
});

// A reloaded tab gets its race back, even if the server was restarted: one that goes on from its stream, one that is
// over from the tab's own copy, or from the server's if it was too long to keep.
on("frame", ({ race, ribbon, recording, state }) => {
  if (state === "lost") return lost();
  if (race === "none" || ribbon?.includes("RECORDED")) return undefined;
  if (remembered(RACE_KEY, true) !== race) remember(RACE_KEY, race, true);
  if (!recording) return undefined;
  remember(OVER_KEY, race, true);
  remember(RECORDING_KEY, null, true);       // there may be no room for the new one
  return remember(RECORDING_KEY, recording, true);
});
async function comeBack(race) {
  const answer = remembered(RECORDING_KEY, true) ? null : await fetchOurs(`recordings/${race}.json`).catch(() => null);
  const recording = answer?.ok ? await answer.text() : remembered(RECORDING_KEY, true);
  if (S.id === race || remembered(RACE_KEY, true) !== race) return undefined;
  if (!recording) return board.alert("Your last race is no longer on the server.");
  if (!JSON.parse(recording).events.some(({ type }) => type === "step")) return undefined;
  return onFrame({ race, seq: 0, state: "finished", status: { text: "Your last race." }, complete: true, recording });
}
function lost() {
  if (remembered(RACE_KEY, true) !== remembered(OVER_KEY, true)) {
    board.alert("Your last race did not finish: the page was away for too long, or the server was restarted. "
      + "Race runs it again.");
    // One that the screen still shows as going on: the page would wait for it until it is loaded again.
    const { race, seq } = waiting ?? { race: S.id, seq: S.seq };
    const status = { text: "The server no longer knows this race." };
    if (waiting || RACING.includes(S.state))
      onFrame({ race, seq: seq + 1, state: waiting ? "stopped" : "failed", status, complete: true });
    remember(RACE_KEY, null, true);
  }
  return true;
}
if (remembered(OVER_KEY, true)) setTimeout(comeBack, 0, remembered(OVER_KEY, true));
comeBackToRace(remembered(RACE_KEY, true));
window.addEventListener("pageshow", ({ persisted }) => { if (persisted) comeBackToRace(S.id); });

// A reloaded tab restores the settings of its race; see app/page/start.js.
function keepSettings(raced) {
  const { target, prompt, ...settings } = raced ?? {};
  remember("photofinish.settings", new URLSearchParams(settings).toString(), true);
}
on("header", () => { if (!S.ribbon.includes("RECORDED")) keepSettings(racedSettings()); });

// The example chosen last, unless something was typed since: its name, the prompt before, whether that was typed, and
// when its settings are there. And what was typed since an example or a model was chosen (prompt, numbers), by box.
let chosen = null;
const kept = new Map();

// The prompt typed here is restored at the next visit, unless an example took its place.
document.addEventListener("input", ({ target, isTrusted }) => {
  const isPrompt = target.closest?.("#page-prompt");
  if (isPrompt || (isTrusted && target.closest("#page-panel") && /number|range/.test(target.type))) {
    kept.delete(target);         // the last one comes last: a slider is two boxes
    kept.set(target, target.value);
  }
  if (!isPrompt) return;
  chosen = null;
  remember("photofinish.prompt", target.value);
  document.getElementById("page-presets")?.classList.add("page-own");     // hides the example's sentence
});
document.addEventListener("click", (event) => {
  const example = examples().find((button) => button.contains(event.target));
  if (!example) return;
  kept.clear();
  chosen = { name: example.textContent.trim(), before: promptBox()?.value, isOwn: isOwnPrompt(),
    isFilled: nextEvent("photofinish:chosen") };
  remember("photofinish.prompt", null);
  remember(RACE_KEY, null, true);
  keepSettings(null);
  document.getElementById("page-presets").classList.remove("page-own");
});
// Its text and settings come from the server, and not in the place of what was typed meanwhile.
document.addEventListener("photofinish:pairing", () => kept.clear());
for (const name of ["chosen", "paired"]) document.addEventListener(`photofinish:${name}`, () => setTimeout(() => {
  for (const [box, text] of kept) if (text !== box.value) typeInto(box, text);
}, 0));
refs.alertClose.addEventListener("click", () => board.alert(""));
// An opened file's race is run again as recorded. For an example, its button fills in the settings first.
refs.liveHere.addEventListener("click", async () => {
  if (S.fromFile) return raceAgain();
  const { name, header } = S, wanted = header?.prompt.text;
  if ((promptBox()?.value ?? wanted) !== wanted) {
    if (chosen?.name !== name) examples().find((button) => button.textContent.trim() === name)?.click();
    if (!await within(chosen?.isFilled, FILLED_MS)) return board.alert(sentence(SILENT));
  }
  return pageButton("race")?.click();
});
// The page's buttons appear later than the race, much later on a busy machine.
on("laid", () => {
  updatePageButtons();
  if (isLinked() || remembered("photofinish.prompt") !== null)
    document.getElementById("page-presets").classList.add("page-own");
});
