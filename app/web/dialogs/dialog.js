// Shared by the dialogs: opening, closing, choosing a file, saving a result, copying a command.

import { element, props, trigger, watch } from "../host.js";
import { saveAs } from "../base/dom.js";

export const LOST_MS = 15000;      // the server's frames come every two seconds
const LOOK_MS = 3000;
export const dialog = element.querySelector("dialog");
export const refs = Object.fromEntries([...dialog.querySelectorAll("[data-ref]")].map((node) =>
  [node.dataset.ref, node]));

// does: {read(file), start, draw, onFrame(text), isLost, result, command}; button: selector of what opens the dialog;
// name: of the saved file.
export function connect(does, button, name) {
  refs.open.addEventListener("click", () => refs.file.click());
  refs.file.addEventListener("change", async () => {
    const [file] = refs.file.files;
    refs.file.value = "";
    await does.read(file);
  });
  refs.start.addEventListener("click", does.start);
  refs.stop.addEventListener("click", () => { refs.stop.disabled = true; trigger("clear"); });
  refs.close.addEventListener("click", () => dialog.close());
  refs.save.addEventListener("click", () =>
    saveAs(new Blob([JSON.stringify(does.result())], { type: "application/json" }), name));
  refs.copy.addEventListener("click", async () => {
    const words = refs.copy.textContent;
    try {
      await navigator.clipboard.writeText(does.command());
      refs.copy.textContent = "Copied";
    } catch { refs.copy.textContent = "This browser blocks copying"; }
    setTimeout(() => { refs.copy.textContent = words; }, 1200);
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest?.(button)) dialog.showModal();
  });
  setInterval(() => { if (does.isLost()) does.draw(); }, LOOK_MS);
  watch("value", () => { if (props.value) does.onFrame(props.value); });
}
