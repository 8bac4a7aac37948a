// Figures drawn by the server when their tab is opened.

import { on, root } from "../board/root.js";
import { ask } from "../board/served.js";
import { S } from "../board/state.js";
import { offerCheats } from "./cheats.js";

// Tab -> the gr.HTML event that requests its figures.
const DRAWN = { charts: "submit", why: "expand" };
let numRequests = 0;

export function askForFigures() {
  const { tab } = root.dataset, figures = document.getElementById(`page-${tab}`);
  if (!DRAWN[tab] || !figures || !S.raw || S.asked[tab]) return;
  const request = S.asked[tab] = String(numRequests += 1);
  figures.classList.add("page-stale");
  const done = new MutationObserver(() => {
    const whose = figures.querySelector("[data-charts-of]");
    if (S.asked[tab] !== request) done.disconnect();
    if (S.asked[tab] !== request || whose?.dataset.chartsOf !== request) return;
    figures.classList.remove("page-stale");
    done.disconnect();
    if (tab === "why") offerCheats(JSON.parse(whose.dataset.switches));
  });
  done.observe(figures, { childList: true, subtree: true, attributes: true });
  ask(DRAWN[tab], request);
}

// Do not show one race's figures under another.
function forgetFigures() {
  document.querySelectorAll(".page-figures").forEach((each) => each.classList.add("page-stale"));
  offerCheats({});
}

on("recording", askForFigures);
on("cleared", forgetFigures);
on("tab", (name) => {
  for (const tab of Object.keys(DRAWN))
    document.getElementById(`page-${tab}`)?.classList.toggle("page-open", name === tab);
  askForFigures();
});
