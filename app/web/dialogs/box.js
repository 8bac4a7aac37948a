// A dialog of the page: its parts by name, and its opening.

import { element } from "../host.js";
import { closed, opened } from "../base/back.js";

export const dialog = element.querySelector("dialog");
export const refs = Object.fromEntries([...dialog.querySelectorAll("[data-ref]")].map((node) =>
  [node.dataset.ref, node]));

const shut = () => dialog.close();

// button: selector of what opens it; Esc, Close and the browser's Back close it. draw: called when it opens.
export function openedBy(button, draw = () => {}) {
  refs.close.addEventListener("click", shut);
  dialog.addEventListener("close", () => closed(shut));
  document.addEventListener("click", (event) => {
    if (!event.target.closest?.(button)) return;
    draw();
    open();
  });
}

// Close this dialog, and open the one of that button.
export function leaveFor(button) {
  shut();
  document.querySelector(button).click();
}

// The check-up opens on top of this dialog, if the page has one.
const CHECK_UP = ".page-checkup-button";
export const canExamine = () => {
  const button = document.querySelector(CHECK_UP);
  return button !== null && getComputedStyle(button).display !== "none";
};
export const examine = () => document.querySelector(CHECK_UP).click();

export function open() {
  dialog.showModal();
  opened(shut);
}
