// The dialog "Try it on yours": its parts by name, and its opening.

import { element } from "../host.js";
import { numberBox, showModal, TYPED_MS, typeInto } from "../base/dom.js";
import { leaveAsIs, pageButton, promptBox } from "../board/page.js";

const refsOf = (nodes) => Object.fromEntries([...nodes].map((node) => [node.dataset.ref, node]));
export const dialog = element.querySelector("dialog.ps");
// Of each kind of result, and of the rest of the dialog.
export const sections = Object.fromEntries([...dialog.querySelectorAll("[data-kind]")].map((section) =>
  [section.dataset.kind, { section, ...refsOf(section.querySelectorAll("[data-ref]")) }]));
export const parts = refsOf([...dialog.querySelectorAll("[data-ref]")].filter((node) => !node.closest("[data-kind]")));

// What is chosen in step "what", "prompts" or "question".
export const choiceOf = (step) => parts.form.elements[step].value;
export const setChoice = (step, value) => { parts.form.elements[step].value = value; };

export const closeDialog = () => dialog.close();
export function openDialog() {
  if (dialog.open) return;
  for (const other of document.querySelectorAll("dialog[open]")) other.close();
  showModal(dialog);
}

// Race this prompt on the page, as an own one; with a length, as a study has raced it. null: as the page has it.
export function raceThere(prompt = null, length = null) {
  closeDialog();
  if (length !== null) leaveAsIs(prompt);
  if (prompt !== null) typeInto(promptBox(), prompt);
  if (length !== null) typeInto(numberBox("Maximum length"), length);
  setTimeout(() => pageButton("race").click(), TYPED_MS);
}

parts.close.addEventListener("click", closeDialog);
