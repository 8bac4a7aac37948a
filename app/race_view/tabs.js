// The panels of a race, one at a time, and how its texts are shown. A tab never moves what stands above it.

const tabs = [...root.querySelectorAll("[role=tab]:not([hidden])")];

function choose(name) {
  popover.close();
  leaveGame();
  if (root.dataset.tab === "whatif" && name !== "whatif") endWhatIf();
  root.dataset.tab = name;
  for (const tab of Object.keys(DRAWN))
    document.getElementById(`page-${tab}`)?.classList.toggle("page-open", name === tab);
  for (const tab of tabs) {
    const chosen = tab.dataset.tab === name;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
  }
  showTexts();
  if (name === "steps" && !S.live && !replay.playing) Object.values(views).forEach((view) => view.toTop());
  askForFigures();
  if (name === "whatif" && !S.live) openWhatIf();
  if (name === "onestep") pauseForSteps();
  drawDecide();
}

// The page's figures are drawn by the server, of the race that is on the screen when somebody looks at them. Of each tab
// that has some, the event that asks for them.
const DRAWN = { charts: "submit", why: "expand" };
let numAsked = 0;       // two races may have one id: files of the same name

function askForFigures() {
  const { tab } = root.dataset, figures = document.getElementById(`page-${tab}`);
  if (!DRAWN[tab] || !figures || !S.raw || S.asked[tab]) return;
  const asked = S.asked[tab] = `${numAsked += 1} ${S.id}`;
  figures.classList.add("page-stale");
  const done = new MutationObserver(() => {
    const whose = figures.querySelector("[data-charts-of]");
    if (S.asked[tab] !== asked) done.disconnect();
    if (S.asked[tab] !== asked || whose?.dataset.chartsOf !== asked) return;
    figures.classList.remove("page-stale");
    done.disconnect();
    if (tab === "why") offerCheats(JSON.parse(whose.dataset.beside));
  });
  done.observe(figures, { childList: true, subtree: true, attributes: true });
  trigger(DRAWN[tab], { race: asked, recording: S.raw, lane: S.sides[1] });
}

// Nothing of one race is to be seen under another one.
function forgetFigures() {
  document.querySelectorAll(".page-figures").forEach((each) => each.classList.add("page-stale"));
  offerCheats({});
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
