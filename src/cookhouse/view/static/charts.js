// The charts of a page: those that are seen are asked for and drawn, again when there are new points, at most so often.

import { draw } from "/static/chart.js";
import { make, printable } from "/static/dom.js";

const LEAST_MS = 1000;
const MOST = 60;

// keep(place, address, addressOf) shows the charts that an address answers, and returns what to call when they changed.
// addressOf(chart, line, step) is where a point leads to.
export function keep(place, address, addressOf, { told = () => {} } = {}) {
  const seen = new Set();
  const watch = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) seen.add(target);
        else seen.delete(target);
        if (isIntersecting && target.version !== version) ask();
      }
    },
    { rootMargin: "300px" },
  );
  let version = 0;
  let timer = null;
  let isBusy = false;
  let isOver = false;
  let readyAt = 0;

  function ask() {
    if (timer !== null || isBusy || isOver) return;
    timer = setTimeout(fetchCharts, Math.max(0, readyAt - performance.now()));
  }

  async function fetchCharts() {
    timer = null;
    isBusy = true;
    const of = version;
    const wanted = [...seen].filter((figure) => figure.version !== of).slice(0, MOST);
    const begun = performance.now();
    try {
      const url = new URL(address, location.href);
      for (const figure of wanted) url.searchParams.append("name", figure.dataset.metric);
      const answer = await fetch(url);
      isOver = !answer.ok; // of a run that was deleted what was seen of it stays; live.js says so
      if (isOver) return;
      const { groups, charts, ...more } = await answer.json();
      arrange(place, groups, (figure) => watch.observe(figure));
      for (const figure of wanted) {
        figure.version = of;
        const chart = charts[figure.dataset.metric];
        if (chart) show(figure, chart, addressOf);
      }
      told(more);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // no connection: live.js says so, and the next event asks again
    } finally {
      isBusy = false;
      readyAt = performance.now() + Math.max(LEAST_MS, 4 * (performance.now() - begun));
      if ([...seen].some((figure) => figure.version !== version)) ask();
    }
  }

  for (const figure of place.querySelectorAll("figure[data-metric]")) watch.observe(figure);
  return () => {
    version += 1;
    isOver = false;
    ask();
  };
}

function show(figure, chart, addressOf) {
  figure.querySelector(".caption").textContent = chart.caption;
  const change = figure.querySelector(".change");
  change.hidden = !chart.change;
  change.replaceChildren(chart.change, " ", make("span", {}, chart.difference));
  const plot = figure.querySelector(".plot");
  if (chart.drawing) draw(plot, chart.drawing, (line, step) => addressOf(chart, line, step));
  else plot.replaceChildren();
}

// The groups in their order, each with its figures; what is there stays where it is, open or closed.
function arrange(place, groups, onNew) {
  const kept = new Map([...place.querySelectorAll("figure[data-metric]")].map((one) => [one.dataset.metric, one]));
  const grids = new Map([...place.querySelectorAll("[data-group]")].map((one) => [one.dataset.group, one]));
  const order = [];
  for (const { title, is_open, names } of groups) {
    const key = printable((title ?? "").split(" ")[0]);
    const grid = grids.get(key) ?? make("div", { class: "charts", "data-group": key });
    const holder = grid.closest("details") ?? (title === null ? grid : make("details", { open: is_open }, make("summary"), grid));
    if (title !== null) holder.querySelector("summary").textContent = printable(title);
    const figures = names.map((name) => {
      const figure = kept.get(name) ?? emptyFigure(name);
      kept.delete(name);
      return figure;
    });
    if (figures.some((figure, index) => grid.children[index] !== figure) || grid.children.length !== figures.length) {
      const added = figures.filter((figure) => !figure.isConnected);
      grid.replaceChildren(...figures);
      added.forEach(onNew);
    }
    order.push(holder);
  }
  if (order.some((holder, index) => place.children[index] !== holder) || place.children.length !== order.length) {
    place.replaceChildren(...order);
  }
}

function emptyFigure(name) {
  return make(
    "figure",
    { "data-metric": name },
    make("figcaption", {}, make("b", {}, name), make("span", { class: "caption" })),
    make("div", { class: "plot" }),
    make("p", { class: "change", hidden: true }),
  );
}
