// Tokens over lane time as SVG. The paths are in data units (milliseconds, tokens) and only grow; a transform scales
// them.

import { svg } from "../base/dom.js";
import { oneLine } from "../base/text.js";

const STEPS_OF_SCALE = [1, 1.5, 2, 3, 4, 5, 6, 8, 10];

// The smallest round number that is not below `value`.
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  return power * (STEPS_OF_SCALE.find((step) => step * power >= value * (1 - 1e-9)) ?? 10);
}

class Line {
  constructor(kind) {
    this.path = svg("path", `pf-line pf-line-${kind}`);
    this.ghost = svg("path", `pf-line pf-ghost pf-line-${kind}`);
    this.dot = svg("circle", `pf-dot pf-line-${kind}`, { r: 4.5 });
    this.label = svg("text", `pf-line-label pf-label-${kind}`);
    this.clear();
  }

  clear() {
    this.points = ["M0 0"];     // points[n]: the path segment of step n
    this.ghost.setAttribute("d", "");
    this.ghostSize = 0;
    this.drawn = -1;
  }

  draw(lane, n, withGhost) {
    for (let i = this.points.length - 1; i < lane.steps.length; i++)
      this.points.push(`H${(1000 * lane.steps[i].clock_s).toFixed(2)}V${-lane.tokens[i + 1]}`);
    if (n !== this.drawn) this.path.setAttribute("d", this.points.slice(0, n + 1).join(""));
    this.drawn = n;
    const size = withGhost ? lane.steps.length : 0;
    if (size !== this.ghostSize) this.ghost.setAttribute("d", withGhost ? this.points.join("") : "");
    this.ghostSize = size;
  }
}

export class Chart {
  constructor(box) {
    this.resize(600);
    this.svg = svg("svg", "pf-chart-svg", { role: "img", "aria-label": "Tokens over lane time" });
    this.axes = svg("g", "pf-axes");
    this.data = svg("g");
    this.head = svg("line", "pf-playhead");
    this.lines = { plain: new Line("plain"), left: new Line("left"), right: new Line("right") };
    const lines = Object.values(this.lines);
    this.data.append(...lines.map((line) => line.ghost), ...lines.map((line) => line.path));
    this.svg.append(this.axes, this.data, this.head, ...lines.flatMap((line) => [line.dot, line.label]));
    box.append(this.svg);
    this.scale = { ms: 0, tokens: 0 };
    new ResizeObserver(([entry]) =>
      { this.resize(Math.max(200, entry.contentRect.width)); this.redraw?.(); }).observe(box);
  }

  // Drawn in pixels, so that labels have the page's text size.
  resize(width) {
    const em = width > 1400 ? 1.45 : 1;
    Object.assign(this, { width, em, height: Math.round(Math.max(220, Math.min(520, width * 0.26))),
      scale: { ms: 0, tokens: 0 } });
    this.margin = { left: 44 * em, right: 16, top: 14 * em, bottom: 30 * em };
  }

  clear() {
    Object.values(this.lines).forEach((line) =>
      { line.clear(); line.path.setAttribute("d", ""); line.label.textContent = "";
      line.dot.setAttribute("visibility", "hidden"); });
    this.scale = { ms: 0, tokens: 0 };
    this.axes.replaceChildren();
    this.head.setAttribute("visibility", "hidden");
    this.redraw = null;
  }

  // lanes: {left, right, plain} of Lane or null; counts: steps shown of each; t: lane time; whole: the race is over,
  // show all of it.
  draw(lanes, counts, names, t, whole) {
    this.redraw = () => this.draw(lanes, counts, names, t, whole);
    const present = Object.keys(this.lines).filter((key) => lanes[key]);
    const ms = Math.max(...present.map((key) => 1000 * lanes[key].clock), 100), tokens =
      Math.max(...present.map((key) => lanes[key].tokens[lanes[key].steps.length]), 10);
    this.rescale(whole ? ms : ceiling(ms), ceiling(tokens));
    const spots = [];
    for (const key of present) {
      const line = this.lines[key], lane = lanes[key], n = counts[key];
      line.draw(lane, n, whole);
      const x = this.x(n ? 1000 * lane.steps[n - 1].clock_s : 0), y = this.y(lane.tokens[n]);
      line.dot.setAttribute("visibility", n ? "visible" : "hidden");
      line.dot.setAttribute("cx", x);
      line.dot.setAttribute("cy", y);
      const left = x > this.width * 0.62;
      line.label.textContent = n ? `${oneLine(names[key]).slice(0, 24)} ${lane.tokens[n]}` : "";
      line.label.setAttribute("text-anchor", left ? "end" : "start");
      line.label.setAttribute("x", x + (left ? -9 : 9));
      spots.push({ key, x, y, label: line.label });
    }
    this.putLabels(spots);
    this.head.setAttribute("visibility", whole ? "visible" : "hidden");
    this.head.setAttribute("transform", `translate(${this.x(1000 * t)} 0)`);
  }

  // The speculative lane's label goes above its point, the others' below; overlapping labels move down.
  putLabels(spots) {
    const taken = [];
    for (const { key, x, y, label } of spots.toSorted((a, b) => a.y - b.y)) {
      let at = key === "right" ? Math.max(this.margin.top, y - 7 * this.em) : y + 17 * this.em;
      while (taken.some((other) => Math.abs(other.x - x) < 150 * this.em && Math.abs(other.at - at) < 15 * this.em))
        at += 16 * this.em;
      label.setAttribute("y", at);
      taken.push({ x, at });
    }
  }

  x(ms) { return this.margin.left + (ms / this.scale.ms) * (this.width - this.margin.left - this.margin.right); }

  y(tokens) {
    const { top, bottom } = this.margin;
    return this.height - bottom - (tokens / this.scale.tokens) * (this.height - top - bottom);
  }

  rescale(ms, tokens) {
    if (ms === this.scale.ms && tokens === this.scale.tokens) return;
    this.scale = { ms, tokens };
    this.svg.setAttribute("height", this.height);
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    const sx = (this.x(ms) - this.x(0)) / ms, sy = (this.y(0) - this.y(tokens)) / tokens;
    this.data.setAttribute("transform", `translate(${this.x(0)} ${this.y(0)}) scale(${sx} ${sy})`);
    this.head.setAttribute("y1", this.margin.top);
    this.head.setAttribute("y2", this.height - this.margin.bottom);
    const marks = [];
    const step = ceiling(tokens / 4);
    for (let n = 0; n <= tokens * 1.001; n += step) {
      marks.push(svg("line", "pf-grid",
        { x1: this.margin.left, x2: this.width - this.margin.right, y1: this.y(n), y2: this.y(n) }));
      marks.push(svg("text", "pf-tick",
        { x: this.margin.left - 8, y: this.y(n) + 4 * this.em, "text-anchor": "end" }, String(Math.round(n))));
    }
    const every = ceiling(ms / (this.width < 420 ? 3 : 6));
    for (let m = 0; m <= ms * 1.001; m += every) {
      marks.push(svg("text", "pf-tick",
        { x: this.x(m), y: this.height - 10 * this.em, "text-anchor": m ? "middle" : "start" },
        m ? `${+(m / 1000).toPrecision(3)} s` : "0"));
    }
    this.axes.replaceChildren(...marks);
  }
}
