// Tables of texts that are drawn again while they change: what is focused or selected in them stays.

import { make, printable } from "./dom.js";

const shown = new Map();

/** Calls `draw` with the element if its data are others than last time. */
export function show(element, data, draw) {
  const text = JSON.stringify(data);
  if (shown.get(element) === text) return;
  shown.set(element, text);
  draw(element, data);
}

/** Takes out all that was shown: it was for another key. */
export function clear() {
  for (const element of shown.keys()) element.replaceChildren();
  shown.clear();
}

/**
 * A table of texts. Columns are [title, kind]: kind "number" stands right, "id" in letters of one width, and "more" gives
 * way in a narrow window. Without rows it says `empty`; `note` is said below.
 */
export function table(element, columns, rows, { empty = "None.", note = "" } = {}) {
  show(element, [rows, note], () => {
    if (refill(element, rows, note)) return;
    if (rows.length === 0) {
      element.replaceChildren(make("p", { class: "dim" }, empty));
      return;
    }
    const head = columns.map(([title, kind]) => make("th", { scope: "col", class: kind === "id" ? null : kind }, title));
    const body = rows.map((row) => make("tr", {}, row.map((text, index) => make("td", { class: columns[index][1] }, text))));
    const whole = make("table", {}, make("thead", {}, make("tr", {}, head)), make("tbody", {}, body));
    element.replaceChildren(make("div", { class: "scroll" }, whole), ...(note ? [make("p", { class: "dim" }, note)] : []));
  });
}

/** Sets the cells that have changed, where a table has as many rows as before. */
function refill(element, rows, note) {
  const lines = element.querySelector("tbody")?.rows;
  if (!lines || lines.length !== rows.length || (element.querySelector("p")?.textContent ?? "") !== printable(note)) {
    return false;
  }
  rows.forEach((row, index) => {
    row.forEach((text, at) => {
      const cell = lines[index].cells[at];
      if (cell.textContent !== printable(text)) cell.textContent = printable(text);
    });
  });
  return true;
}

/** A table of [name, value], without a head. */
export function facts(element, rows) {
  show(element, rows, () => {
    if (refill(element, rows, "")) return;
    const lines = rows.map(([name, value]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, value)));
    element.replaceChildren(make("table", {}, make("tbody", {}, lines)));
  });
}
