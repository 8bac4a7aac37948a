// The story: cards that explain a race, each next to what it highlights: the visitor's own, or the lesson's recording.
// "How it works" in the page's header begins or resumes it. Starting a race ends it.

import { closed, opened, remember, remembered, scrollDown, showModal } from "../base/dom.js";
import { put } from "../base/text.js";
import { controls, stopAutoplay } from "../board/deck.js";
import { clear, setHeader } from "../board/frames.js";
import { isLinked, pageButton } from "../board/page.js";
import { paint } from "../board/paint.js";
import { board, mark, on, popover, refs, replay, root, S } from "../board/screen.js";
import { choose } from "../board/tabs.js";
import { recordingOf, showRecorded } from "./recorded.js";
import { CARDS, land, taleOf, treeOf } from "./story_cards.js";
import { askForFigures } from "../tabs/figures.js";
import { endWhatIf } from "../tabs/whatif_tab.js";

const STORY_KEY = "photofinish.story";
const STORY_GAP = 12;
const lossButton = () => document.getElementById("page-example-hungarian");
const lessonButton = () => document.getElementById("page-example-capitals");
const treeButton = () => document.getElementById("page-example-history");
// on: whether it is on the screen; turns: whether it changes the race there; cards: those that it has; at: index of the
// card; tale: see taleOf, with `tree`, see treeOf; kept: what the page showed before; chains: its race, without the one
// with trees; t: the lane time that the card set.
const story = { on: false, turns: false, cards: CARDS, at: 0, tale: null, kept: null, chains: null, t: 0 };

async function beginStory() {
  if (story.on || story.turns) return endStory();
  stopAutoplay();
  replay.pause();
  if (S.computed) endWhatIf();
  story.kept = { tab: root.dataset.tab, t: replay.t, marks: refs.marks.getAttribute("aria-pressed"), S };
  const own = S.ribbon.includes("RECORDED") ? null : taleOf();
  if (lessonButton() && (!own || own.step.parents)) await turn(() => showRecorded(lessonButton()));
  const withTrees = await recordingOf(treeButton()), tale = taleOf(), tree = withTrees && treeOf(withTrees);
  if (!tale) return board.alert("There is no recorded race here to use as an example.");
  Object.assign(story, { on: true, tale: { ...tale, tree }, chains: S,
    cards: CARDS.filter(({ isOfTree }) => tree || !isOfTree) });
  refs.marks.setAttribute("aria-pressed", "true");
  refs.story.hidden = refs.spot.hidden = false;
  mark("story", true);
  opened(endStory);
  tellCard(Math.min(Number(remembered(STORY_KEY)) || 0, story.cards.length - 1));
  refs.storyNext.focus({ preventScroll: true });
  return undefined;
}

async function tellCard(at) {
  const card = story.cards[at];
  if (story.turns) return;
  if (Boolean(card.isOfTree) === (S.race === story.chains.race))
    await turn(() => (card.isOfTree ? showRecorded(treeButton()) : bringBack(story.chains)));
  if (!story.on) return;
  story.at = at;
  remember(STORY_KEY, String(at));
  land();
  card.stage(story.tale);
  story.t = replay.t;
  paint();
  put(refs, { storyPlace: `Card ${at + 1} of ${story.cards.length}`, storyTitle: card.title,
    storyWords: card.words(story.tale), storyNext: at === story.cards.length - 1 ? "Done" : "Next" });
  refs.storyBack.disabled = at === 0;
  refs.storyLoss.hidden = !card.offersLoss || !lossButton();
  const focused = document.activeElement;
  if (!refs.story.contains(focused) || focused.disabled) refs.storyNext.focus({ preventScroll: true });
  placeStory(true);
}

async function turn(show) {
  story.turns = true;
  await show();
  story.turns = false;
  stopAutoplay();
}

function storyTarget() {
  return story.cards[story.at].target(story.tale).find((node) => node && node.checkVisibility()) ?? null;
}

// Place the card where there is room next to its target: right, left, below or above; for part of a text, next to the
// whole text. If there is none, as on a phone, scroll so that it fits below.
function placeStory(comes = false) {
  const target = storyTarget(), box = target?.closest(".pf-text");
  refs.spot.hidden = !target;
  if (!target) return;
  if (comes && box)
    box.scrollTop += target.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
  const frame = root.getBoundingClientRect(), zoom = frame.width / root.offsetWidth;
  const { width, height } = refs.story.getBoundingClientRect();
  const right = innerWidth - width, bottom = innerHeight - height;
  const within = (value, most) => Math.max(8, Math.min(value, most - 8));
  const places = () => {
    const at = litBox(target, box, box);
    return [[at.right + STORY_GAP, within(at.top, bottom)], [at.left - STORY_GAP - width, within(at.top, bottom)],
      [within(at.left, right), at.bottom + STORY_GAP], [within(at.left, right), at.top - STORY_GAP - height]]
      .find(([x, y]) => x >= 8 && y >= 8 && x <= right - 8 && y <= bottom - 8);
  };
  const lit = litBox(target, box), hides = lit.height < Math.min(40, target.getBoundingClientRect().height);
  if (comes && (hides || lit.top < 0 || !places())) scrollDown(lit.top - STORY_GAP, "instant");
  const at = litBox(target, box);
  const [x, y] = places() ?? [within(at.left, right), Math.max(at.bottom + STORY_GAP, bottom - 8)];
  const origin = root.getBoundingClientRect();
  const moveTo = (node, left, top) => {
    node.style.transform = `translate(${(left - origin.left) / zoom}px, ${(top - origin.top) / zoom}px)`;
  };
  moveTo(refs.story, x, y);
  moveTo(refs.spot, at.left, at.top);
  Object.assign(refs.spot.style, { width: `${at.width / zoom}px`, height: `${at.height / zoom}px` });
}

// The visible part of a node, in window coordinates; as wide as `lines`, if given.
function litBox(node, box, lines = null) {
  const inner = node.getBoundingClientRect(), outer = (box ?? root).getBoundingClientRect();
  const top = Math.max(inner.top, outer.top), bottom = Math.max(top, Math.min(inner.bottom, outer.bottom, innerHeight));
  const { left, width } = (lines ?? node).getBoundingClientRect();
  return new DOMRect(left, top, width, bottom - top);
}

// End the story and restore what the page showed before.
export function endStory(done = false) {
  if (!story.on) return;
  const { tab, t, marks, S: before } = story.kept, inside = refs.story.contains(document.activeElement);
  story.on = false;
  closed(endStory);
  popover.close();
  land();
  refs.story.hidden = refs.spot.hidden = true;
  mark("story", false);
  if (done) remember(STORY_KEY, "0");
  refs.marks.setAttribute("aria-pressed", marks);
  choose(tab);
  if (S.race !== before.race) bringBack(before);
  if (!before.live) replay.seek(t);
  const back = [pageButton("story"), pageButton("menu")].find((button) => button?.checkVisibility());
  if (inside) back?.focus({ preventScroll: true });
}

export function bringBack(before) {
  clear(before.id, before.seq);
  if (isLinked() && before.id === null) board.title("From a link: not raced yet. Race runs it here", null);
  if (!before.header) return;
  Object.assign(S, before, { asked: {} });
  setHeader(S.header);
  askForFigures();
  replay.load(S.race.duration(S.sides), S.race.times(S.sides));
  stopAutoplay();
  controls();
}

refs.storySkip.addEventListener("click", () => endStory());
refs.storyLoss.addEventListener("click", () => {
  endStory(true);
  lossButton().click();
});
refs.storyBack.addEventListener("click", () => tellCard(story.at - 1));
refs.storyNext.addEventListener("click", () =>
  (story.at === story.cards.length - 1 ? endStory(true) : tellCard(story.at + 1)));
document.addEventListener("click", (event) => { if (event.target.closest?.("#page-story-button")) beginStory(); });
document.addEventListener("keydown", (event) => {
  if (!story.on || event.target.closest?.("#page-panel, textarea, dialog")) return;
  if (event.key === "Escape") return endStory();
  if (event.target !== document.body && !refs.story.contains(event.target)) return;
  const button = { ArrowRight: refs.storyNext, ArrowLeft: refs.storyBack }[event.key];
  if (!button || (event.key === "ArrowRight" && story.at === story.cards.length - 1)) return;
  event.preventDefault();
  button.click();
});
for (const name of ["leaving", "leavingLane"]) on(name, () => { if (!story.turns) endStory(); });
on("racing", () => endStory());
on("painted", () => {
  if (story.on && replay.t !== story.t) land();       // the visitor moved the clock: the draft no longer belongs there
});
for (const [node, name] of [[window, "resize"], [root, "scroll"]])
  node.addEventListener(name, () => { if (story.on) placeStory(); }, { capture: true, passive: true });

// The glossary, opened by every button with data-glossary: in the tour and at the foot of the page.
document.addEventListener("click", ({ target }) => {
  if (target.closest?.("[data-glossary]")) showModal(refs.glossary);
  else if (target === refs.glossary || target === refs.glossaryClose) refs.glossary.close();     // a click outside
});
