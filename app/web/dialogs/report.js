// A result as a page of its own, for those who have no Photofinish: what the dialog shows, without its buttons.

import { REPORT_CSS } from "../host.js";
import { saveAs } from "../base/dom.js";
import { make } from "../base/text.js";
import { dialog, refs } from "./box.js";
import { runs } from "./dialog.js";

const POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
const LEFT_OUT = "button, [hidden], .ps-opened, .ps-short, .ps-row, section > :empty";
const OF_THE_PAGE = ["id", "data-ref", "aria-labelledby", "tabindex"];
const ORDER = ["study", "load", "checkup"];
const ALL = ["", "Save", "Save both results", "Save all three results"];
// By kind of dialog: {article(), servers()}: what is shown now, and the id of its servers.
const shown = window.photofinishShown ??= {};

// Texts of servers are copied as nodes, never as markup.
function article() {
  const section = refs.result.cloneNode(true), body = make("article", dialog.className);
  for (const button of section.querySelectorAll(".ps-race")) button.replaceWith(button.textContent);
  if (refs.caution?.textContent)
    section.querySelector(".ps-verdict").after(make("p", "ps-caution", refs.caution.textContent));
  for (const node of section.querySelectorAll(LEFT_OUT)) node.remove();
  for (const node of section.querySelectorAll("details")) node.open = true;
  for (const node of [section, ...section.querySelectorAll("*")])
    for (const name of OF_THE_PAGE) node.removeAttribute(name);
  body.append(make("h1", "", dialog.querySelector("h2").textContent), section);
  return body;
}

function shortArticle() {
  const body = make("article", dialog.className), lines = refs.short.textContent.split("\n");
  body.append(make("h1", "", `In short: ${refs.scope.textContent}`), ...lines.map((line) => make("p", "", line)));
  return body;
}

function written(articles, title) {
  const page = document.implementation.createHTMLDocument(title);
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

// The results of these servers that can be saved together, in their order.
function together(kind) {
  const id = shown[kind].servers();
  return ORDER.filter((name) => name === kind || (id && shown[name]?.servers() === id)).map((name) => shown[name]);
}

// What the button that saves this dialog's result says.
export const saveWords = (kind) => `${ALL[shown[kind] ? together(kind).length : 1]} as a page (.html)`;

// Saves the shown result, with the other dialogs' if they are of the same servers. servers(): their id, or null;
// nameOf(): the file's name.
export function savesPage(kind, { draw, servers, nameOf }) {
  shown[kind] = { article: () => { draw(); return article(); },
    servers: () => (refs.result.hidden || runs() ? null : servers()) };
  refs.savePage.addEventListener("click", () => {
    draw();
    const short = refs.short.textContent ? [shortArticle()] : [], title = refs.result.querySelector(".ps-verdict");
    const page = written([...short, ...together(kind).map((result) => result.article())], title.textContent);
    saveAs(new Blob([page], { type: "text/html" }), nameOf().replace(/json$/, "html"));
  });
}
