// What the browser does for the page: copying, saving, typing, asking the server, keeping, going back.

import { make } from "./text.js";

const DONE_MS = 1200, LEAVES_MS = 3000, KEPT_MS = 60000;       // Safari on a phone asks before it reads what is saved

// Say on a button for a while that it has done its work.
export function sayOn(button, words) {
  const before = button.dataset.label ??= button.textContent;
  button.textContent = words;
  setTimeout(() => { button.textContent = before; }, DONE_MS);
}

// Scroll down by so many pixels. Where a frame follows the height of this page, as on Spaces, the page around it scrolls:
// a frame that has not grown yet would scroll inside, and end too short by as much.
export function scrollDown(top, behavior) {
  if (window.parentIFrame) window.parentIFrame.scrollToOffset(0, top); else window.scrollBy({ top, behavior });
}

// Copy a text, or the promise of one, and say so on the button. Returns whether the browser allows it: Safari only in the
// click itself, so nothing may be awaited before. Over plain HTTP there is the older way alone, which copies what is
// selected: next to the button, since outside an open dialog nothing can be.
export async function copy(button, text) {
  const blob = async () => new Blob([await text], { type: "text/plain" });
  try { await navigator.clipboard.write([new window.ClipboardItem({ "text/plain": blob() })]); } catch {
    const box = Object.assign(make("textarea"), { value: await text });
    button.after(box);
    box.select();
    const isCopied = document.execCommand("copy");
    box.remove();
    button.focus();
    if (!isCopied) return false;
  }
  sayOn(button, "Copied");
  return true;
}

// A button that copies what `words` returns.
export const copyOn = (button, words) => button.addEventListener("click", async () => {
  if (!await copy(button, words())) button.textContent = "This browser blocks copying";
});

// The box of one of Gradio's sliders in Settings.
export const numberBox = (label) => document.querySelector(`#page-panel input[aria-label='number input for ${label}']`);

// Type a text into one of Gradio's text boxes. Gradio has read it after TYPED_MS.
export const TYPED_MS = 100;
export function typeInto(box, text) {
  box.value = text;
  box.dispatchEvent(new Event("input", { bubbles: true }));
  box.dispatchEvent(new Event("blur"));
}

// Whether the page's address means something on this machine only.
export const isLoopback = () => /^(localhost|127\.|\[::1\])/.test(location.hostname);

// The key of an event in Latin letters, also where the keyboard writes others: "n" for the Russian т on the same key.
export function keyName({ key, code }) {
  const name = key.length === 1 && key > "\u024f" ? code.replace(/^(Key|Digit)/, "") : key;
  return name.length === 1 ? name.toLowerCase() : name;
}

// The detail of the document's next event of that name.
export const nextEvent = (name) => new Promise((resolve) => {
  document.addEventListener(name, ({ detail }) => resolve(detail), { once: true });
});

// Whether it happens within that time.
export const within = (happens, ms) => Promise.race([
  Promise.resolve(happens).then(() => true), new Promise((resolve) => { setTimeout(resolve, ms, false); })]);

export function saveAs(blob, name) {
  const url = URL.createObjectURL(blob);
  Object.assign(make("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), KEPT_MS);
}

// Resolves at once, or when the page has not been left after all. A browser breaks the connections of a page that is
// left or reloaded before the page is gone, and that is no fault of the server.
let leftAt = -LEAVES_MS;
export function leaving() { leftAt = performance.now(); }
export const staying = () => new Promise((resolve) => { setTimeout(resolve, leftAt + LEAVES_MS - performance.now()); });

// Why there is no answer of the page's server: it is away, or a proxy answered instead, with its sign-in or a limit.
export class NoAnswer extends Error {}
export const SILENT = "the server is not responding";

// The answer of the page's server, by its own header (app/page/gate.py): a proxy's may have any shape. Where a proxy
// removes it, all but web pages passes. path: relative, since the page may have any root path. Throws NoAnswer.
export async function fetchOurs(path, options) {
  const answer = await fetch(path, { redirect: "manual", ...options }).catch(staying);
  if (!answer) throw new NoAnswer(SILENT);
  const { status, headers, ok } = answer;
  if (headers.has("Photofinish") || (ok && !/html/.test(headers.get("Content-Type")))) return answer;
  if (status === 413) throw new NoAnswer("it is too large for a proxy in front of this page");
  throw new NoAnswer(status >= 500 ? SILENT
    : "a proxy answered instead of this page's server; reload the page, in case you have to sign in again");
}

// What the server answers to this; {detail} if it refuses it, there is no answer, or a file cannot be read.
export const post = (path, body) => fetchOurs(path, { method: "POST", body }).then((answer) => answer.json())
  .catch(({ message }) => fileText(new Blob([body]).slice(0, 1)).then(() => ({ detail: message }),
    (unread) => ({ detail: unread.message })));

// What the browser keeps of a visitor, in general or for this tab only. Where it forbids that, nothing is kept.
export function remembered(key, inTab = false) {
  try { return (inTab ? sessionStorage : localStorage).getItem(key); } catch { return null; }
}

// The value of a key whose text is JSON; null if there is none.
export function rememberedJson(key, inTab = false) {
  try { return JSON.parse(remembered(key, inTab)); } catch { return null; }
}

// null forgets the key.
export function remember(key, text, inTab = false) {
  try {
    const storage = inTab ? sessionStorage : localStorage;
    if (text === null) storage.removeItem(key); else storage.setItem(key, text);
  } catch { /* forbidden, or no room */ }
}

const SAVED = /^[^]{0,200}"format":\s*"photofinish-(race|study|load|checkup|results)"/;
export const OPENS = "photofinish:open";

// The text of a file in UTF-8, or in UTF-16 with its mark, as PowerShell writes it.
export async function fileText(file) {
  const why = "this browser cannot read it: it is a folder, or was changed or moved meanwhile";
  const bytes = new Uint8Array(await file.arrayBuffer().catch(() => { throw new Error(why); }));
  return new TextDecoder({ 0xff: "utf-16le", 0xfe: "utf-16be" }[bytes[0]]).decode(bytes);
}

// "race", or what "Try it on yours" saves; null for any other text. Its beginning is enough.
export const savedKind = (text) => SAVED.exec(text)?.[1] ?? null;

// Have a saved result opened. Returns whether the page can: one that was exported cannot.
export const isOpened = (file) => !document.dispatchEvent(new CustomEvent(OPENS, { cancelable: true, detail: file }));

// The browser's Back closes what was opened last (a panel, a tab, the stage) instead of leaving the page. All entries
// that this adds to the browser's history are alike, so only their number matters, and one that is no longer needed
// serves what is opened next.

const MARK = "photofinish";
const entriesNow = () => window.history.state?.[MARK] ?? 0;
const backs = { open: [], entries: entriesNow() };

// From now on Back calls `close`, unless `closed` was called with it.
export function opened(close) {
  if (backs.open.includes(close)) return;
  backs.open.push(close);
  if (backs.open.length <= backs.entries) return;
  window.history.pushState({ ...window.history.state, [MARK]: backs.open.length }, "");
  backs.entries = backs.open.length;
}

export function closed(close) { backs.open = backs.open.filter((entry) => entry !== close); }

// Show a dialog that Back closes.
export function showModal(dialog) {
  const close = () => dialog.close();
  dialog.addEventListener("close", () => closed(close), { once: true });
  dialog.showModal();
  opened(close);
}

function onBack() {
  const left = entriesNow(), num = backs.entries - left;
  backs.entries = left;
  if (num <= 0) return;                         // Forward opens nothing
  const [last] = backs.open.slice(-1);
  if (last) { closed(last); last(); } else window.history.go(-left - 1);      // nothing is open: leave the page
}

window.addEventListener("popstate", onBack);
