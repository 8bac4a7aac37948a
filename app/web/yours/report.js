// Results as a page of its own, for those who have no Photofinish: what the dialog shows, without its buttons.

import { REPORT_CSS } from "../host.js";
import { make } from "../base/text.js";
import { dialog } from "./box.js";

const POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
const LEFT_OUT = "button, [hidden], .ps-opened, .ps-row, section > :empty";
const OF_THE_PAGE = ["id", "data-ref", "aria-labelledby", "tabindex"];

// Texts of servers are copied as nodes, never as markup.
function articleOf(section) {
  const copied = section.cloneNode(true);
  for (const button of copied.querySelectorAll(".ps-race")) button.replaceWith(button.textContent);
  for (const node of copied.querySelectorAll(LEFT_OUT)) node.remove();
  for (const node of copied.querySelectorAll("details")) node.open = true;
  for (const node of [copied, ...copied.querySelectorAll("*")])
    for (const name of OF_THE_PAGE) node.removeAttribute(name);
  const head = copied.querySelector(".ps-question");
  head.remove();
  return article(head.textContent, copied);
}

const article = (title, ...content) => make("article", dialog.className, make("h1", "", title), ...content);

// sections: of the results, with their parts; short: lines on all of them.
export function reportPage(sections, short) {
  const page = document.implementation.createHTMLDocument(sections[0].verdict.textContent);
  const metas = [{ charset: "utf-8" }, { "http-equiv": "Content-Security-Policy", content: POLICY },
    { name: "viewport", content: "width=device-width, initial-scale=1" }].map((attributes) => {
    const meta = make("meta");
    for (const [name, value] of Object.entries(attributes)) meta.setAttribute(name, value);
    return meta;
  });
  page.documentElement.lang = "en";
  page.head.prepend(...metas);
  page.head.append(make("style", "", REPORT_CSS));
  page.body.append(make("p", "page-brand", "Photofinish"));
  if (short.length) page.body.append(article(`In short: ${sections.at(-1).scope.textContent}`,
    ...short.map((line) => make("p", "", line))));
  page.body.append(...sections.map(({ section }) => articleOf(section)));
  return `<!doctype html>\n${page.documentElement.outerHTML}\n`;
}
