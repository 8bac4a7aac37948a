// What the browser keeps of a visitor, in general or for this tab only. Where it forbids that, nothing is kept.

export function remembered(key, inTab = false) {
  try { return (inTab ? sessionStorage : localStorage).getItem(key); } catch { return null; }
}

export const DECIDE_KEY = "photofinish.decide";         // what was entered in the tab Decide
export const TAB_KEY = "photofinish.tab";        // the tab on which an exported page opens

// The value of a key whose text is JSON; null if there is none. An exported page has what was kept where it was made.
export function rememberedJson(key, inTab = false) {
  const brought = document.getElementById("remembered");
  try {
    return JSON.parse(brought?.textContent ?? "{}")[key] ?? JSON.parse(remembered(key, inTab));
  } catch { return null; }
}

// null forgets the key.
export function remember(key, text, inTab = false) {
  try {
    const storage = inTab ? sessionStorage : localStorage;
    if (text === null) storage.removeItem(key); else storage.setItem(key, text);
  } catch { /* forbidden, or no room */ }
}

// Keep a value of rememberedJson, in an exported page also for pages exported from it.
export function rememberJson(key, value) {
  const brought = document.getElementById("remembered");
  if (brought) brought.textContent = JSON.stringify({ ...JSON.parse(brought.textContent), [key]: value });
  remember(key, JSON.stringify(value));
}
