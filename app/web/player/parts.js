// Puts an exported page's parts in place, also where a browser saved it with what its program had made of them.
// Imported first.

import { element } from "../host.js";

const page = document.documentElement;
element.replaceChildren();
for (const { name } of [...page.attributes]) if (name !== "lang") page.removeAttribute(name);
element.append(document.createRange().createContextualFragment(document.getElementById("parts").textContent));
