// A prompt to any weights that the key may ask, by the endpoint that OpenAI's clients use. Answers are text, never markup.

import { ask, heldKey, RefusedKey } from "./client.js";
import { make, show } from "./dom.js";
import { plural, printable, seconds } from "./text.js";

const MAX_SHOWN = 200000;
const at = (name) => document.getElementById(name);
let running = null;

/** Wires the form; `refuse` is told of a key that the server does not accept. */
export function startPlayground(refuse) {
  at("prompt-form").addEventListener("submit", (event) => {
    event.preventDefault();
    send(refuse);
  });
  at("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("prompt-form").requestSubmit();
  });
  at("stop").addEventListener("click", stop);
}

export function stop() {
  running?.abort();
}

export function clearAnswer() {
  for (const name of ["answer", "thoughts", "answer-state"]) at(name).textContent = "";
}

/** Reads anew which weights there are; the one that is chosen stays chosen. False: it was for another key. */
export async function listWeights() {
  const key = heldKey();
  const content = await (await ask("../v1/models")).json();
  if (heldKey() !== key) return false;
  const names = content.data.map((model) => model.id);
  show(at("weights"), names, (select) => {
    const chosen = select.value;
    select.replaceChildren(
      ...names.map((name) => {
        const option = make("option", name);
        option.value = name;
        return option;
      }),
    );
    if (names.includes(chosen)) select.value = chosen;
  });
  return true;
}

async function send(refuse) {
  if (running !== null) return;
  const isChat = document.querySelector("input[name=mode]:checked").value === "chat";
  running = new AbortController();
  at("send").disabled = true;
  at("stop").disabled = false;
  const said = new Answer();
  try {
    const path = isChat ? "../v1/chat/completions" : "../v1/completions";
    const answer = await ask(path, { body: request(isChat), signal: running.signal });
    for await (const content of events(answer.body)) said.take(content, isChat);
    said.end();
  } catch (error) {
    if (running.signal.aborted) said.end("Stopped.");
    else if (error instanceof RefusedKey) refuse(error.message);
    else said.end(error.message, true);
  } finally {
    running = null;
    at("send").disabled = false;
    at("stop").disabled = true;
  }
}

function request(isChat) {
  const prompt = at("prompt").value;
  const body = {
    model: at("weights").value,
    max_tokens: at("max-tokens").valueAsNumber,
    temperature: at("temperature").valueAsNumber,
    stream: true,
    stream_options: { include_usage: true },
    ...(isChat ? { messages: [{ role: "user", content: prompt }] } : { prompt }),
  };
  if (at("seed").value !== "") body.seed = at("seed").valueAsNumber;
  return body;
}

/** What is said, as it comes. */
class Answer {
  constructor() {
    this.began = performance.now();
    this.usage = null;
    this.reason = null;
    this.length = 0;
    at("answer").textContent = "";
    at("thoughts").textContent = "";
    at("thoughts").hidden = true;
    this.say("Asked.");
  }

  take(content, isChat) {
    if (content.error) throw new Error(content.error.message);
    this.usage = content.usage ?? this.usage;
    const choice = content.choices?.[0];
    if (!choice) return;
    this.reason = choice.finish_reason ?? this.reason;
    if (!isChat) this.add(at("answer"), choice.text);
    else {
      this.add(at("thoughts"), choice.delta.reasoning_content);
      this.add(at("answer"), choice.delta.content);
      for (const call of choice.delta.tool_calls ?? []) this.add(at("answer"), `\n[calls ${JSON.stringify(call.function)}]`);
    }
  }

  add(element, text) {
    if (!text) return;
    element.hidden = false;
    if (this.length > MAX_SHOWN) return;
    this.length += text.length;
    element.append(printable(text, { lines: true }));
    if (this.length > MAX_SHOWN) element.append(`\n… what follows is not shown here.`);
  }

  end(text = "", isBad = false) {
    const parts = [text];
    if (this.usage) parts.push(plural(this.usage.completion_tokens, "token"));
    if (this.reason) parts.push(this.reason === "length" ? "cut off at the most tokens" : `ended by ${this.reason}`);
    if (!isBad) parts.push(seconds((performance.now() - this.began) / 1000));
    this.say(parts.filter(Boolean).join(" · "), isBad);
  }

  say(text, isBad = false) {
    at("answer-state").textContent = printable(text);
    at("answer-state").classList.toggle("bad", isBad);
  }
}

/** The contents of server-sent events. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}
