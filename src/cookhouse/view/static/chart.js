// A chart over steps, drawn from what the server computed: where its lines, points and labels lie, and what values say.
// The mouse or the arrow keys read a point; a click or Enter opens the address of its step.

const SVG = "http://www.w3.org/2000/svg";
const PAGE = 10;
const GAP = 6;

// draw(place, drawing, addressOf) puts the chart into a node. addressOf(line, step) is where a point leads to, or null.
// A chart that is drawn again keeps the point that was being read.
export function draw(place, drawing, addressOf = () => null) {
  const old = place.chart;
  const chart = { drawing, addressOf, steps: stepsOf(drawing), step: old?.step ?? null, svg: null, readout: null };
  const hadFocus = old !== undefined && document.activeElement === old.svg;
  chart.svg = svg(drawing);
  chart.readout = old?.readout ?? document.createElement("p");
  chart.readout.className = "readout";
  place.replaceChildren(chart.svg, chart.readout);
  place.chart = chart;
  listenTo(chart);
  read(chart, chart.steps.includes(chart.step) ? chart.step : null);
  if (hadFocus) chart.svg.focus({ preventScroll: true });
}

function node(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function svg(drawing) {
  const { width, height, left, right, bottom } = drawing;
  const parts = [];
  for (const [y, label] of drawing.upward) {
    parts.push(node("line", { class: "grid", x1: left, x2: width - right, y1: y, y2: y }));
    parts.push(node("text", { x: left - GAP, y: y + 4, "text-anchor": "end" }, label));
  }
  for (const [x, label] of drawing.across) {
    parts.push(node("line", { class: "grid", x1: x, x2: x, y1: height - bottom, y2: height - bottom + 4 }));
    parts.push(node("text", { x, y: height - GAP, "text-anchor": "middle" }, label));
  }
  const cursor = node("line", { class: "cursor", x1: 0, x2: 0, y1: 0, y2: height - bottom });
  const root = node(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      tabindex: 0,
      role: "slider",
      "aria-label": `${drawing.name} over steps`,
      class: "live",
    },
    ...parts,
    cursor,
    ...drawing.lines.map((line) => node("g", { class: line.style }, ...marks(line))),
  );
  return root;
}

function marks(line) {
  const parts = [];
  for (const stretch of line.stretches) {
    const points = stretch.map(([x, y]) => `${x},${y}`).join(" ");
    if (stretch.length > 1) parts.push(node("polyline", { class: line.kind, points }));
    if (stretch.length > 1 && line.dots !== "dot") continue;
    for (const [x, y] of stretch) parts.push(node("circle", { class: "dot", cx: x, cy: y, r: line.radius }));
  }
  parts.push(node("circle", { class: "reading", cx: 0, cy: 0, r: 4 }));
  return parts;
}

function stepsOf(drawing) {
  const steps = new Set();
  for (const line of drawing.lines) for (const [, , step] of line.stretches.flat()) steps.add(step);
  return [...steps].sort((one, other) => one - other);
}

function pointAt(line, step) {
  return line.stretches.flat().find((point) => point[2] === step) ?? null;
}

// Shows the values of a step; null shows none.
function read(chart, step) {
  chart.step = step;
  chart.svg.classList.toggle("read", step !== null);
  const groups = chart.svg.querySelectorAll(":scope > g");
  const told = [];
  let x = 0;
  chart.drawing.lines.forEach((line, index) => {
    const point = step === null ? null : pointAt(line, step);
    const circle = groups[index].querySelector(".reading");
    circle.classList.toggle("shown", point !== null);
    if (point === null) return;
    x = point[0];
    circle.setAttribute("cx", point[0]);
    circle.setAttribute("cy", point[1]);
    told.push((line.label ? `${line.label}: ` : "") + valueText(point));
  });
  const cursor = chart.svg.querySelector(".cursor");
  cursor.setAttribute("x1", x);
  cursor.setAttribute("x2", x);
  const text = step === null ? "" : `step ${step.toLocaleString("en")}: ${told.join(" · ")}`;
  chart.readout.textContent = text;
  chart.svg.setAttribute("aria-valuemin", chart.steps[0]);
  chart.svg.setAttribute("aria-valuemax", chart.steps[chart.steps.length - 1]);
  chart.svg.setAttribute("aria-valuenow", step ?? chart.steps[chart.steps.length - 1]);
  chart.svg.setAttribute("aria-valuetext", text || "the arrows read a point, Enter opens its step");
}

// As the reports have it, and exactly where that is rounded.
function valueText([, , , text, value]) {
  const exact = String(value);
  return text.replaceAll(",", "") === exact ? text : `${text} (${exact})`;
}

function listenTo(chart) {
  chart.svg.addEventListener("pointermove", (event) => read(chart, stepUnder(chart, event)));
  chart.svg.addEventListener("pointerleave", () => document.activeElement !== chart.svg && read(chart, null));
  chart.svg.addEventListener("blur", () => read(chart, null));
  chart.svg.addEventListener("click", (event) => {
    const step = stepUnder(chart, event);
    read(chart, step);
    open(chart, nearest(chart, step, inside(chart, event).y));
  });
  chart.svg.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const last = chart.steps.length - 1;
    const at = chart.step === null ? last + 1 : chart.steps.indexOf(chart.step);
    const to = {
      ArrowLeft: at - 1,
      ArrowDown: at - 1,
      ArrowRight: at + 1,
      ArrowUp: at + 1,
      PageDown: at - PAGE,
      PageUp: at + PAGE,
      Home: 0,
      End: last,
    }[event.key];
    if (to !== undefined) {
      read(chart, chart.steps[Math.max(0, Math.min(last, to))]);
      event.preventDefault();
    } else if (event.key === "Enter" && chart.step !== null) {
      open(chart, nearest(chart, chart.step, 0));
    } else if (event.key === "Escape") {
      read(chart, null);
    }
  });
}

function inside(chart, event) {
  const box = chart.svg.getBoundingClientRect();
  const scale = chart.drawing.width / box.width;
  return { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
}

function stepUnder(chart, event) {
  const { x } = inside(chart, event);
  let best = null;
  for (const line of chart.drawing.lines) {
    for (const point of line.stretches.flat()) {
      if (best === null || Math.abs(point[0] - x) < Math.abs(best[0] - x)) best = point;
    }
  }
  return best?.[2] ?? null;
}

// The line whose point at a step is nearest to a height.
function nearest(chart, step, y) {
  const found = chart.drawing.lines
    .map((line) => ({ line, point: pointAt(line, step) }))
    .filter(({ point }) => point !== null)
    .sort((one, other) => Math.abs(one.point[1] - y) - Math.abs(other.point[1] - y));
  return found[0] ?? null;
}

function open(chart, found) {
  const address = found && chart.addressOf(found.line, found.point[2]);
  if (address) location.assign(address);
}
