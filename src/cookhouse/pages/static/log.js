// The log of a run: what is written appears below, and the view stays at the end if it is there.

import { make, runAddress } from "./dom.js";
import { listen } from "./live.js";

const MOST_LINES = 5000;
const FILE = "logs.log";

// followLog(name) returns what to call when the log changed.
export function followLog(name) {
  const lines = document.getElementById("log-lines");
  if (lines === null) return () => {};
  const parts = ["log-range", "log-size"].map((id) => document.getElementById(id));
  let from = Number(lines.dataset.from);
  let to = Number(lines.dataset.to);
  let isBusy = false;
  let isBehind = document.getElementById("log-later") !== null;
  scrollToEnd(lines);

  async function more() {
    if (isBusy || isBehind) return;
    isBusy = true;
    try {
      for (;;) {
        const answer = await fetch(`/api${runAddress(name, "log")}?from=${to}`);
        if (!answer.ok) return;
        const { log } = await answer.json();
        const wasAtEnd = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 8;
        if (log.from < to) {
          lines.replaceChildren();
          from = log.from;
        }
        if (log.to === to && log.from === to) return;
        to = log.to;
        lines.append(...log.lines.map((line) => `${line}\n`));
        while (lines.childNodes.length > MOST_LINES) lines.firstChild.remove();
        const [range, size] = parts;
        range.textContent = `${from.toLocaleString("en")} to ${to.toLocaleString("en")}`;
        size.textContent = log.size.toLocaleString("en");
        if (wasAtEnd) scrollToEnd(lines);
        if (to >= log.size || !log.lines.length) return;
      }
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // no connection: live.js says so
    } finally {
      isBusy = false;
    }
  }

  return more;
}

function scrollToEnd(lines) {
  lines.scrollTop = lines.scrollHeight;
}

export function hasLog(changed) {
  return changed.includes(FILE);
}
