// What the page's dialogs do alike: their parts, opening, closing, choosing a file, saving a result, copying a command.

const LOST_MS = 15000, LOOK_MS = 3000;      // the server's frames come every two seconds
const dialog = element.querySelector("dialog");
const refs = Object.fromEntries([...dialog.querySelectorAll("[data-ref]")].map((node) => [node.dataset.ref, node]));

// does: read(file), start(), draw(), onFrame(text), isLost(), result(), command(); button: what opens the dialog; name: of
// the saved file.
function connect(does, button, name) {
  refs.open.addEventListener("click", () => refs.file.click());
  refs.file.addEventListener("change", async () => {
    const [file] = refs.file.files;
    refs.file.value = "";
    await does.read(file);
  });
  refs.start.addEventListener("click", does.start);
  refs.stop.addEventListener("click", () => { refs.stop.disabled = true; trigger("clear"); });
  refs.close.addEventListener("click", () => dialog.close());
  refs.save.addEventListener("click", () => {
    const url = URL.createObjectURL(new Blob([JSON.stringify(does.result())], { type: "application/json" }));
    const link = make("a");
    Object.assign(link, { href: url, download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  });
  refs.copy.addEventListener("click", async () => {
    const words = refs.copy.textContent;
    try {
      await navigator.clipboard.writeText(does.command());
      refs.copy.textContent = "Copied";
    } catch { refs.copy.textContent = "This browser does not let a page copy"; }
    setTimeout(() => { refs.copy.textContent = words; }, 1200);
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest?.(button)) dialog.showModal();
  });
  setInterval(() => { if (does.isLost()) does.draw(); }, LOOK_MS);
  watch("value", () => { if (props.value) does.onFrame(props.value); });
}
