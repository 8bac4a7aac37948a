// The stage's box for a prompt of the presenter's or the audience's own, which the page's box then races.

import { write } from "../base/text.js";
import { isOwnPrompt, leaveAsIs, promptBox } from "../board/page.js";
import { ownNote } from "../board/prompt.js";
import { refs, root, S } from "../board/screen.js";
import { ASKS } from "./aloud.js";
import { raceLive } from "./live.js";

let example = null;           // the example's prompt that the box began with, if any

export function openPrompt() {
  const { value: typed = "", maxLength = 0 } = promptBox() ?? {};
  const isOnScreen = S.ribbon.includes("RECORDED") && S.header, value = isOnScreen ? S.header.prompt.text : typed;
  if (maxLength > 0) refs.stageTyped.maxLength = maxLength;
  refs.stageTyped.value = value;
  example = isOnScreen || !isOwnPrompt() ? value : null;
  refs.stageTyped.enterKeyHint = root.dataset.touch === "true" ? "enter" : "go";
  refs.stagePrompt.hidden = false;
  refs.stageTyped.select();
  refs.stageTyped.focus();
  warn();
}

function warn() {
  refs.stageWarns.replaceChildren(...refs.stageTyped.value === example ? [] : ownNote(refs.stageTyped));
}

export function closePrompt() {
  refs.stagePrompt.hidden = true;
  refs.stageTyped.blur();
}

export function racePrompt() {
  closePrompt();
  if (refs.stageTyped.value === example) leaveAsIs(example);
  if (refs.stageTyped.value) raceLive(refs.stageTyped.value);
}

// Return adds a line with Shift, and where it is the only way to add one; on a button it is that button's.
export function promptKey(event) {
  const isTheirs = event.key === "Enter" && (event.shiftKey || root.dataset.touch === "true"
    || event.target.closest("button"));
  const act = isTheirs ? null : { Enter: racePrompt, Escape: closePrompt }[event.key];
  if (!act) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  act();
}

write(refs.stageAsks, ASKS);
refs.stageRace.addEventListener("click", racePrompt);
refs.stageTyped.addEventListener("input", warn);
