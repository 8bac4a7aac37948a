// A result as a page of its own, for those who have no Photofinish: what the dialog shows, without its buttons.

import { REPORT_CSS } from "../host.js";
import { saveAs } from "../base/dom.js";
import { make } from "../base/text.js";
import { dialog, refs } from "./box.js";
import { runs, study } from "./dialog.js";

const POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
const LEFT_OUT = "button, [hidden], .ps-opened, .ps-row, section > :empty";
const OF_THE_PAGE = ["id", "data-ref", "aria-labelledby", "tabindex"];
// By kind of dialog: {article(), of()}: what is shown now, and of which model and servers; null if that is not certain.
const shown = window.photofinishShown ??= {};

// Texts of servers are copied as nodes, never as markup.
function article() {
  const section = refs.result.cloneNode(true), its = make("article", dialog.className);
  for (const button of section.querySelectorAll(".ps-race")) button.replaceWith(button.textContent);
  if (refs.caution?.textContent)
    section.querySelector(".ps-verdict").after(make("p", "ps-caution", refs.caution.textContent));
  for (const node of section.querySelectorAll(LEFT_OUT)) node.remove();
  for (const node of section.querySelectorAll("details")) node.open = true;
  for (const node of [section, ...section.querySelectorAll("*")])
    for (const name of OF_THE_PAGE) node.removeAttribute(name);
  its.append(make("h1", "", dialog.querySelector("h2").textContent), section);
  return its;
}

function written(articles) {
  const page = document.implementation.createHTMLDocument(articles[0].querySelector(".ps-verdict").textContent);
  const metas = [{ charset: "utf-8" }, { "http-equiv": "Content-Security-Policy", content: POLICY },
    { name: "viewport", content: "width=device-width, initial-scale=1" }].map((attributes) => {
    const meta = make("meta");
    for (const [name, value] of Object.entries(attributes)) meta.setAttribute(name, value);
    return meta;
  });
  page.documentElement.lang = "en";
  page.head.prepend(...metas);
  page.head.append(make("style", "", REPORT_CSS));
  page.body.append(...articles);
  return `<!doctype html>\n${page.documentElement.outerHTML}\n`;
}

// Saves the shown result, and after it the other dialog's if that is of the same. of(): model, lanes and URLs of what
// is shown, which may be a file's; nameOf(): of the file.
export function savesPage(kind, { draw, of, nameOf }) {
  const its = { article: () => { draw(); return article(); },
    of: () => (refs.result.hidden || runs() || study.frame.opened ? null : JSON.stringify(of())) };
  shown[kind] = its;
  refs.savePage.addEventListener("click", () => {
    const mine = its.of(), same = Object.values(shown).filter((each) => each !== its && mine && each.of() === mine);
    const articles = [its, ...same].map((each) => each.article());
    saveAs(new Blob([written(articles)], { type: "text/html" }), nameOf().replace(/json$/, "html"));
  });
}
