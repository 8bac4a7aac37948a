// Tokens over lane time as SVG. The paths are in data units (milliseconds, tokens) and only grow; a transform scales
// them.

import { svg } from "../base/dom.js";
import { cut, make, oneLine, write } from "../base/text.js";

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
    this.words = make("span");
    const key = svg("svg", "", { width: 36, height: 10, "aria-hidden": "true" },
      svg("path", `pf-line pf-line-${kind}`, { d: "M0 5H36" }));
    // in the legend, above the chart: a label in it would lie on a line
    this.item = make("li", "", key, " ", this.words);
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
    this.axes = svg("g", "pf-axes");
    this.head = svg("line", "pf-playhead");
    this.lines = { plain: new Line("plain"), left: new Line("left"), right: new Line("right") };
    const lines = Object.values(this.lines);
    this.data = svg("g", "", {}, ...lines.map((line) => line.ghost), ...lines.map((line) => line.path));
    this.svg = svg("svg", "pf-chart-svg", { role: "img", "aria-label": "Tokens over lane time" }, this.axes, this.data,
      this.head, ...lines.map((line) => line.dot));
    box.append(make("ul", "pf-legend", ...lines.map((line) => line.item)), this.svg);
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
      { line.clear(); line.path.setAttribute("d", ""); line.item.hidden = true;
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
    for (const [key, line] of Object.entries(this.lines)) {
      line.item.hidden = !lanes[key];
      if (!lanes[key]) continue;
      const lane = lanes[key], n = counts[key];
      line.draw(lane, n, whole);
      line.dot.setAttribute("visibility", n ? "visible" : "hidden");
      line.dot.setAttribute("cx", this.x(n ? 1000 * lane.steps[n - 1].clock_s : 0));
      line.dot.setAttribute("cy", this.y(lane.tokens[n]));
      write(line.words, `${cut(oneLine(names[key]), 24)} ${lane.tokens[n]}`);
    }
    this.head.setAttribute("visibility", whole ? "visible" : "hidden");
    this.head.setAttribute("transform", `translate(${this.x(1000 * t)} 0)`);
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
