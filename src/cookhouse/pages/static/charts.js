// The charts of a page: those that are seen are asked for and drawn, again when there are new points, at most so often.

import { draw } from "./chart.js";
import { make, printable } from "./dom.js";

const LEAST_MS = 1000;
const MOST = 60;

// keep(place, address) shows the charts that an address answers, and returns what to call when they changed.
export function keep(place, address) {
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
      const { groups, charts } = await answer.json();
      arrange(place, groups, (figure) => watch.observe(figure));
      for (const figure of wanted) {
        figure.version = of;
        const chart = charts[figure.dataset.metric];
        if (chart) show(figure, chart);
      }
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // no connection: live.js says so, and the next event asks again
    } finally {
      isBusy = false;
      readyAt = performance.now() + Math.max(LEAST_MS, 4 * (performance.now() - begun));
      if ([...seen].some((figure) => figure.version !== version)) ask();
    }
  }

  for (const figure of document.querySelectorAll("figure[data-metric]")) {
    if (figure.querySelector("[data-chart]")) figure.version = version; // chart.js draws it
    watch.observe(figure);
  }
  return () => {
    version += 1;
    isOver = false;
    ask();
  };
}

function show(figure, chart) {
  figure.querySelector(".caption").textContent = chart.caption;
  const change = figure.querySelector(".change");
  change.hidden = !chart.change;
  change.replaceChildren(chart.change, " ", make("span", {}, chart.difference));
  const plot = figure.querySelector(".plot");
  plot.hidden = !chart.data;
  if (chart.data) draw(plot, chart.data);
  else plot.replaceChildren();
}

// The groups in their order, each with its figures; what is there stays where it is, open or closed.
function arrange(place, groups, onNew) {
  const within = (key) => document.querySelector(`[data-group="${CSS.escape(key)}"]`);
  const kept = new Map([...document.querySelectorAll("figure[data-metric]")].map((one) => [one.dataset.metric, one]));
  const order = [];
  for (const { key: name, title, names, constants } of groups) {
    const key = printable(name);
    const grid = within(key) ?? make("div", { class: "charts", "data-group": key });
    const fresh = names.map((each) => kept.get(each) ?? emptyFigure(each));
    if (fresh.some((figure, index) => grid.children[index] !== figure) || grid.children.length !== fresh.length) {
      const added = fresh.filter((figure) => !figure.isConnected);
      grid.replaceChildren(...fresh);
      added.forEach(onNew);
    }
    if (key === "deciding") continue;
    const facts = grid.nextElementSibling?.tagName === "DL" ? grid.nextElementSibling : make("dl", { class: "facts" });
    facts.replaceChildren(...constants.map(([each, value]) => make("div", {}, make("dt", {}, each), make("dd", {}, value))));
    const holder = key === "" ? null : (grid.closest("details[data-fold]:not(.part)") ?? make("details", { "data-fold": `charts-${key}` }, make("summary"), grid));
    if (holder === null) order.push(grid, facts);
    else {
      holder.querySelector("summary").textContent = printable(title);
      if (facts.parentElement !== holder) holder.append(facts);
      order.push(holder);
    }
  }
  if (order.some((part, index) => place.children[index] !== part) || place.children.length !== order.length) {
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
