// The panels of a race, one at a time, and the view of its texts. Switching tabs never moves what is above them.

import { closed, opened, scrollDown } from "../base/dom.js";
import { emit, popover, refs, replay, root, S, still, views } from "./screen.js";

const FIRST = "text";
const LOW_PX = 800;
const FIT = [FIRST, "steps"];          // the tabs that a small screen shows as they are
const DETAILS = ["steps", "charts", "timing"];          // the tabs below "Details"
const rows = [...root.querySelectorAll("[role=tablist]")].map((row) =>
  [...row.querySelectorAll("[role=tab]:not([hidden])")]);
const panels = [...root.querySelectorAll("[role=tabpanel]")];
const toFirst = () => choose(FIRST);
let detail = DETAILS[0];          // the one that was open last

export function choose(asked) {
  const name = asked === "details" ? detail : asked, isDetail = DETAILS.includes(name);
  popover.close();
  emit("leavingTab", { from: root.dataset.tab, to: name });
  root.dataset.tab = name;
  root.toggleAttribute("data-details", isDetail);
  if (isDetail) detail = name;
  for (const tab of rows.flat()) {
    const { dataset } = tab, chosen = dataset.tab === name || (isDetail && dataset.tab === "details");
    const shown = tab.getAttribute("aria-controls");
    if (dataset.tab === name) panels.forEach((panel) => { panel.hidden = panel.id !== shown; });
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
  }
  if (name === FIRST) closed(toFirst); else if (!root.dataset.stage) opened(toFirst);
  showTexts();
  if (name === "steps" && !S.live && !replay.playing) Object.values(views).forEach((view) => view.toTop());
  emit("tab", name);
}

// On a low or narrow screen, scroll so that the tab's answer is in sight, once it is drawn.
export function panelInSight() {
  const { tab, size } = root.dataset, top = root.querySelector(tab === "whatif" ? ".pf-board" : ".pf-tabs");
  if (!FIT.includes(tab) && (window.innerHeight < LOW_PX || size === "narrow")) requestAnimationFrame(() =>
    scrollDown(top.getBoundingClientRect().top, still.matches ? "auto" : "smooth"));
}

export function showTexts() {
  const marks = refs.marks.getAttribute("aria-pressed") === "true";
  root.dataset.view = root.dataset.tab === "steps" ? "rows" : marks ? "reading" : "plain";
  Object.values(views).forEach((view) => view.follow());
}

// Both texts scroll together, so that the same token is at their tops; while they grow, each follows its own end.
let scrolled = null;       // the view that scrolls with the other one, whose own event is still to come
function alignScroll(view, partner) {
  if (scrolled === view || S.live || replay.playing) { scrolled = null; return; }
  const before = partner.box.scrollTop;
  partner.token = view.token;
  scrolled = partner.box.scrollTop === before ? null : partner;
}
for (const [view, partner] of [[views.left, views.right], [views.right, views.left]])
  view.box.addEventListener("scroll", () => alignScroll(view, partner), { passive: true });

// Make a toggle button; `then` gets its new state.
function pressable(button, then) {
  button.addEventListener("click", () => {
    const pressed = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(pressed));
    then(pressed);
  });
}

rows.forEach((tabs) => tabs.forEach((tab, i) => {
  tab.addEventListener("click", () => { choose(tab.dataset.tab); panelInSight(); });
  tab.addEventListener("keydown", (event) => {
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined || !tabs[to]) return;
    event.preventDefault();
    tabs[to].focus();
    choose(tabs[to].dataset.tab);
    panelInSight();
  });
}));
pressable(refs.marks, () => { popover.close(); showTexts(); });
pressable(refs.otherLane, (pressed) => { root.dataset.both = String(pressed); showTexts(); });
choose(FIRST);
