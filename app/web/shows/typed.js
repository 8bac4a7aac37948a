// The stage's box for a prompt of the presenter's or the audience's own. A model without a chat template repeats itself
// in prose at temperature 0, so there such a prompt races at PROSE; the page's setting changes with it.

import { typeInto } from "../base/dom.js";
import { asks, hintWords } from "../base/task.js";
import { write } from "../base/text.js";
import { PROSE, temperature } from "../board/page.js";
import { counted } from "../board/prompt.js";
import { root } from "../board/root.js";
import { refs } from "../board/screen.js";
import { ASKS } from "./aloud.js";
import { raceLive } from "./live.js";

// continues: the loaded model has no chat template; example: the example's prompt that the box began with, if any
const asked = { continues: false, example: "" };
const isWarmer = () => asked.continues && refs.stageTyped.value !== asked.example
  && temperature()?.value === "0";

export function openPrompt() {
  const { value = "", maxLength = 0 } = document.querySelector("#page-prompt textarea") ?? {};
  if (maxLength > 0) refs.stageTyped.maxLength = maxLength;
  refs.stageTyped.value = value;
  asked.example = document.querySelector("#page-presets.page-own") ? "" : value;
  refs.stageTyped.enterKeyHint = root.dataset.touch === "true" ? "enter" : "go";
  refs.stagePrompt.hidden = false;
  refs.stageTyped.select();
  refs.stageTyped.focus();
  warn();
  askModel();
}

async function askModel() {
  const { chat } = await counted("?");
  asked.continues = chat === undefined ? asked.continues : chat === false;
  warn();
}

function warn() {
  const { value } = refs.stageTyped;
  write(refs.stageWarns, [isWarmer() && `Races at temperature ${PROSE}: at 0, prose repeats itself.`,
    asked.continues && asks(value) && hintWords(value)].filter(Boolean).join(" "));
}

export function closePrompt() {
  refs.stagePrompt.hidden = true;
  refs.stageTyped.blur();
}

export function racePrompt() {
  closePrompt();
  if (!refs.stageTyped.value) return;
  if (isWarmer()) typeInto(temperature(), String(PROSE));
  raceLive(refs.stageTyped.value);
}

// Return adds a line with Shift, and where it is the only way to add one.
export function promptKey(event) {
  const adds = event.key === "Enter" && (event.shiftKey || root.dataset.touch === "true");
  const act = adds ? null : { Enter: racePrompt, Escape: closePrompt }[event.key];
  if (!act) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  act();
}

write(refs.stageAsks, ASKS);
refs.stageRace.addEventListener("click", racePrompt);
refs.stageTyped.addEventListener("input", warn);
