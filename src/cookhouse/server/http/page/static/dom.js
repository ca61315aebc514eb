// Makes elements of texts, and leaves those alone whose content has not changed.

import { printable } from "./text.js";

export function make(tag, text = "", name = "") {
  const element = document.createElement(tag);
  if (text !== "") element.textContent = printable(text);
  if (name) element.className = name;
  return element;
}

const shown = new Map();

/** Calls `draw` with the element if its data are others than last time: focus and selections stay where they are. */
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
 * A table of texts. Columns are [title, kind]: kind "number" stands right, "id" in letters of one width.
 * Without rows it says `empty`; `note` is said below.
 */
export function table(element, columns, rows, { empty = "None.", note = "" } = {}) {
  show(element, [rows, note], () => {
    if (refill(element, rows, note)) return;
    element.replaceChildren();
    if (rows.length === 0) {
      element.append(make("p", empty, "empty"));
      return;
    }
    const box = make("div", "", "scroll");
    const whole = make("table");
    const head = whole.createTHead().insertRow();
    for (const [title, kind] of columns) {
      const cell = make("th", title, kind === "number" ? "number" : "");
      cell.scope = "col";
      head.append(cell);
    }
    const body = whole.createTBody();
    for (const row of rows) {
      const line = body.insertRow();
      row.forEach((text, index) => line.append(make("td", text, columns[index][1] ?? "")));
    }
    box.append(whole);
    element.append(box);
    if (note) element.append(make("p", note, "dim"));
  });
}

/** Sets the cells that have changed, where a table has as many rows as before: what is selected stays so. */
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
    const body = make("tbody");
    for (const [name, value] of rows) {
      const line = body.insertRow();
      const head = make("th", name);
      head.scope = "row";
      line.append(head, make("td", value));
    }
    const whole = make("table");
    whole.append(body);
    element.replaceChildren(whole);
  });
}
