// Looks at the server each second, for as long as somebody looks at the page.

import "./fold.js";
import { ask, forgetKey, Gone, heldKey, keepKey, RefusedKey, takeKeyFromAddress } from "./server-client.js";
import { printable } from "./dom.js";
import { clearAnswer, stop } from "./playground.js";
import { listWeights, startPlayground } from "./server-playground.js";
import { showTables } from "./server-tables.js";
import { forgetPoints, showFirst, stateOf } from "./server-tiles.js";
import { clear } from "./table.js";

const LOOK_MS = 1000;
const at = (name) => document.getElementById(name);
let timer = null;
let isLooking = false;
let listed = null;

function say(text, isGood) {
  const state = at("state");
  if (state.textContent === printable(text)) return;
  state.textContent = printable(text);
  state.className = isGood ? "good" : "bad";
}

function showPart(hasKey) {
  at("ask").hidden = hasKey;
  for (const name of ["status", "playground", "links", "forget"]) at(name).hidden = !hasKey;
}

/** Asks for a key: there is none, or the server does not accept it. */
function askForKey(reason = "") {
  forgetKey();
  stop();
  clearTimeout(timer);
  showPart(false);
  clear();
  clearAnswer();
  forgetPoints();
  listed = null;
  say("It needs a key.", false);
  at("refusal").textContent = reason;
  at("key").value = "";
  at("key").focus();
}

async function look() {
  clearTimeout(timer);
  if (isLooking || document.hidden || heldKey() === null) return;
  isLooking = true;
  const key = heldKey();
  try {
    const status = await (await ask("../api/v1/status")).json();
    if (heldKey() !== key) return; // what one key may see is not shown to who has another
    showPart(true);
    say(...stateOf(status));
    showFirst(status);
    showTables(status);
    await listNewWeights(status);
  } catch (error) {
    if (heldKey() !== key) return;
    if (error instanceof RefusedKey) askForKey(error.message);
    else if (error instanceof Gone) say("Gone: the server does not answer. Trying again; the figures are old.", false);
    else say(`${error.message} Trying again; the figures are old.`, false);
  } finally {
    isLooking = false;
    if (heldKey() !== null) timer = setTimeout(look, LOOK_MS);
  }
}

async function listNewWeights(status) {
  const now = JSON.stringify([status.tenants.find((one) => one.is_viewer)?.num_checkpoints, status.base_models.length]);
  if (listed === now) return;
  if (await listWeights()) listed = now;
}

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  keepKey(at("key").value);
  at("refusal").textContent = "";
  say("Looking.", true);
  look();
});
at("forget").addEventListener("click", () => askForKey());
document.addEventListener("visibilitychange", look);
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#key=")) {
    takeKeyFromAddress();
    look();
  }
});
startPlayground(askForKey);
takeKeyFromAddress();
if (heldKey() === null) askForKey();
else look();
