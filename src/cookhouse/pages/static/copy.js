// Commands to copy: by a button beside each, or selected as a whole when the command takes the focus.

import { make } from "./dom.js";

export function offerCopies(within = document) {
  for (const command of within.querySelectorAll("pre.command")) {
    if (command.parentElement.classList.contains("copied-from")) continue;
    const button = make("button", { type: "button", class: "copy" }, "copy");
    const holder = make("div", { class: "copied-from" });
    command.replaceWith(holder);
    holder.append(command, button);
    command.addEventListener("focus", () => getSelection().selectAllChildren(command));
    button.addEventListener("click", async () => {
      button.textContent = await copied(command);
      setTimeout(() => (button.textContent = "copy"), 2000);
    });
  }
}

async function copied(command) {
  try {
    await navigator.clipboard.writeText(command.textContent);
    return "copied";
  } catch {
    command.focus(); // a browser that does not let pages write there
    return "selected";
  }
}

offerCopies();
