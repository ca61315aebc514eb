// The list of runs: lines change as runs go on, others appear, and what is typed filters at once. The server makes the
// list; here the texts of its cells are put in the place of older ones.

import { make, printable } from "./dom.js";
import { listen, say } from "./live.js";

const PAUSE_MS = 200;
const LEAST_MS = 1000;
const MOST_ASKED = 2;

const filter = document.getElementById("filter");
let list = document.getElementById("list");
let stop = () => {};
let timer = null;
let asked = 0;
let again = null;
let madeAt = -Infinity;

const rows = () => new Map([...list.querySelectorAll("tr[data-name]")].map((row) => [row.dataset.name, row]));

function follow() {
  stop();
  stop = listen(`/events/runs${location.search}`, { run: change, gone, runs: arrange }, list.dataset.position);
}

function change(line) {
  const row = rows().get(printable(line.name));
  if (!row) return;
  for (const cell of row.querySelectorAll("[data-shown]")) cell.textContent = printable(line.shown[cell.dataset.shown]);
  row.querySelector(".status").className = `status ${line.status}`;
}

// A run that was deleted stays in sight until the list is made again.
function gone({ name }) {
  const row = rows().get(printable(name));
  if (!row) return;
  const status = row.querySelector(".status");
  status.className = "status deleted";
  status.textContent = "deleted";
  row.querySelector(".now").textContent = "";
  row.querySelector("a").removeAttribute("href");
  const tick = row.querySelector("input");
  tick.checked = false;
  tick.disabled = true;
  tickedChanged();
  say(`${printable(name, "")} was deleted`);
}

function arrange({ names, num_selected, num_runs }) {
  const shown = [...rows().values()].filter((row) => !row.querySelector(".status.deleted"));
  const isSame = shown.length === names.length && shown.every((row, index) => row.dataset.name === printable(names[index]));
  if (!isSame) {
    again ??= setTimeout(makeAgain, Math.max(0, madeAt + LEAST_MS - performance.now()));
    return;
  }
  const count = document.getElementById("count");
  const text = `${num_selected.toLocaleString("en")} of ${num_runs.toLocaleString("en")} runs`;
  if (count.textContent !== text) count.textContent = text;
}

// Ask for the list again, as the address says; ticks and the focus stay.
async function makeAgain() {
  const number = ++asked;
  clearTimeout(again);
  again = null;
  madeAt = performance.now();
  let whole;
  try {
    const answer = await fetch(location.href);
    if (!answer.ok) return;
    whole = new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // no connection: live.js says so
    return;
  }
  if (number !== asked) return;
  const ticked = new Set(ticks().map((tick) => tick.value));
  const focused = document.activeElement?.closest("tr")?.dataset.name;
  const kind = document.activeElement?.tagName;
  const fresh = document.adoptNode(whole.getElementById("list"));
  for (const tick of fresh.querySelectorAll("input[name=run]")) tick.checked = ticked.delete(tick.value);
  // Those that do not fit the filter now.
  fresh.append(...[...ticked].map((name) => make("input", { type: "hidden", name: "run", value: name })));
  list.replaceWith(fresh);
  list = fresh;
  list.addEventListener("change", tickedChanged);
  tickedChanged();
  if (focused !== undefined) rows().get(focused)?.querySelector(kind)?.focus();
  follow();
}

function ticks() {
  return [...list.querySelectorAll("input[name=run]:is(:checked, [type=hidden])")];
}

function tickedChanged() {
  const names = ticks().map((tick) => tick.value);
  const compare = list.querySelector("button");
  const ask = document.getElementById("ask");
  if (!compare) return;
  compare.disabled = names.length < 2;
  compare.textContent = names.length < 2 ? "compare: tick two or more" : `compare ${names.length} runs`;
  ask.hidden = names.length < 1 || names.length > MOST_ASKED;
  ask.href = `/playground?${new URLSearchParams(names.map((name) => ["weights", name]))}`;
  ask.textContent = names.length === 1 ? "ask it" : "ask both";
}

function filtered() {
  clearTimeout(timer);
  timer = null;
  const query = new URLSearchParams([...new FormData(filter)].filter(([, value]) => value !== ""));
  const search = query.size ? `?${query}` : "";
  if (search === location.search) return;
  history.replaceState(null, "", location.pathname + search);
  makeAgain();
}

filter.addEventListener("submit", (event) => {
  event.preventDefault();
  filtered();
});
filter.addEventListener("change", filtered);
filter.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(filtered, PAUSE_MS);
});
filter.querySelector("button").hidden = true;
list.addEventListener("change", tickedChanged);
tickedChanged();
follow();
