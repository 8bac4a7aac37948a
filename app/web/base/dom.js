// SVG nodes, and downloads.

import { make } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, className, attributes = {}, words) {
  const node = document.createElementNS(SVG, tag);
  if (className) node.setAttribute("class", className);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (words !== undefined) node.textContent = words;
  return node;
}

export function saveAs(blob, name) {
  const url = URL.createObjectURL(blob);
  Object.assign(make("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
