// The story: seven cards that tell on the race on the screen how it works, each beside what it lights. It is offered
// once, after the opening; "How it works" in the page's head begins it, where it was left. A race ends it.

const STORY_KEY = "photofinish.story";
const STORY_GAP = 12;
// on: whether it is told; at: the card; tale: what its race tells; source: the first recorded race's frame, for when
// the race on the screen has no such story; kept: that race, and what the page showed; t: where the card put the clock.
const story = { on: false, at: 0, tale: null, source: null, kept: null, t: 0 };

function rememberStory(at) {
  try { localStorage.setItem(STORY_KEY, String(at)); } catch { /* a browser may forbid it */ }
}
function rememberedStory() { try { return localStorage.getItem(STORY_KEY); } catch { return null; } }

// A first visit may see it; nothing begins by itself.
function offerStory() { refs.offer.hidden = rememberedStory() !== null || !taleOf(); }

function closeOffer() {
  refs.offer.hidden = true;
  rememberStory(rememberedStory() ?? 0);
}

function beginStory() {
  if (story.on) return endStory();
  if (!taleOf() && !story.source) return board.alert("There is no recorded race here to tell the story on.");
  closeOffer();
  skipOpening();
  mine();
  replay.pause();
  if (S.told) endWhatIf();
  story.kept = { tab: root.dataset.tab, t: replay.t, marks: refs.marks.getAttribute("aria-pressed"), S: null };
  if (!taleOf()) {
    story.kept = { ...story.kept, S, served };
    onFrame(story.source);
    mine();
  }
  Object.assign(story, { on: true, tale: taleOf() });
  refs.marks.setAttribute("aria-pressed", "true");
  refs.story.hidden = refs.spot.hidden = false;
  tellCard(Math.min(Number(rememberedStory()) || 0, CARDS.length - 1));
  refs.storyNext.focus({ preventScroll: true });
  return undefined;
}

function tellCard(at) {
  const card = CARDS[at], last = at === CARDS.length - 1;
  story.at = at;
  rememberStory(at);
  land();
  card.stage(story.tale);
  story.t = replay.t;
  paint();
  write(refs.storyPlace, `Card ${at + 1} of ${CARDS.length}`);
  write(refs.storyTitle, card.title);
  write(refs.storyWords, card.words(story.tale));
  refs.storyBack.disabled = at === 0;
  write(refs.storyNext, last ? "Done" : "Next");
  const focused = document.activeElement;
  if (!refs.story.contains(focused) || focused.disabled) refs.storyNext.focus({ preventScroll: true });
  placeStory(true);
}

function storyTarget() {
  return CARDS[story.at].target(story.tale).find((node) => node && node.checkVisibility()) ?? null;
}

// The card stands where there is room beside what it lights: right, left, below, above; of a part of a text, beside the
// text, so that its lines stay whole. Where there is none, as on a phone, the page moves so that there is room below.
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
  if (comes && !places()) window.scrollBy({ top: litBox(target, box).top - STORY_GAP, behavior: "instant" });
  const at = litBox(target, box);
  const [x, y] = places() ?? [within(at.left, right), Math.max(at.bottom + STORY_GAP, bottom - 8)];
  const origin = root.getBoundingClientRect();
  const put = (node, left, top) => {
    node.style.transform = `translate(${(left - origin.left) / zoom}px, ${(top - origin.top) / zoom}px)`;
  };
  put(refs.story, x, y);
  put(refs.spot, at.left, at.top);
  Object.assign(refs.spot.style, { width: `${at.width / zoom}px`, height: `${at.height / zoom}px` });
}

// What is to be seen of a node, in the window; as wide as `lines`, where that is given.
function litBox(node, box, lines = null) {
  const inner = node.getBoundingClientRect(), outer = (box ?? root).getBoundingClientRect();
  const top = Math.max(inner.top, outer.top), bottom = Math.max(top, Math.min(inner.bottom, outer.bottom, innerHeight));
  const { left, width } = (lines ?? node).getBoundingClientRect();
  return new DOMRect(left, top, width, bottom - top);
}

// As it was before, where the same race still stands.
function endStory(done = false) {
  if (!story.on) return;
  const { tab, t, marks, S: before, served: from } = story.kept, inside = refs.story.contains(document.activeElement);
  story.on = false;
  popover.close();
  land();
  refs.story.hidden = refs.spot.hidden = true;
  if (done) rememberStory(0);
  refs.marks.setAttribute("aria-pressed", marks);
  choose(tab);
  if (before) bringBack(before, from);
  else replay.seek(t);
  if (inside) pageButton("story")?.focus({ preventScroll: true });
}

function bringBack(before, from) {
  clear(before.id, before.seq);
  served = from;
  if (isLinked() && before.id === null) board.title("From a link, not raced yet", null);
  if (!before.header) return;
  Object.assign(S, before, { marked: new Set(), asked: {} });
  setHeader(S.header);
  askForFigures();
  replay.load(S.race.duration(S.sides), S.race.times(S.sides));
  mine();
  controls();
}

refs.storySkip.addEventListener("click", () => endStory());
refs.storyBack.addEventListener("click", () => tellCard(story.at - 1));
refs.storyNext.addEventListener("click", () =>
  (story.at === CARDS.length - 1 ? endStory(true) : tellCard(story.at + 1)));
refs.offerYes.addEventListener("click", beginStory);
refs.offerNo.addEventListener("click", closeOffer);
document.addEventListener("click", (event) => { if (event.target.closest?.("#page-story-button")) beginStory(); });
document.addEventListener("keydown", (event) => {
  if (!story.on || event.target.closest?.("#page-panel, textarea")) return;
  if (event.key === "Escape") return endStory();
  if (event.target !== document.body && !refs.story.contains(event.target)) return;
  const button = { ArrowRight: refs.storyNext, ArrowLeft: refs.storyBack }[event.key];
  if (!button || (event.key === "ArrowRight" && story.at === CARDS.length - 1)) return;
  event.preventDefault();
  button.click();
});
root.addEventListener("photofinish:painted", () => {
  if (story.on && replay.t !== story.t) land();       // the visitor moved the clock: the draft stands there no more
});
for (const [node, name] of [[window, "resize"], [root, "scroll"]])
  node.addEventListener(name, () => { if (story.on) placeStory(); }, { capture: true, passive: true });
