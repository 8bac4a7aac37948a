// The panels of a race, one at a time, and how its texts are shown. A tab never moves what stands above it.

const tabs = [...root.querySelectorAll("[role=tab]")];

function choose(name) {
  popover.close();
  if (root.dataset.tab === "whatif" && name !== "whatif") endWhatIf();
  root.dataset.tab = name;
  document.getElementById("page-charts")?.classList.toggle("page-open", name === "charts");
  for (const tab of tabs) {
    const chosen = tab.dataset.tab === name;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
  }
  showTexts();
  if (name === "steps" && !S.live && !replay.playing) Object.values(views).forEach((view) => view.toTop());
  if (name === "charts") askForCharts();
  if (name === "whatif" && !S.live) openWhatIf();
  if (name === "onestep") pauseForSteps();
}

// The page's figures are drawn by the server, of the race that is on the screen when somebody looks at them.
let asked = null;

function askForCharts() {
  const figures = document.getElementById("page-charts");
  if (!figures || !S.raw || asked === S.id) return;
  asked = S.id;
  figures.classList.add("page-stale");
  const done = new MutationObserver(() => {
    if (figures.querySelector("[data-charts-of]")?.dataset.chartsOf !== asked) return;
    figures.classList.remove("page-stale");
    done.disconnect();
  });
  done.observe(figures, { childList: true, subtree: true, attributes: true });
  trigger("submit", { race: asked, recording: S.raw });
}

function showTexts() {
  const marks = refs.marks.getAttribute("aria-pressed") === "true";
  root.dataset.view = root.dataset.tab === "steps" ? "rows" : marks ? "reading" : "plain";
  Object.values(views).forEach((view) => view.follow());
  beside(refs.rightText, refs.leftText);
}

// Without marks both texts are laid out alike, so they are read side by side: where one is scrolled, so is the other.
function beside(text, other) {
  if (root.dataset.view === "plain") other.scrollTop = text.scrollTop;
}
refs.leftText.addEventListener("scroll", () => beside(refs.leftText, refs.rightText), { passive: true });
refs.rightText.addEventListener("scroll", () => beside(refs.rightText, refs.leftText), { passive: true });

// A button that stays pressed.
function pressable(button, then) {
  button.addEventListener("click", () => {
    const pressed = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(pressed));
    then(pressed);
  });
}

tabs.forEach((tab, i) => {
  tab.addEventListener("click", () => choose(tab.dataset.tab));
  tab.addEventListener("keydown", (event) => {
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined || !tabs[to]) return;
    event.preventDefault();
    tabs[to].focus();
    choose(tabs[to].dataset.tab);
  });
});
pressable(refs.marks, () => { popover.close(); showTexts(); });
pressable(refs.stepAsk, (pressed) => { walking.asks = pressed; stand().revealed = false; schedule(); });
pressable(refs.otherLane, (pressed) => { root.dataset.both = String(pressed); showTexts(); });
refs.dollars.addEventListener("input", schedule);
