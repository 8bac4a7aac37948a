// Race files: saving and opening. The server makes those of other kinds: a web page that plays the race offline, and
// its steps as a table.

import { fetchOurs, fileText, isOpened, saveAs, savedKind, sayOn, SILENT } from "../base/dom.js";
import { cut, oneLine, sentence } from "../base/text.js";
import { refresh } from "../board/deck.js";
import { clear, over, setRecording } from "../board/frames.js";
import { fillIn, racedSettings } from "../board/page.js";
import { board, refs, S } from "../board/screen.js";
import { send, served } from "../board/served.js";
import { fileName, resultWords } from "./result.js";

// button: says that it saved.
export function download(blob, suffix, button) {
  saveAs(blob, fileName(suffix));
  sayOn(button, "Saved");
  board.announce("Saved.");
}

// Where there is only touch, give a file to the share sheet. Returns whether there is one.
async function shared(blob, suffix) {
  const [type] = blob.type.split(";"), file = new window.File([blob], fileName(suffix), { type });
  if (!window.matchMedia("(hover: none)").matches || !navigator.canShare?.({ files: [file] })) return false;
  return navigator.share({ files: [file], text: resultWords() }).then(() => true, (error) =>
    error.name === "AbortError");         // by the visitor
}

// The same, or save it.
export async function handOver(blob, suffix, button) {
  if (!await shared(blob, suffix)) download(blob, suffix, button);
}

// Show a recording that was checked by the server, or when its page was exported.
export function show(text, name = "the file", key = "") {
  const recording = JSON.parse(text);
  clear(`file:${name}`);
  const state = recording.stopped ? "stopped" : "finished";
  Object.assign(S, { fromFile: true, state, key,
    status: { text: `Opened from ${name}.${recording.stopped ? " The race was stopped." : ""}`, share: null } });
  setRecording(text, recording);
  over(true, 300);
  refresh();
  board.announce("A recorded race is open.");
}

async function openFile(file) {
  let kind;
  try {
    kind = savedKind(await fileText(file.slice(0, 2000)));
    if (kind && kind !== "race" && isOpened(file)) return;
    const key = await send(file);
    const judged = await fetchOurs(`recordings/${key}.json`);        // the server decides what may be said of it
    show(await judged.text(), file.name, key);
    const settings = racedSettings();
    if (settings) fillIn(settings);
  } catch (error) {
    const why = error.message + (error.message === SILENT ? ", or the file is too large" : "");
    board.alert(`${cut(oneLine(file.name), 80)} cannot be opened: ${cut(oneLine(why), 400)}.${
      kind ? "" : " Prompts go into \u201cTry it on yours\u201d."}`);
  }
}

async function saveServed(form, button) {
  try {
    const answer = await fetchOurs(`recordings/${await served()}.${form}`);
    if (!answer.ok) throw new Error((await answer.json()).detail);
    return (form === "html" ? handOver : download)(await answer.blob(), form, button);
  } catch ({ message }) {
    return board.alert(`${sentence(message)} Save the race as a file and run \u201cpython -m engine export FILE\u201d `
      + "later to get a web page or a table.");
  }
}

// A file may be dropped anywhere: the browser would leave the page for it.
for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => {
  const data = event.dataTransfer;
  if (!data.types.includes("Files") || event.defaultPrevented || refs.open.hidden) return;
  event.preventDefault();
  if (refs.open.disabled) data.dropEffect = "none";
  else if (name === "drop") openFile(data.files[0]);
});
refs.savePage.addEventListener("click", () => saveServed("html", refs.savePage));
refs.saveSteps.addEventListener("click", () => saveServed("csv", refs.saveSteps));
refs.save.addEventListener("click", () =>
  download(new Blob([S.raw], { type: "application/json" }), "json", refs.save));
refs.open.addEventListener("click", () => refs.file.click());
refs.file.addEventListener("change", async () => {
  const [file] = refs.file.files;
  refs.file.value = "";
  if (file) await openFile(file);
});
