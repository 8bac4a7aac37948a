// The text of an exported page, taken before its program changes it: imported first.

export const source = `<!doctype html>\n${document.documentElement.outerHTML}\n`;
