// Puts an exported page's parts in place, also where a browser saved it with what its program had made of them; and its
// text before that, in ASCII. Imported first.

import { element } from "../host.js";

const page = document.documentElement;
element.replaceChildren();
for (const { name } of [...page.attributes]) if (name !== "lang") page.removeAttribute(name);
export const source = `<!doctype html>\n${page.outerHTML}\n`.replace(/[^\0-\x7f]/gu, (c) => `&#${c.codePointAt()};`);
element.append(document.createRange().createContextualFragment(document.getElementById("parts").textContent));
