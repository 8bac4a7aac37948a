// The tab "Why" begins with its answer, in a sentence. Then come figures, as under "Charts", drawn by the server when
// their tab is opened; and "How demos cheat": switches that inflate this race's ratio as some demos do. The server
// computes the ratio for every combination (engine/analysis/inflate.py).

import { make, oneLine, percent, put, times } from "../base/text.js";
import { hasSteps, isOfServers, reasonsOf, sum } from "../base/model.js";
import { on, refs, root, S } from "../board/screen.js";
import { askForFiguresOf } from "../board/served.js";

const DRAWN = ["charts", "why"];        // tabs with figures
const DRAWN_MS = 5000;                  // a figure that is purged while Plotly draws it is a fault of the page
const ARRIVAL_MS = 100;                 // they come one by one, and all are there once none has come for so long
const switches = [...root.querySelectorAll("[data-cheat]")];
let numRequests = 0;
let inflated = {};

// now: as sent by app/figures/cheats.py; {} if unknown, which turns all switches off.
function offerCheats(now) {
  inflated = now;
  refs.cheats.disabled = !inflated.ratios;
  for (const node of switches) node.checked &&= !refs.cheats.disabled;
  cheat();
}

function cheat() {
  const { names = [], ratios = [], exposed = [] } = inflated;
  const bit = (node) => 1 << names.indexOf(node.dataset.cheat);
  const chosen = switches.filter((node) => node.checked), on = chosen.length > 0;
  refs.cheatRibbon.hidden = !on;
  refs.cheated.dataset.on = String(on);
  const ratio = ratios[sum(chosen.map(bit))], honest = ratios[0];
  const without = on ? `instead of ${times(honest)} without tricks` : "as fast as Plain, without tricks";
  put(refs, { cheatRatio: times(ratio), cheatHonest: ratio === undefined ? "" : without });
  for (const node of switches) {
    const { cheat: name } = node.dataset, words = root.querySelector(`[data-exposed="${name}"]`);
    words.hidden = !node.checked;
    if (words.hidden) continue;
    words.replaceChildren(make("strong", "pf-simulated", "SIMULATED"), " ",
      make("strong", "", `${times(ratios[bit(node)])} instead of ${times(honest)}.`), " ",
      oneLine(exposed[names.indexOf(name)]));
  }
}

function whyValues() {
  const lane = S.live ? null : S.race.lane(S.sides[1]), causes = reasonsOf(S.race, S.first, lane);
  if (!causes)
    return { whySays: S.live ? "The answer comes after the race." : "There is nothing to compare.", whyNote: "" };
  const ratio = times(causes.speedup), says = hasSteps(S.header, lane) ?
    `${causes.perStep.toFixed(2)} tokens per step, and a step costs ${causes.cost.toFixed(2)} plain ones: ${ratio}.` :
    `${ratio}, by when text arrived here. The server reports no drafts, so tokens per step and what a step costs are `
      + "not known.";
  const drafting = isOfServers(S.header) ? "Times are those of the text's arrival here: a server does not say how long "
    + "it drafts." : `Drafting is ${percent(causes.drafting)} of the time.`;
  return { whySays: says, whyNote: "Each step reads the model's weights from memory once, to write one token or to "
    + `check many. ${drafting}` };
}

// Gradio drops a figure without telling Plotly, which would listen to the window for it, and keep it, for ever.
const replaced = new MutationObserver((changes) => {
  const gone = changes.flatMap(({ removedNodes }) => [...removedNodes]).filter((node) => !node.isConnected);
  for (const node of gone.flatMap((part) => [part, ...part.querySelectorAll?.("div") ?? []]))
    if (node.classList?.contains("js-plotly-plot")) setTimeout(() => window.Plotly?.purge(node), DRAWN_MS);
});

export function askForFigures() {
  const { tab } = root.dataset, figures = document.getElementById(`page-${tab}`);
  if (tab === "why" && figures && !refs.why.contains(figures)) refs.why.append(figures);      // below the sentence
  if (!DRAWN.includes(tab) || !figures || !S.raw || S.asked[tab]) return;
  const request = S.asked[tab] = String(numRequests += 1);
  replaced.observe(figures, { childList: true, subtree: true });
  figures.classList.remove("page-early");
  figures.classList.add("page-stale");
  let timer = null, isHere = false, isShown = false;
  const show = (whose) => {
    if (S.asked[tab] !== request) return;
    isShown = true;
    figures.classList.remove("page-stale");
    figures.classList.add("page-drawn");
    if (tab === "why") offerCheats(JSON.parse(whose.dataset.switches));
  };
  const done = new MutationObserver(() => {
    const whose = figures.querySelector("[data-charts-of]"), isOwn = whose?.dataset.chartsOf === request;
    if (S.asked[tab] !== request) return done.disconnect();
    if (isOwn && isShown) return undefined;
    clearTimeout(timer);
    if (isOwn) timer = setTimeout(show, ARRIVAL_MS, whose);
    else if (isHere && whose) {        // an answer to an earlier request has come last
      S.asked[tab] = null;
      askForFigures();
    }
    isHere ||= isOwn;
    return undefined;
  });
  done.observe(figures, { childList: true, subtree: true, attributes: true });
  askForFiguresOf(tab, request);
}

// Do not show one race's figures under another.
function forgetFigures() {
  document.querySelectorAll(".page-figures").forEach((figures) => figures.classList.add("page-stale", "page-early"));
  offerCheats({});
}

for (const node of switches) node.addEventListener("change", cheat);
for (const event of ["cleared", "recording", "over", "tab"])
  on(event, () => { if (root.dataset.tab === "why") put(refs, whyValues()); });
on("recording", askForFigures);
on("cleared", forgetFigures);
on("tab", (name) => {
  for (const tab of DRAWN) document.getElementById(`page-${tab}`)?.classList.toggle("page-open", name === tab);
  askForFigures();
});

// Plotly's figures have the width of the screen; with a box of their own they can be scaled to that of the paper.
const ofFigures = (does) => () => document.querySelectorAll(".main-svg").forEach(does);
window.addEventListener("beforeprint", ofFigures((svg) =>
  svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`)));
window.addEventListener("afterprint", ofFigures((svg) => svg.removeAttribute("viewBox")));
