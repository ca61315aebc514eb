// The playground of runs: two weights, answered by lines of JSON; and which answer was better.

import "./copy.js";
import { printable } from "./dom.js";
import { isChat, pieces, startPlayground } from "./playground.js";

const judge = document.getElementById("judge");
const labeled = document.getElementById("labeled");
const difference = document.getElementById("difference");
let pair = null;

async function* ask(question, signal) {
  const response = await post("/api/playground/answers", question, signal);
  for await (const line of pieces(response.body, "\n")) yield JSON.parse(line);
}

async function post(address, body, signal = undefined) {
  const response = await fetch(address, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new Error(answer.detail ?? `the page's server answered ${response.status}`);
  }
  return response;
}

// The address names the weights, so that it can be opened again.
function begin(question) {
  const address = new URL(location.href);
  address.search = new URLSearchParams(question.weights.map((name) => ["weights", name])).toString();
  history.replaceState(null, "", address);
  pair = null;
  judge.hidden = true;
  labeled.textContent = "";
}

function finish({ answers }) {
  pair = answers;
  if (answers && !difference.textContent) difference.textContent = "Both said the same.";
  else judge.hidden = !(answers && isChat());
  judge.querySelectorAll("button").forEach((button) => (button.disabled = false));
}

async function label(name) {
  judge.querySelectorAll("button").forEach((button) => (button.disabled = true));
  try {
    const response = await post("/api/playground/labels", { answers: pair, label: name });
    const { line, file, command } = await response.json();
    labeled.textContent = line === null ? "Nothing is written." : printable(`Written as line ${line.toLocaleString("en")} of ${file}.`);
    document.getElementById("command").textContent = printable(command);
  } catch (error) {
    labeled.textContent = printable(error.message);
  }
}

judge.addEventListener("click", (event) => event.target.value && label(event.target.value));
startPlayground({ ask, begin, finish });
