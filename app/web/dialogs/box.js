// A dialog of the page: its parts by name, and its opening.

import { element } from "../host.js";

export const dialog = element.querySelector("dialog");
export const refs = Object.fromEntries([...dialog.querySelectorAll("[data-ref]")].map((node) =>
  [node.dataset.ref, node]));

export function openedBy(button) {
  refs.close.addEventListener("click", () => dialog.close());
  document.addEventListener("click", (event) => {
    if (event.target.closest?.(button)) dialog.showModal();
  });
}
