// Files that the page saved, and who opens them.

const SAVED = /^[^]{0,200}"format":\s*"photofinish-(race|study|load|checkup|results)"/;
export const OPENS = "photofinish:open";

// "race", or what "Try it on yours" saves; null for any other text. Its beginning is enough.
export const savedKind = (text) => SAVED.exec(text)?.[1] ?? null;

// Have a saved result opened. Returns whether the page can: one that was exported cannot.
export const isOpened = (file) => !document.dispatchEvent(new CustomEvent(OPENS, { cancelable: true, detail: file }));
