// Files that the page saved, and who opens them.

const SAVED = /^[^]{0,200}"format":\s*"photofinish-(race|study|load|checkup|results)"/;
export const OPENS = "photofinish:open";

// The text of a file in UTF-8, or in UTF-16 with its mark, as PowerShell writes it.
export async function fileText(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  return new TextDecoder({ 0xff: "utf-16le", 0xfe: "utf-16be" }[bytes[0]]).decode(bytes);
}

// "race", or what "Try it on yours" saves; null for any other text. Its beginning is enough.
export const savedKind = (text) => SAVED.exec(text)?.[1] ?? null;

// Have a saved result opened. Returns whether the page can: one that was exported cannot.
export const isOpened = (file) => !document.dispatchEvent(new CustomEvent(OPENS, { cancelable: true, detail: file }));
