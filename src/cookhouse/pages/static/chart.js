// Charts, drawn from plain data: lines over steps or over a setting, with their errors as bands. The mouse or the arrow
// keys read a point; a click or Enter opens its address. A page that is live and one that is a file have the same.
//
// A chart is { name, lines, is_share, first, last } with lines of { label, style, is_dense, points, address }. A point
// is [x, value, error, address]; null stands for a gap. Of a setting there are `labels`, [x, text] of each value; `over`
// names what counts along the axis, where that is no step.

import { make, printable } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 50;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 22;
const PAGE = 10;
const MOST_DOTS = 40;
const FLAT = 1e-9;
const SMOOTH_POINTS = 10; // a moving mean of so many hundredths of a line, and of so many points at least
const view = { smooth: false, log: false };

// A value as the tables have it: a share in percent, a whole number whole, any other to five digits.
export function text(value, isShare = false) {
  if (isShare && value >= -1 && value <= 1) return `${(value * 100).toFixed(1).replace(/\.0$/, "").replace(/^-0$/, "0")}%`;
  const isWhole = Math.abs(value) < 1e9 && (Math.abs(value) >= 1e4 || Number.isInteger(value));
  if (isWhole) return (Math.round(value) + 0).toLocaleString("en");
  return String(Number(value.toPrecision(5))).replace(/e([+-])(\d)$/, "e$10$2");
}

// Maps values to pixels, with round values to label it with.
export function scale(low, high, from, to, { whole = false, isShare = false, log = false } = {}) {
  if (log) [low, high] = [Math.log10(low), Math.log10(high)];
  const largest = Math.max(Math.abs(low), Math.abs(high));
  if (high - low <= largest * FLAT || high - low < 1e-290) {
    const room = whole ? 0.5 : log ? 0.1 : largest < 1e-280 ? 0.5 : largest / 10;
    [low, high] = [low - room, high + room];
  }
  const gap = Math.max(whole ? 1 : 0, roundGap((high - low) / 5));
  const pixel = (value) => from + (((log ? Math.log10(value) : value) - low) / (high - low)) * (to - from);
  const first = Math.ceil(low / gap - FLAT);
  const values = Array.from({ length: Math.max(0, Math.floor(high / gap + FLAT) - first + 1) }, (_, index) => (first + index) * gap);
  const label = (value) => {
    if (log) return String(Number((10 ** value).toPrecision(2)));
    if (whole) return value.toLocaleString("en", { maximumFractionDigits: 0 });
    const decimals = -Math.floor(Math.log10(gap) + FLAT);
    if (isShare) return `${((value * 100).toFixed(Math.max(0, decimals - 2)) * 1 || 0).toFixed(Math.max(0, decimals - 2))}%`;
    const most = Math.max(Math.abs(low), Math.abs(high));
    if (most < 1e5 && decimals <= 5) return (value.toFixed(Math.max(0, decimals)) * 1 || 0).toFixed(Math.max(0, decimals));
    return value.toExponential(Math.max(0, Math.floor(Math.log10(most)) + decimals)).replace(/\.?0+e/, "e").replace("e+", "e");
  };
  return { pixel, ticks: values.map((value) => [log ? 10 ** value : value, label(value)]) };
}

function roundGap(gap) {
  const power = 10 ** Math.floor(Math.log10(gap));
  return [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= gap * (1 - FLAT));
}

// draw(place, data, addressOf) puts the chart into a node; addressOf(line, point) is where a point leads to, or null. A
// chart that is drawn again keeps the point that was being read.
export function draw(place, data, addressOf = pointAddress) {
  const old = place.chart;
  const hadFocus = old !== undefined && document.activeElement === old.svg;
  const readout = old?.readout ?? make("p", { class: "readout" });
  const chart = { data, addressOf, readout, steps: stepsOf(data), step: old?.step ?? null, width: place.clientWidth };
  chart.svg = picture(chart, place);
  place.replaceChildren(chart.svg);
  if (!readout.isConnected) place.after(readout);
  place.chart = chart;
  listenTo(chart);
  read(chart, chart.steps.includes(chart.step) ? chart.step : null);
  if (hadFocus) chart.svg.focus({ preventScroll: true });
  resized.observe(place);
}

const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const { chart } = target;
    if (chart && target.clientWidth && target.clientWidth !== chart.width) draw(target, chart.data, chart.addressOf);
  }
});

function pointAddress(line, point) {
  return point[3] ?? (line.address ? line.address + point[0] : null);
}

function node(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const pointsOf = (line) => line.points.filter((point) => point !== null);

function stretches(line) {
  const parts = [[]];
  for (const point of line.points) {
    if (point === null) parts.push([]);
    else parts[parts.length - 1].push(point);
  }
  return parts.filter((part) => part.length > 0);
}

// The values that are drawn, an error below and above each; of a share, as far as it can lie there.
function ends(data, [, value, error]) {
  if (!error) return [value, value];
  const [low, high] = [value - error, value + error];
  return data.is_share && value >= 0 && value <= 1 ? [Math.max(0, low), Math.min(1, high)] : [low, high];
}

function picture(chart, place) {
  const { data } = chart;
  const [width, height] = [Math.max(200, place.clientWidth), Math.max(90, place.clientHeight)];
  const values = data.lines.flatMap((line) => pointsOf(line).flatMap((point) => ends(data, point)));
  const log = view.log && !data.is_share && values.every((value) => value > 0);
  let [low, high] = [Math.min(...values), Math.max(...values)];
  const isPercent = data.is_share && low >= -1 && high <= 1;
  const isWithin = data.is_share && low >= 0 && high <= 1;
  const margin = log ? 0 : (high - low) / 20 || (isWithin ? 0.1 : 0);
  [low, high] = [low - margin, high + margin];
  if (isWithin) [low, high] = [Math.max(0, low), Math.min(1, high)];
  chart.up = scale(low, high, height - BOTTOM, TOP, { isShare: isPercent, log });
  chart.across = scale(data.first, data.last, LEFT, width - RIGHT, { whole: !data.labels });
  const parts = chart.up.ticks.flatMap(([value, label]) => {
    const y = chart.up.pixel(value).toFixed(1);
    return [node("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }), node("text", { x: LEFT - 6, y: Number(y) + 4, "text-anchor": "end" }, label)];
  });
  let end = -Infinity;
  for (const [value, label] of data.labels ?? chart.across.ticks) {
    const x = chart.across.pixel(value);
    parts.push(node("line", { class: "grid", x1: x, x2: x, y1: height - BOTTOM, y2: height - BOTTOM + 4 }));
    if (x - end < 34 || x > width - 4) continue; // no room beside the one before
    end = x;
    parts.push(node("text", { x, y: height - 6, "text-anchor": "middle" }, printable(label)));
  }
  parts.push(node("line", { class: "cursor", x1: 0, x2: 0, y1: TOP, y2: height - BOTTOM }));
  const unit = data.over ?? "step"; // of what counts along the axis
  const over = data.labels ? "" : ` over ${unit}s`;
  return node(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "slider", "aria-label": printable(data.name + over), class: "live" },
    ...parts,
    ...data.lines.map((line) => node("g", { class: line.style }, ...marks(chart, line))),
  );
}

function marks(chart, line) {
  const at = ([x, value]) => `${chart.across.pixel(x).toFixed(1)},${chart.up.pixel(value).toFixed(1)}`;
  const all = pointsOf(line);
  const isSmooth = view.smooth && line.is_dense && all.length > SMOOTH_POINTS;
  const isShort = all.length <= MOST_DOTS;
  const parts = [];
  for (const stretch of stretches(line)) {
    if (stretch.some(([, , error]) => error)) {
      const bounds = stretch.map((point) => ends(chart.data, point));
      const above = stretch.map(([x], index) => at([x, bounds[index][1]]));
      const below = stretch.map(([x], index) => at([x, bounds[index][0]])).reverse();
      if (stretch.length > 1) parts.push(node("polygon", { class: "band", points: [...above, ...below].join(" ") }));
      for (const index of stretch.keys()) {
        const [x1, y1, x2, y2] = [...above[index].split(","), ...at([stretch[index][0], bounds[index][0]]).split(",")];
        if (isShort && bounds[index][0] !== bounds[index][1]) parts.push(node("line", { class: "error", x1, y1, x2, y2 }));
      }
    }
    if (stretch.length > 1) {
      const kind = line.is_dense ? "line" : "guide";
      parts.push(node("polyline", { class: isSmooth ? "raw" : kind, points: stretch.map(at).join(" ") }));
      if (isSmooth) parts.push(node("polyline", { class: kind, points: smoothed(stretch).map(at).join(" ") }));
    }
    if (stretch.length > 1 && !isShort && line.is_dense) continue;
    for (const point of isSmooth ? [] : stretch) {
      const [cx, cy] = at(point).split(",");
      parts.push(node("circle", { class: "dot", cx, cy, r: isShort ? 2.75 : 1.5 }));
    }
  }
  parts.push(node("circle", { class: "reading", cx: 0, cy: 0, r: 4 }));
  return parts;
}

function smoothed(points) {
  const size = Math.max(SMOOTH_POINTS, Math.round(points.length / 100) * 5) / 2;
  return points.map(([x], index) => {
    const some = points.slice(Math.max(0, Math.ceil(index - size)), Math.floor(index + size) + 1);
    return [x, some.reduce((sum, [, value]) => sum + value, 0) / some.length];
  });
}

function stepsOf(data) {
  return [...new Set(data.lines.flatMap((line) => pointsOf(line).map(([x]) => x)))].sort((one, other) => one - other);
}

const pointAt = (line, step) => pointsOf(line).find(([x]) => x === step) ?? null;

// Shows the values of a step; null shows none.
function read(chart, step) {
  const { data, svg, steps } = chart;
  chart.step = step;
  svg.classList.toggle("read", step !== null);
  const groups = svg.querySelectorAll(":scope > g");
  const told = [];
  data.lines.forEach((line, index) => {
    const point = step === null ? null : pointAt(line, step);
    const circle = groups[index].querySelector(".reading");
    circle.classList.toggle("shown", point !== null);
    if (point === null) return;
    circle.setAttribute("cx", chart.across.pixel(point[0]));
    circle.setAttribute("cy", chart.up.pixel(point[1]));
    told.push((line.label ? `${line.label}: ` : "") + valueText(data, point));
  });
  const cursor = svg.querySelector(".cursor");
  for (const name of ["x1", "x2"]) cursor.setAttribute(name, step === null ? 0 : chart.across.pixel(step));
  const where = data.labels?.find(([x]) => x === step)?.[1] ?? `${data.over ?? "step"} ${(step ?? 0).toLocaleString("en")}`;
  const said = step === null ? "" : printable(`${where}: ${told.join(" · ")}`);
  chart.readout.textContent = said;
  const last = steps[steps.length - 1];
  const states = { valuemin: steps[0], valuemax: last, valuenow: step ?? last, valuetext: said || "the arrows read a point, Enter opens it" };
  for (const [name, value] of Object.entries(states)) svg.setAttribute(`aria-${name}`, value);
}

// As the tables have it, and exactly where that is rounded.
function valueText(data, [, value, error]) {
  const said = text(value, data.is_share);
  if (error) return `${said} ± ${text(Number(error.toPrecision(2)), data.is_share)}`;
  return data.is_share || said.replaceAll(",", "") === String(value) ? said : `${said} (${value})`;
}

function listenTo(chart) {
  const { svg, steps } = chart;
  svg.addEventListener("pointermove", (event) => read(chart, stepUnder(chart, event)));
  svg.addEventListener("pointerleave", () => document.activeElement !== svg && read(chart, null));
  svg.addEventListener("blur", () => read(chart, null));
  svg.addEventListener("click", (event) => {
    const step = stepUnder(chart, event);
    read(chart, step);
    open(chart, step, event.clientY - svg.getBoundingClientRect().top);
  });
  svg.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const last = steps.length - 1;
    const at = chart.step === null ? last + 1 : steps.indexOf(chart.step);
    const to = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, PageDown: at - PAGE, PageUp: at + PAGE, Home: 0, End: last }[event.key];
    if (to !== undefined) {
      read(chart, steps[Math.max(0, Math.min(last, to))]);
      event.preventDefault();
    } else if (event.key === "Enter" && chart.step !== null) open(chart, chart.step, 0);
    else if (event.key === "Escape") read(chart, null);
  });
}

function stepUnder(chart, event) {
  const x = event.clientX - chart.svg.getBoundingClientRect().left;
  const far = (step) => Math.abs(chart.across.pixel(step) - x);
  return chart.steps.reduce((best, step) => (best === null || far(step) < far(best) ? step : best), null);
}

// Goes to the address of the point of a step that is nearest to a height.
function open(chart, step, y) {
  const found = chart.data.lines
    .map((line) => [line, pointAt(line, step)])
    .filter(([, point]) => point !== null)
    .sort(([, one], [, other]) => Math.abs(chart.up.pixel(one[1]) - y) - Math.abs(chart.up.pixel(other[1]) - y));
  const address = found.length > 0 && chart.addressOf(...found[0]);
  if (address) location.assign(address);
}

// The charts whose data stand in the page are drawn when they are seen; the switches of a page draw all anew.
const seen = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      draw(target, JSON.parse(target.dataset.chart));
    }
  },
  { rootMargin: "300px" },
);
export function drawSeen(within = document) {
  for (const plot of within.querySelectorAll(".plot[data-chart]")) if (!plot.chart) seen.observe(plot);
}
for (const box of document.querySelectorAll("input[data-view]")) {
  box.addEventListener("change", () => {
    view[box.dataset.view] = box.checked;
    for (const plot of document.querySelectorAll(".plot")) if (plot.chart) draw(plot, plot.chart.data, plot.chart.addressOf);
  });
}
drawSeen();
