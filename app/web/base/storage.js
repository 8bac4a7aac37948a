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
