"use strict";
// Sorts the table of samples by the column whose header is pressed, and hides the rows that a filter leaves out, with
// what these samples said. It reads texts and sets attributes; it never makes markup.
(() => {
  const body = document.querySelector("#samples tbody");
  const rows = Array.from(body.rows);
  const heads = Array.from(document.querySelectorAll("#samples th"));
  const [least, most, text, count] = ["least", "most", "text", "count"].map((id) => document.getElementById(id));

  function cell(row, column) {
    return row.cells[column].textContent;
  }

  function compare(one, other) {
    const numbers = [Number(one), Number(other)];
    const are_numbers = one !== "" && other !== "" && !numbers.some(Number.isNaN);
    return are_numbers ? numbers[0] - numbers[1] : one.localeCompare(other);
  }

  function sort(column) {
    const is_up = heads[column].getAttribute("aria-sort") === "descending";
    heads.forEach((head, index) => {
      head.setAttribute("aria-sort", index !== column ? "none" : is_up ? "ascending" : "descending");
    });
    const sorted = rows.slice().sort((a, b) => compare(cell(a, column), cell(b, column)) * (is_up ? 1 : -1));
    sorted.forEach((row) => body.appendChild(row));
  }

  function filter() {
    const low = least.value === "" ? -Infinity : Number(least.value);
    const high = most.value === "" ? Infinity : Number(most.value);
    const wanted = text.value.toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const details = document.getElementById(row.querySelector("a").hash.slice(1));
      const reward = Number(row.dataset.reward);
      const said = `${row.textContent} ${details.textContent}`.toLowerCase();
      const is_shown = reward >= low && reward <= high && said.includes(wanted);
      row.hidden = details.hidden = !is_shown;
      shown += is_shown;
    }
    for (const section of document.querySelectorAll("section")) {
      section.hidden = !section.querySelector("details[id]:not([hidden])") && shown < rows.length;
    }
    count.textContent = `${shown} of ${rows.length}`;
  }

  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => sort(column)));
  for (const field of [least, most, text]) {
    field.addEventListener("input", filter);
  }
  document.getElementById("filter").addEventListener("submit", (event) => event.preventDefault());
})();
