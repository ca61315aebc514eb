// The page of a run while it goes on: what it says, its curves, what it saved and its log follow its files.

import "./fold.js";
import { offerCopies } from "./copy.js";
import { keep } from "./charts.js";
import { runAddress } from "./dom.js";
import { listen } from "./live.js";
import { followLog, hasLog } from "./log.js";

const LEAST_MS = 1000;
const page = document.getElementById("run");
const { name, position } = page.dataset;
const api = `/api${runAddress(name)}`;
const get = (id) => document.getElementById(id);

const charts = get("charts");
const redraw = charts ? keep(charts, `${api}charts`) : () => {};
const readLog = followLog(name);
const tellAgain = seldom(tell);

let isDeleted = false;

listen(
  `/events/runs/${name.split("/").map(encodeURIComponent).join("/")}`,
  {
    state: (state) => {
      isDeleted = state.status === "deleted";
      if (isDeleted) showDeleted();
      else tellAgain();
    },
    rows: drawAgain,
    reset: drawAgain,
    files: ({ changed }) => {
      if (isDeleted) return;
      if (hasLog(changed)) readLog();
      tellAgain();
    },
  },
  position,
);

function drawAgain() {
  if (isDeleted) return;
  redraw();
  tellAgain();
}

// At most once in so many milliseconds, and once more after the last call.
function seldom(work) {
  let timer = null;
  let readyAt = 0;
  return () => {
    timer ??= setTimeout(async () => {
      timer = null;
      const begun = performance.now();
      await work();
      readyAt = performance.now() + Math.max(LEAST_MS, 4 * (performance.now() - begun));
    }, Math.max(0, readyAt - performance.now()));
  };
}

// The server makes these parts as it made the page; one that has not changed stays, with what is open or focused in it.
async function tell() {
  if (!charts) return;
  try {
    const answer = await fetch(runAddress(name, "now"));
    if (!answer.ok) return;
    const made = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of made.body.children) {
      const shown = get(part.id);
      if (text(shown) === text(part)) continue;
      if (part.tagName === "DETAILS") part.open = shown.open;
      shown.replaceWith(document.adoptNode(part));
      offerCopies(part);
    }
    get("no-curves").hidden = document.querySelector("figure[data-metric]") !== null;
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // no connection: live.js says so
  }
}

// What a part says, without what scripts have added to it.
function text(part) {
  const copy = part.cloneNode(true);
  for (const button of copy.querySelectorAll("button.copy")) button.remove();
  return copy.textContent.replaceAll(/\s+/g, " ");
}

// What was seen of it last stays.
function showDeleted() {
  const status = document.querySelector("#top .status");
  if (status === null) return;
  status.className = "status deleted";
  status.textContent = "deleted";
}
