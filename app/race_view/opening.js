// The opening: once in a browser the recorded race that the page begins with plays slowly, so that one sees without a
// word what is raced. Both texts are written, guesses stand or fall, one lane is done first, and the texts are laid
// upon each other. It is this view and the replay's clock; any key or press ends it, and does what it was for.

const OPENING_KEY = "photofinish.opening";
// The wall time that the two parts of the race may take: their speeds follow from its clocks.
const WRITE_S = 4.5, REST_S = 2;
const LEAD_MS = 500, BEHIND_MS = 600, MET_MS = 1200;
// The acts that a timer ends, and what follows them. "write" and "behind", of which the first lane is done, end where
// the replay's clock says so.
const ACTS = { whole: ["meet", 400], meet: ["part", 2000], part: ["done", 300] };
const SKIPS = ["pointerdown", "click", "keydown"];
// act: "" while it does not play; met: whether the texts lie upon each other; guess: the step whose draft is being
// checked, and its node.
const opening = { first: true, act: "", cue: 0, met: false, guess: null };

// Whether the race that has just come is one to open with: the first of the page, with texts that are the same, and no
// settings in the page's address (parameters that begin with __ are Gradio's).
function opens() {
  const begins = opening.first && S.id?.startsWith("recorded-") && verdictOn(S.sides[1])?.kind.startsWith("identical");
  opening.first = false;
  if (!begins || [...new URLSearchParams(location.search).keys()].some((name) => !name.startsWith("__"))) return false;
  try { if (localStorage.getItem(OPENING_KEY) !== null) return false; } catch { /* a browser may forbid it */ }
  if (still.matches) offerStory();
  return !still.matches;
}

function playOpening() {
  S.byItself = true;
  root.dataset.view = "plain";
  root.classList.add("pf-opens");
  SKIPS.forEach((name) => window.addEventListener(name, skipOpening, true));
  enter("write");
  replay.setSpeed(speedFor(S.race.lane(S.sides[1]).clock, WRITE_S));
  replay.seek(0);
  whenSeen();
}

function whenSeen() {
  if (!opening.act) return undefined;
  if (document.hidden) return document.addEventListener("visibilitychange", whenSeen, { once: true });
  try { localStorage.setItem(OPENING_KEY, "seen"); } catch { /* a browser may forbid it: then it plays every time */ }
  opening.cue = setTimeout(() => { board.announce(""); replay.play(); }, LEAD_MS);
  return undefined;
}

// The least power of two at which so much of the race takes no longer than that.
function speedFor(lane_s, wall_s) { return 2 ** Math.ceil(Math.log2(lane_s / wall_s)); }

function enter(act) {
  const [next, ms] = ACTS[act] ?? [];
  clearTimeout(opening.cue);
  root.dataset.opening = opening.act = act;
  if (act === "meet") meet();
  if (next) opening.cue = setTimeout(() => enter(next), ms);
  if (act !== "done") return;
  Object.values(views).forEach((view) => view.clear());     // laid out anew: words moved within a text shift the layout
  S.marked.clear();
  endOpening();
}

// The right text goes to where the left one stands.
function meet() {
  const [left, right] = [refs.leftText, refs.rightText].map((text) => text.getBoundingClientRect().left);
  root.style.setProperty("--meet", root.dataset.size === "narrow" ? "0px" : `${left - right}px`);
  setTimeout(() => { opening.met = true; showVerdict(); }, MET_MS);
  refs.leftText.scrollTop = refs.rightText.scrollTop;
}

function skipOpening() {
  if (opening.act) endOpening();
  delete root.dataset.opening;
}

// As after any replay: the race stands at its end.
function endOpening() {
  opening.act = "";
  clearTimeout(opening.cue);
  SKIPS.forEach((name) => window.removeEventListener(name, skipOpening, true));
  root.classList.remove("pf-opens");
  land();
  root.querySelectorAll(".pf-fallen").forEach((node) => node.remove());
  replay.pause();
  replay.setSpeed(1);
  replay.seek(replay.duration);
  showTexts();
  Object.values(views).forEach((view) => view.toTop());
  board.announce(announcement());
  offerStory();
}

// The draft that the target checks now stands at the end of the text; what is dropped of it falls off.
function guessNow(lane) {
  const next = lane.steps[views.right.shown], step = next && replay.t >= next.clock_s - next.verify_s ? next : null;
  if (opening.guess?.step === step) return;
  land();
  if (!step || !numDrafted(step)) return;
  const node = make("span", "pf-guess");
  node.setAttribute("aria-hidden", "true");
  node.append(...tokensOf(step).slice(0, numDrafted(step)).map(({ text }) => putText(make("span"), text)));
  refs.rightText.append(node);
  opening.guess = { step, node };
}

function land() {
  const { step, node } = opening.guess ?? {};
  if (opening.act && step) [...node.children].slice(step.num_accepted).forEach(fall);
  node?.remove();
  opening.guess = null;
}

function fall(token) {
  const fallen = putText(make("span", "pf-fallen"), token.textContent.trim());
  fallen.setAttribute("aria-hidden", "true");
  fallen.style.left = `${token.offsetLeft}px`;
  fallen.style.top = `${token.offsetTop}px`;
  fallen.addEventListener("animationend", () => fallen.remove());
  refs.rightText.append(fallen);
}

root.addEventListener("photofinish:painted", () => {
  if (!opening.act) return;
  const lane = S.race.lane(S.sides[1]);
  root.querySelector(".pf-ratio-board").dataset.clock = `${seconds(replay.t)} s`;
  guessNow(lane);
  if (opening.act === "write" && replay.t >= lane.clock) {
    enter("behind");
    opening.cue = setTimeout(() =>
      replay.setSpeed(Math.max(replay.speed, speedFor(replay.duration - replay.t, REST_S))), BEHIND_MS);
  }
  if (opening.act === "behind" && replay.t >= replay.duration) enter("whole");
});
