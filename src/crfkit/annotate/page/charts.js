// Small pictures, drawn by DOM calls.

import { el, svg, percent } from "./dom.js";

const WIDTH = 280;
const HEIGHT = 92;

/** A curve of [x, value, low, high] with its band; without low and high, a line alone. */
export function curve(points, { name, from = null, to = null, format = (v) => percent(v) }) {
  const values = points.flatMap((p) => p.slice(1)).filter((v) => v !== null && v !== undefined);
  const low = from ?? Math.min(...values);
  const high = Math.max(to ?? Math.max(...values), low + 1e-9);
  const x0 = points[0][0];
  const x1 = Math.max(points[points.length - 1][0], x0 + 1);
  const x = (v) => 2 + ((WIDTH - 4) * (v - x0)) / (x1 - x0);
  const y = (v) => HEIGHT - 4 - ((HEIGHT - 10) * (v - low)) / (high - low);
  const at = (v, w) => `${x(v).toFixed(1)},${y(w).toFixed(1)}`;
  const last = points[points.length - 1];
  const parts = [];
  if (last.length === 4) {
    const upper = points.map((p) => at(p[0], p[3]));
    const lower = points.map((p) => at(p[0], p[2])).reverse();
    parts.push(svg("polygon", { class: "band", points: [...upper, ...lower].join(" ") }));
  }
  parts.push(svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT - 4, y2: HEIGHT - 4 }));
  parts.push(svg("polyline", { class: "line", points: points.map((p) => at(p[0], p[1])).join(" ") }));
  parts.push(svg("circle", { class: "end", cx: x(last[0]), cy: y(last[1]), r: 3.5 }));
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "curve", role: "img", "aria-label": name });
  picture.append(...parts);
  const feet = el(
    "div",
    { class: "feet", "aria-hidden": "true" },
    el("span", {}, `${x0}`),
    el("span", {}, `${x1} answers`),
  );
  const sides = el(
    "div",
    { class: "sides", "aria-hidden": "true" },
    el("span", {}, format(high)),
    el("span", {}, format(low)),
  );
  return el("div", { class: "chart" }, picture, sides, feet);
}

/** A value in its interval on a scale from 0 to 1; only the interval if the value is null. */
export function interval({ value, low, high }, name) {
  const mark = svg("svg", { viewBox: "0 0 200 10", class: "interval", role: "img", "aria-label": name });
  mark.setAttribute("preserveAspectRatio", "none");
  mark.append(
    svg("rect", { class: "track", x: 0, y: 3, width: 200, height: 4, rx: 2 }),
    svg("rect", { class: "range", x: 200 * low, y: 2, width: Math.max(200 * (high - low), 1), height: 6, rx: 3 }),
  );
  if (value !== null) mark.append(svg("rect", { class: "point", x: 200 * value - 1.5, y: 0, width: 3, height: 10, rx: 1 }));
  return mark;
}

/** A bar whose length is a fraction of its box. */
export const bar = (fraction, name = "") =>
  el("span", { class: `bar ${name}`, vars: { "--part": Math.min(Math.max(fraction, 0), 1) } });
