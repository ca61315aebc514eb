// What stands in an element with data-again="EVENTS" is made by the server: at each event it is asked for again, and put
// in its place. Where one has scrolled to, and what was opened, chosen and focused, stays.

import { drawSeen } from "./chart.js";
import { listen, say } from "./live.js";

const PAUSE_MS = 1000;

let asked = null; // a request under way
let timer = null;
let last = null; // what the server made

function later() {
  if (timer === null) timer = setTimeout(again, PAUSE_MS);
}

async function again() {
  timer = null;
  if (asked !== null) return later();
  asked = fetch(location.href, { headers: { accept: "text/html" } });
  try {
    const answer = await asked;
    if (answer.ok) swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    // The stream says that the connection is lost, and comes back with an event.
  } finally {
    asked = null;
  }
}

function swap(whole) {
  const fresh = whole.querySelector("[data-again]");
  const place = document.querySelector("[data-again]");
  if (!fresh || fresh.innerHTML === last) return;
  last = fresh.innerHTML;
  const focused = keyOf(document.activeElement);
  const scrolled = [...place.querySelectorAll(".scroll")].map((part) => part.scrollLeft);
  for (const part of place.querySelectorAll("details[id], input[id]")) {
    const same = fresh.querySelector("#" + CSS.escape(part.id));
    if (same?.tagName === "DETAILS") same.open = part.open;
    if (same?.type === "checkbox") same.checked = part.checked;
  }
  place.dataset.position = fresh.dataset.position;
  place.replaceChildren(...fresh.childNodes);
  drawSeen(place);
  place.querySelectorAll(".scroll").forEach((part, index) => (part.scrollLeft = scrolled[index] ?? 0));
  if (focused) [...place.querySelectorAll("a[href], summary, input")].find((node) => keyOf(node) === focused)?.focus();
}

function keyOf(node) {
  return node?.closest?.("[data-again]") ? (node.getAttribute("href") ?? (node.id || node.textContent)) : null;
}

const watched = document.querySelector("[data-again]");
const handlers = { changed: later, gone: () => say("it was deleted") };
if (watched) listen(watched.dataset.again, handlers, watched.dataset.position);
