// Asks two weights and shows what they say as it comes: lines of JSON, one for each event.

import "/static/copy.js";
import { fill, make, printable } from "/static/dom.js";
import { level, tokenSpan } from "/static/tokens.js";

const form = document.getElementById("ask");
const note = document.getElementById("note");
const answers = document.getElementById("answers");
const difference = document.getElementById("difference");
const judge = document.getElementById("judge");
const labeled = document.getElementById("labeled");
const stop = document.getElementById("stop");
const sides = ["left", "right"].map((id) => document.getElementById(id));

const LEAST_LOGPROB = 10; // where the scale of colors ends, below 0
let asking = null;
let pair = null;

function question() {
  const field = (name) => form.elements[name].value;
  const is_chat = field("form") === "chat";
  return {
    weights: [field("left"), field("right")].filter((name) => name.trim()),
    form: field("form"),
    system: is_chat ? field("system") : "",
    prompt: field("prompt"),
    seed: Number(field("seed")),
    temperature: Number(field("temperature")),
    max_tokens: Number(field("max_tokens")),
  };
}

async function ask() {
  asking?.abort();
  const mine = (asking = new AbortController());
  const asked = question();
  keepInAddress(asked);
  clear(asked);
  try {
    const response = await post("/api/playground/answers", asked, mine.signal);
    for await (const event of events(response.body)) {
      if (mine !== asking) return;
      show(event);
    }
  } catch (error) {
    if (mine !== asking) return;
    note.textContent = mine.signal.aborted ? "stopped" : error.message;
    note.classList.toggle("bad", !mine.signal.aborted);
  }
  if (mine === asking) {
    asking = null;
    stop.disabled = true;
  }
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
    throw new Error(printable(answer.detail ?? `the page's server answered ${response.status}`));
  }
  return response;
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line);
  }
}

function clear(asked) {
  pair = null;
  stop.disabled = false;
  judge.hidden = true;
  labeled.textContent = "";
  difference.textContent = "";
  note.classList.remove("bad");
  note.textContent = "asking";
  answers.hidden = false;
  document.getElementById("sides").classList.toggle("alone", asked.weights.length < 2);
  sides.forEach((side, number) => {
    side.classList.remove("failed");
    side.querySelector("h2").textContent = printable(asked.weights[number] ?? "");
    side.querySelectorAll("pre").forEach((pre) => pre.replaceChildren());
    side.querySelector(".ended").textContent = "";
  });
}

function show(event) {
  const side = sides[event.side];
  switch (event.type) {
    case "note":
      note.textContent = printable(event.text);
      break;
    case "prompt":
      note.textContent = "answering";
      showPrompt(side, event);
      break;
    case "tokens":
      append(side.querySelector(".said"), event.tokens);
      break;
    case "difference":
      mark(event.at);
      break;
    case "end":
      side.querySelector(".ended").textContent = printable(
        `${event.num_tokens.toLocaleString("en")} tokens${event.note ? `; ${event.note}` : ""}`,
      );
      break;
    case "error":
      fail(side, event.text);
      break;
    case "done":
      finish(event.answers);
  }
}

function showPrompt(side, event) {
  const pre = side.querySelector("details pre");
  const base = event.model ? `, on ${event.model}` : "";
  side.querySelector("summary").textContent = printable(
    `the prompt as ${event.num_tokens.toLocaleString("en")} tokens${base}`,
  );
  append(pre, event.tokens);
  if (event.num_left_out) {
    const gap = make("span", { class: "left-out" }, `\n… ${event.num_left_out.toLocaleString("en")} tokens left out …\n`);
    pre.insertBefore(gap, pre.children[event.left_out_at]);
  }
}

function append(pre, tokens) {
  const before = pre.querySelectorAll(".token").length;
  pre.append(...tokens.map((token, index) => span(token, before + index)));
}

function span(token, position) {
  const made = tokenSpan({
    text: token.text,
    told: describe(token, position),
    special: token.is_special,
    levels: { logprob: level(token.logprob, LEAST_LOGPROB) },
  });
  made.classList.toggle("part", !token.text);
  return made;
}

function describe(token, position) {
  const share = token.logprob === null ? "" : `, logprob ${token.logprob.toFixed(3)} (p ${Math.exp(token.logprob).toFixed(3)})`;
  const part = token.text ? "" : ", a part of the character that follows";
  return printable(`token ${position + 1}: ${JSON.stringify(token.text)}, id ${token.id}${share}${part}`);
}

function mark(at) {
  const marked = sides.map((side) => side.querySelectorAll(".said .token")[at]).filter(Boolean);
  marked.forEach((span) => span.classList.add("differs"));
  const button = make("button", { type: "button" }, `token ${at + 1}`);
  button.addEventListener("click", () => marked[0]?.click());
  fill(difference, "They first differ at ", button);
}

function fail(side, text) {
  note.textContent = side ? "one could not answer" : printable(text);
  note.classList.add("bad");
  if (side) {
    side.classList.add("failed");
    side.querySelector(".ended").textContent = printable(text);
  }
}

function finish(id) {
  if (!note.classList.contains("bad")) note.textContent = "";
  pair = id;
  const is_chat = form.elements.form.value === "chat";
  if (id && !difference.textContent) difference.textContent = "Both said the same.";
  else judge.hidden = !(id && is_chat);
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
    labeled.textContent = error.message;
  }
}

// The address names the weights, so that it can be opened again.
function keepInAddress(asked) {
  const address = new URL(location.href);
  address.search = new URLSearchParams(asked.weights.map((name) => ["weights", name])).toString();
  history.replaceState(null, "", address);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
form.elements.prompt.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});
document.getElementById("again").addEventListener("click", () => {
  form.elements.seed.value = (Number(form.elements.seed.value) + 1) % 2147483648;
  form.requestSubmit();
});
stop.addEventListener("click", () => asking?.abort());
judge.addEventListener("click", (event) => event.target.value && label(event.target.value));
document.getElementById("colors").addEventListener("change", (event) => {
  document.getElementById("sides").dataset.by = event.target.checked ? "logprob" : "";
});
addEventListener("pagehide", () => asking?.abort());
// Disabled until now: without this script the browser would send the form as a page of its own.
for (const id of ["send", "again"]) document.getElementById(id).disabled = false;
