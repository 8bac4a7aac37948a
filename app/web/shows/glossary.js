// The glossary, opened by every button with data-glossary: in the tour and at the foot of the page.

import { showModal } from "../base/dom.js";
import { refs } from "../board/screen.js";

document.addEventListener("click", ({ target }) => {
  if (target.closest?.("[data-glossary]")) showModal(refs.glossary);
  else if (target === refs.glossary || target === refs.glossaryClose) refs.glossary.close();     // a click outside
});
