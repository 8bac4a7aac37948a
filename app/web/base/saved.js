// Files that the page saved, and who opens them.

const SAVED = /^[^]{0,200}"format":\s*"photofinish-(race|study|load)"/;
export const OPENS = "photofinish-open";

// "race", "study" or "load"; null for any other text. Its beginning is enough.
export const savedKind = (text) => SAVED.exec(text)?.[1] ?? null;

// Hand a saved file to the dialog for its kind. Returns whether the page has it.
export const isTakenBy = (kind, file) =>
  !document.dispatchEvent(new CustomEvent(OPENS, { cancelable: true, detail: { kind, file } }));
