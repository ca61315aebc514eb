// Tokens colored by one of five numbers. Which one stands in data-by of what holds them; a token has a class for each.
// By keyboard: 1 to 5 switch, Tab comes to a text, arrows go through its tokens, whose values are told in #told.
import { make } from "./dom.js";

const NUM_LEVELS = 10;

// The shade of a value on a scale that ends at `end`: -10 to 10.
export function level(value, end) {
  if (typeof value !== "number" || Number.isNaN(value)) return 0;
  return Math.round(NUM_LEVELS * Math.max(-1, Math.min(1, value / end)));
}

// tokenSpan({ text, told, special, levels: { logprob: -4 } })
export function tokenSpan({ text, told, special = false, levels = {} }) {
  const shades = Object.entries(levels)
    .filter(([, shade]) => shade)
    .map(([quantity, shade]) => `${quantity[0]}-${shade < 0 ? "n" : "p"}${Math.abs(shade)}`);
  const kinds = special ? ["token", "special"] : ["token"];
  return make("span", { class: [...kinds, ...shades].join(" "), title: told }, text.replaceAll("\n", "⏎\n"));
}

// One stop of the Tab key for all tokens of a text; `status` tells what the focused one is.
export function walkable(pre, status) {
  let current = null;
  pre.tabIndex = 0;

  function go(token) {
    if (!token) return;
    if (current) current.removeAttribute("tabindex");
    current = token;
    token.tabIndex = -1;
    token.focus();
  }

  function above(token, step) {
    const { left, top } = token.getBoundingClientRect();
    let found = token;
    for (let next = token; (next = step < 0 ? next.previousElementSibling : next.nextElementSibling); ) {
      const place = next.getBoundingClientRect();
      if (Math.abs(place.top - top) < 4) continue;
      if (found !== token && Math.abs(place.top - found.getBoundingClientRect().top) >= 4) break;
      if (found === token || Math.abs(place.left - left) < Math.abs(found.getBoundingClientRect().left - left)) found = next;
    }
    return found;
  }

  pre.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const inside = pre.contains(current) && document.activeElement === current;
    const at = inside ? current : null;
    const next = {
      ArrowRight: () => (at ? at.nextElementSibling : pre.firstElementChild),
      ArrowLeft: () => (at ? at.previousElementSibling : pre.lastElementChild),
      ArrowDown: () => (at ? above(at, 1) : pre.firstElementChild),
      ArrowUp: () => (at ? above(at, -1) : pre.lastElementChild),
      Home: () => pre.firstElementChild,
      End: () => pre.lastElementChild,
    }[event.key];
    if (!next) return;
    event.preventDefault();
    go(next());
  });
  pre.addEventListener("click", (event) => {
    if (getSelection().isCollapsed) go(event.target.closest(".token"));
  });
  pre.addEventListener("focusin", (event) => {
    if (status && event.target.classList.contains("token")) status.textContent = event.target.title;
  });
}

function switchBy(fieldset) {
  const shown = fieldset.closest("[data-by]");
  const choose = (button) => {
    button.checked = true;
    shown.dataset.by = button.value;
    const address = new URL(location.href);
    address.searchParams.set("by", button.value);
    history.replaceState(history.state, "", address);
  };
  fieldset.addEventListener("change", (event) => choose(event.target));
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input:not([type=radio]), textarea")) return;
    const button = fieldset.querySelectorAll("input")["12345".indexOf(event.key)];
    if (button && !button.disabled) choose(button);
  });
}

const told = document.getElementById("told");
document.querySelectorAll("pre.tokens").forEach((pre) => walkable(pre, told));
document.querySelectorAll("fieldset.by").forEach(switchBy);
