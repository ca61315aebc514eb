// Asks weights and shows what they say as it comes. Who asks, and whom, is given: `ask(question, signal)` answers with
// events, each of a side: prompt, tokens or text, difference, end, error; or of all: note, done.

import { fill, make, printable } from "./dom.js";
import { level, tokenSpan } from "./tokens.js";

const LEAST_LOGPROB = 10; // where the scale of colors ends, below 0
const MOST_SHOWN = 200000; // letters of a side
const get = (id) => document.getElementById(id);
const form = get("question");
const note = get("note");
const stopping = get("stop");
const sides = ["left", "right"].map(get).filter(Boolean);
let asking = null;

// startPlayground({ ask, begin, finish }) wires the form; `begin(question)` and `finish(event)` are told of a question
// that is asked and of one that is answered.
export function startPlayground({ ask, begin = () => {}, finish = () => {} }) {
  async function send() {
    asking?.abort();
    const mine = (asking = new AbortController());
    const asked = question();
    clear(asked);
    begin(asked);
    try {
      for await (const event of ask(asked, mine.signal)) {
        if (mine !== asking) return;
        show(event);
        if (event.type === "done") finish(event);
      }
    } catch (error) {
      if (mine !== asking) return;
      say(mine.signal.aborted ? "stopped" : error.message, !mine.signal.aborted);
    }
    if (mine === asking) {
      asking = null;
      stopping.disabled = true;
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  form.elements.prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  get("again").addEventListener("click", () => {
    form.elements.seed.value = (Number(form.elements.seed.value) + 1) % 2147483648;
    form.requestSubmit();
  });
  stopping.addEventListener("click", stop);
  get("colors").addEventListener("change", (event) => (get("sides").dataset.by = event.target.checked ? "logprob" : ""));
  addEventListener("pagehide", stop);
  // Disabled until now: without this script the browser would send the form as a page of its own.
  for (const id of ["send", "again"]) get(id).disabled = false;
}

export function stop() {
  asking?.abort();
}

/** Takes out what was asked and answered. */
export function clearAnswer() {
  get("answers").hidden = true;
  for (const side of sides) for (const part of side.querySelectorAll("pre, .ended")) part.replaceChildren();
  say("");
}

export const isChat = () => form.elements.form.value === "chat";

function question() {
  const field = (name) => form.elements[name]?.value ?? "";
  return {
    weights: [field("left"), field("right")].filter((name) => name.trim()),
    form: field("form"),
    system: isChat() ? field("system") : "",
    prompt: field("prompt"),
    seed: field("seed") === "" ? null : Number(field("seed")),
    temperature: Number(field("temperature")),
    max_tokens: Number(field("max_tokens")),
  };
}

/** The lines of a body as they come, between separators. */
export async function* pieces(body, separator) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split(separator);
    rest = parts.pop();
    yield* parts;
  }
}

function say(text, isBad = false) {
  note.textContent = printable(text);
  note.classList.toggle("bad", isBad);
}

function clear(asked) {
  clearAnswer();
  stopping.disabled = false;
  get("difference").textContent = "";
  say("asking");
  get("answers").hidden = false;
  get("sides").classList.toggle("alone", asked.weights.length < 2);
  sides.forEach((side, number) => {
    side.classList.remove("failed");
    side.querySelector("h2").textContent = printable(asked.weights[number] ?? "");
    side.querySelector(".thoughts").hidden = true;
  });
}

function show(event) {
  const side = sides[event.side];
  switch (event.type) {
    case "note":
      say(event.text);
      break;
    case "prompt":
      say("answering");
      showPrompt(side, event);
      break;
    case "tokens":
      append(side.querySelector(".said"), event.tokens);
      break;
    case "text":
      write(side.querySelector(event.is_thought ? ".thoughts" : ".said"), event.text);
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
      if (!note.classList.contains("bad")) say("");
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

function write(pre, text) {
  pre.hidden = false;
  const left = MOST_SHOWN - pre.textContent.length;
  if (left <= 0) return;
  pre.append(printable(text.slice(0, left)), text.length > left ? "\n… what follows is not shown here." : "");
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
  marked.forEach((each) => each.classList.add("differs"));
  const button = make("button", { type: "button" }, `token ${at + 1}`);
  button.addEventListener("click", () => marked[0]?.click());
  fill(get("difference"), "They first differ at ", button);
}

function fail(side, text) {
  say(side ? "one could not answer" : text, true);
  if (side) {
    side.classList.add("failed");
    side.querySelector(".ended").textContent = printable(text);
  }
}
