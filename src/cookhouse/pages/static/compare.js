// Several runs over each other: their curves are drawn when they are seen, and again when one of the runs goes on.

import "./fold.js";
import { keep } from "./charts.js";
import { listen } from "./live.js";

const page = document.getElementById("compared");
const runs = new URLSearchParams(page.dataset.query).getAll("run");
const charts = document.getElementById("charts");
if (charts !== null) {
  const redraw = keep(charts, `/api/compare/charts?${page.dataset.query}`);
  // One stream for all: a browser allows six connections to a server.
  listen("/events/runs", { run: (line) => runs.includes(line.name) && redraw() });
}
