// The playground of a server: any weights that the key may ask, by the endpoint that OpenAI's clients use.

import { make } from "./dom.js";
import * as playground from "./playground.js";
import { ask, heldKey, RefusedKey } from "./server-client.js";
import { show } from "./table.js";
import { seconds } from "./text.js";

/** Wires the form; `refuse` is told of a key that the server does not accept. */
export function startPlayground(refuse) {
  async function* events(question, signal) {
    try {
      yield* answered(question, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      if (error instanceof RefusedKey) refuse(error.message);
      else yield { type: "error", side: 0, text: error.message };
    }
  }
  playground.startPlayground({ ask: events });
}

/** Reads anew which weights there are; the one that is chosen stays chosen. False: it was for another key. */
export async function listWeights() {
  const key = heldKey();
  const content = await (await ask("../v1/models")).json();
  if (heldKey() !== key) return false;
  const names = content.data.map((model) => model.id);
  show(document.getElementById("weights"), names, (select) => {
    const chosen = select.value;
    select.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    if (names.includes(chosen)) select.value = chosen;
  });
  return true;
}

async function* answered(question, signal) {
  const began = performance.now();
  const isChat = question.form === "chat";
  const answer = await ask(isChat ? "../v1/chat/completions" : "../v1/completions", { body: bodyOf(question), signal });
  let usage = null;
  let reason = null;
  yield { type: "note", text: "answering" };
  for await (const part of playground.pieces(answer.body, "\n\n")) {
    const data = part.replace(/^data: /, "");
    if (data === "[DONE]") continue;
    const content = JSON.parse(data);
    if (content.error) throw new Error(content.error.message);
    usage = content.usage ?? usage;
    const choice = content.choices?.[0];
    if (!choice) continue;
    reason = choice.finish_reason ?? reason;
    const said = isChat ? choice.delta : { content: choice.text };
    if (said.reasoning_content) yield { type: "text", side: 0, text: said.reasoning_content, is_thought: true };
    if (said.content) yield { type: "text", side: 0, text: said.content };
    for (const call of said.tool_calls ?? []) yield { type: "text", side: 0, text: `\n[calls ${JSON.stringify(call.function)}]` };
  }
  const ended = reason === "length" ? "cut off at the most tokens" : `ended by ${reason}`;
  yield { type: "end", side: 0, num_tokens: usage?.completion_tokens ?? 0, note: `${ended} · ${seconds((performance.now() - began) / 1000)}` };
  yield { type: "done" };
}

function bodyOf({ weights, form, system, prompt, seed, temperature, max_tokens }) {
  const messages = [...(system ? [{ role: "system", content: system }] : []), { role: "user", content: prompt }];
  return {
    model: weights[0],
    max_tokens,
    temperature,
    stream: true,
    stream_options: { include_usage: true },
    ...(form === "chat" ? { messages } : { prompt }),
    ...(seed === null ? {} : { seed }),
  };
}
