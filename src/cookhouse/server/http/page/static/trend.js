// Tokens per second over the last looks, as two lines.

import { make } from "./dom.js";
import { rate } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const MAX_POINTS = 300;
const WIDTH = 300;
const HEIGHT = 60;

const points = [];

export function forgetPoints() {
  points.length = 0;
}

/** Adds a point, and draws all. */
export function addPoint(figure, perSecond) {
  points.push([perSecond.trained + perSecond.scored, perSecond.sampled]);
  if (points.length > MAX_POINTS) points.shift();
  const highest = Math.max(1, ...points.flat());
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  drawing.setAttribute("preserveAspectRatio", "none");
  drawing.setAttribute("role", "img");
  drawing.setAttribute("aria-label", `up to ${rate(highest)} tokens per second`);
  ["trained", "sampled"].forEach((name, index) => drawing.append(line(name, index, highest)));
  const legend = make("p", "", "dim");
  ["trained", "sampled"].forEach((name) => legend.append(key(name), name));
  legend.append(` · highest ${rate(highest)}`);
  figure.replaceChildren(figure.querySelector("figcaption"), drawing, legend);
}

function line(name, index, highest) {
  const step = WIDTH / Math.max(1, points.length - 1);
  const path = points.map((point, at) => `${(at * step).toFixed(1)},${(HEIGHT - 2 - (HEIGHT - 4) * (point[index] / highest)).toFixed(1)}`);
  return polyline(name, path.join(" "));
}

function key(name) {
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("class", "key");
  drawing.setAttribute("viewBox", "0 0 20 4");
  drawing.append(polyline(name, "0,2 20,2"));
  return drawing;
}

function polyline(name, path) {
  const element = document.createElementNS(SVG, "polyline");
  element.setAttribute("class", name);
  element.setAttribute("points", path);
  return element;
}
