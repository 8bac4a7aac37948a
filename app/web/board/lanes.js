// One lane's text: a node per verification step, made once, shown or removed with the lane time. And the step popover.

import { numDrafted, stepSeconds, stepWords, tokensOf, widthWords } from "../base/model.js";
import { characterStart, duration, joinCharacters, make, plural, putText, seconds } from "../base/text.js";

const TAGS = { accepted: "mark", together: "mark", rejected: "del", correction: "ins", bonus: "ins", plain: "span" };
const OWN = ["correction", "bonus"];
const KIND_WORDS = { accepted: "kept", together: "kept guesses and the model's own tokens together",
  rejected: "dropped", correction: "the model's own token", bonus: "bonus token",
  plain: "the model's own token, no guess" };

const tokenText = ({ kind, text }, tag) => putText(make(tag, `pf-token pf-${kind}${text ? "" : " pf-empty"}`), text);

export function tokenNode(piece) {
  const node = tokenText(piece, TAGS[piece.kind]);
  node.dataset.kind = piece.kind;
  node.dataset.tokenId = piece.id;
  node.toggleAttribute("data-number", /^[\p{Nd}.,\u066b\u066c]+$/u.test(piece.text));
  return node;
}

export const committedOf = (node) => [...node.querySelectorAll(".pf-token:not(.pf-rejected)")];

// How many more guesses a tree lost than are shown. No text of its own: the text around it is the lane's.
function asideNode(count) {
  const node = make("span", "pf-aside");
  node.dataset.count = count;
  node.title = `${plural(count, "more guess")} dropped`;
  return node;
}

// isKnown: whether it is a step of the model, as hasSteps of model.js says.
function stepNode(step, isKnown) {
  const all = tokensOf(step), [own] = all.filter(({ kind }) => OWN.includes(kind));
  const words = make("span", "pf-words", ...all.filter((piece) => !piece.aside).map(tokenNode));
  const aside = all.filter((piece) => piece.aside).length;
  if (aside) words.insertBefore(asideNode(aside), own ? words.lastChild : null);
  const node = make("span", "pf-step", words);
  node.dataset.lane = step.lane;
  node.dataset.step = step.index;
  node.dataset.number = step.index + 1;
  node.dataset.kept = numDrafted(step) ? `${step.num_accepted} of ${numDrafted(step)}` :
    isKnown ? "no guess" : `${step.token_ids.length} at once`;
  node.toggleAttribute("data-sent", !isKnown);
  node.dataset.ms = `${(1000 * stepSeconds(step)).toFixed(1)} ms`;
  node.tabIndex = -1;
  node.setAttribute("role", "listitem");
  return node;
}

// The y at x of the line through points whose xs ascend.
function between(xs, ys, x) {
  let i = 0;
  while (i < xs.length - 2 && xs[i + 1] <= x) i += 1;
  const room = xs[i + 1] - xs[i];
  return room > 0 ? ys[i] + (ys[i + 1] - ys[i]) * Math.min(1, (x - xs[i]) / room) : ys[i];
}

export class LaneView {
  constructor(box) {
    this.box = box;
    this.clear();
    box.addEventListener("scroll", () => { this.follows = box.scrollHeight - box.scrollTop - box.clientHeight < 32; },
      { passive: true });
    box.addEventListener("keydown", (event) => this.onKey(event));
    box.addEventListener("copy", (event) => this.onCopy(event));
  }

  // starts[n]: the position after n steps; last: the token that was written last; follows: the view stays at the end
  // until the reader scrolls away; isMarked, isCompared: whether the end of the lane, and where the texts differ, are
  // marked.
  clear() {
    Object.assign(this, { nodes: [], starts: [0], shown: 0, last: null, follows: true, isMarked: false,
      isCompared: false });
    this.box.replaceChildren();
  }

  // Show exactly the first n steps. Returns whether anything changed.
  show(steps, n, isKnown = true) {
    if (n === this.shown) return false;
    if (n < this.shown) {
      if (n === 0) {
        this.box.replaceChildren();
        this.follows = true;
      } else this.nodes.slice(n, this.shown).forEach((node) => node.remove());
    } else {
      const added = document.createDocumentFragment();
      for (let i = this.shown; i < n; i++) {
        if (!this.nodes[i]) {
          this.nodes[i] = stepNode(steps[i], isKnown);
          this.starts[i + 1] = steps[i].position + steps[i].token_ids.length;
          const isHole = i > 0 && steps[i].position > steps[i - 1].position + steps[i - 1].token_ids.length;
          this.nodes[i].classList.toggle("pf-hole", isHole);
          this.last = joinCharacters(committedOf(this.nodes[i]), isHole ? null : this.last);
        }
        added.append(this.nodes[i]);
      }
      this.box.append(added);
    }
    if (this.shown === 0) this.nodes[0].tabIndex = 0;
    this.shown = n;
    return true;
  }

  get committed() {
    return this.nodes.flatMap(committedOf);
  }

  // Mark the word from character `at` of the committed text on, or the last one: there the texts differ. null: unmark.
  markDifference(at) {
    this.box.querySelectorAll(".pf-differs").forEach((node) => node.classList.remove("pf-differs"));
    let from = at;
    if (at === null) return undefined;
    const { committed } = this, token = committed.find(({ textContent: { length } }) => from < length
      || (from -= length, false));
    if (!token) return committed.at(-1)?.classList.add("pf-differs");
    const text = token.textContent, word = from + text.slice(from).match(/^\s*\S*/)[0].length;
    from = characterStart(text, from);
    return token.replaceChildren(...[[0, from], [from, word], [word]].map((part, i) =>
      putText(make("span", i === 1 ? "pf-differs" : ""), text.slice(...part))));
  }

  // Mark the last `count` characters of the committed text, which the plain-text view leaves out.
  markUnseen(count) {
    const { committed } = this;
    for (let left = count, i = committed.length - 1; left > 0 && i >= 0; i--) {
      const token = committed[i], text = token.textContent, seen = characterStart(text, Math.max(0, text.length - left));
      left -= text.length - seen;
      if (seen === 0) token.classList.add("pf-past-stop");
      else token.replaceChildren(putText(make("span"), text.slice(0, seen)),
        putText(make("span", "pf-past-stop"), text.slice(seen)));
    }
  }

  // Where each step begins, in pixels and in tokens, and where the last one ends.
  places() {
    const nodes = this.nodes.slice(0, this.shown);
    return [[...nodes.map((node) => node.offsetTop), this.box.scrollHeight], this.starts.slice(0, this.shown + 1)];
  }

  // The token at the top of the view, with a fraction.
  get token() { return between(...this.places(), this.box.scrollTop); }
  set token(token) {
    const [tops, starts] = this.places();
    this.box.scrollTop = between(starts, tops, token);
  }

  // To the top, or to where the texts differ.
  toTop() {
    this.follows = false;
    const step = this.box.querySelector(".pf-differs")?.closest(".pf-step");
    this.box.scrollTop = step ? step.offsetTop - this.box.clientHeight / 3 : 0;
  }

  follow() {
    if (this.follows && !this.box.querySelector(".pf-open")) this.box.scrollTop = this.box.scrollHeight;
  }

  // Copy what the lane wrote of the selected text: no dropped guess, and no new line where a row ends.
  onCopy(event) {
    const range = window.getSelection().getRangeAt(0), part = range.cloneContents();
    if (!this.box.contains(range.commonAncestorContainer)) return;
    const unseen = this.box.closest("[data-view]").dataset.view === "plain" ? ", .pf-past-stop" : "";
    part.querySelectorAll(`.pf-rejected, [aria-hidden]${unseen}`).forEach((node) => node.remove());
    event.clipboardData.setData("text/plain", part.textContent);
    event.preventDefault();
  }

  onKey(event) {
    const at = this.nodes.indexOf(event.target.closest(".pf-step"));
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0,
      End: this.shown - 1 }[event.key];
    if (at < 0 || to === undefined || to < 0 || to >= this.shown) return;
    event.preventDefault();
    this.nodes[at].tabIndex = -1;
    this.nodes[to].tabIndex = 0;
    this.nodes[to].focus();
  }
}

// Describes a step on hover, focus or tap. opens: called with {step, box} when its box is filled, not yet placed.
export class Popover {
  constructor(root, box, stepOf, opens) {
    Object.assign(this, { root, box, stepOf, opens, target: null, pinned: false, timer: 0 });
    const step = (event) => event.target.closest?.(".pf-text .pf-step");
    const hover = (event) => {
      if (event.pointerType === "touch" || this.pinned) return;
      if (box.contains(event.target)) return clearTimeout(this.timer);
      const node = step(event);
      if (node) this.open(node); else this.closeSoon();
    };
    let at = "", due = false;      // mouse position: a step that appears under it opens only once it moves
    const moved = ({ clientX, clientY }) => at !== (at = `${clientX} ${clientY}`);
    root.addEventListener("pointerover", (event) => { due = !moved(event); if (!due) hover(event); });
    root.addEventListener("pointermove", (event) => { if (moved(event) && due) { due = false; hover(event); } });
    root.addEventListener("pointerleave", () => this.closeSoon());
    root.addEventListener("focusin", (event) => {
      const node = step(event);
      if (node) this.open(node); else if (!box.contains(event.target)) this.close();
    });
    root.addEventListener("focusout", () => this.closeSoon());
    root.addEventListener("click", (event) => {
      const node = step(event);
      if (node) { this.open(node); this.pinned = true; } else if (!box.contains(event.target)) this.close();
    });
    root.addEventListener("keydown", (event) => { if (event.key === "Escape") this.close(); });
    root.addEventListener("scroll", (event) => {      // a focused step may have been scrolled into view just now
      if (!this.target || event.target === box) return;
      if (document.activeElement === this.target) this.place(this.target); else this.close();
    }, { capture: true, passive: true });
  }

  closeSoon() {
    clearTimeout(this.timer);
    if (!this.pinned) this.timer = setTimeout(() => this.close(), 180);
  }

  close() {
    clearTimeout(this.timer);
    this.target?.removeAttribute("aria-describedby");
    this.target?.classList.remove("pf-open");
    this.box.hidden = true;
    this.target = null;
    this.pinned = false;
  }

  open(node) {
    clearTimeout(this.timer);
    const step = this.stepOf(node);
    if (this.target === node || !step || this.root.dataset.view === "plain") return;
    this.close();
    this.target = node;
    node.classList.add("pf-open");
    this.box.id ||= `pf-pop-${Math.random().toString(36).slice(2)}`;
    node.setAttribute("aria-describedby", this.box.id);
    this.box.replaceChildren(...popoverNodes(step, node.hasAttribute("data-sent")));
    this.opens({ step, box: this.box });
    this.box.hidden = false;
    this.place(node);
  }

  place(node) {
    const root = this.root.getBoundingClientRect(), rect = node.getClientRects()[0] ?? root;
    const size = this.box.getBoundingClientRect();
    const left = Math.max(0, Math.min(rect.left - root.left, root.width - size.width));
    const below = rect.bottom + size.height + 10 < window.innerHeight || rect.top < size.height + 10;
    this.box.style.left = `${left}px`;
    this.box.style.top = `${below ? rect.bottom - root.top + 8 : rect.top - root.top - size.height - 8}px`;
  }
}

function popoverNodes(step, isSent) {
  const list = make("ol", "pf-pop-list", ...tokensOf(step).map((piece, i) => make("li", "pf-pop-row",
    make("span", "pf-pop-place", String(i + 1)), tokenText(piece, "span"),
    make("span", "pf-pop-kind", isSent ? "sent by the server" : KIND_WORDS[piece.kind]),
    make("span", "pf-pop-id", `#${piece.id}`))));
  const times = step.width === null && !step.draft_s ? `${duration(stepSeconds(step))} after the step before` :
    `guess ${duration(step.draft_s)}, check ${duration(step.verify_s)}, ${widthWords(step.width)}`;
  const first = step.position + 1, last = step.position + step.token_ids.length;
  const where = `${first === last ? `token ${first}` : `tokens ${first} to ${last}`}, at ${seconds(step.clock_s)} s`;
  const head = isSent ? `sent at once: ${plural(step.token_ids.length, "token")}` : stepWords(step);
  return [make("p", "pf-pop-head", head), list, make("p", "pf-pop-times", times), make("p", "pf-pop-times", where)];
}
