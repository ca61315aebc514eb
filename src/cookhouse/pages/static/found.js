// Finds rollouts while one types: the part of the page that shows them is fetched anew, as the server made it, and put
// in the place of the old one. Back and forward work as with whole pages, and without this script the form does.
import { listen, say } from "./live.js";
import { runAddress } from "./dom.js";

const PAUSE_MS = 250;
const form = document.getElementById("filter");
let asking = null;
let timer = null;

function addressOfForm() {
  const address = new URL(location.pathname, location.href);
  const before = new URL(location.href).searchParams;
  for (const [name, value] of new FormData(form)) if (value !== "") address.searchParams.set(name, value);
  for (const name of ["sort", "limit"]) if (before.has(name)) address.searchParams.set(name, before.get(name));
  return address;
}

async function show(address, { remember = true } = {}) {
  clearTimeout(timer);
  asking?.abort();
  asking = new AbortController();
  const place = document.getElementById("found");
  place.setAttribute("aria-busy", "true");
  try {
    const response = await fetch(address, { signal: asking.signal });
    const read = new DOMParser().parseFromString(await response.text(), "text/html");
    const found = read.getElementById("found");
    if (!found) {
      location.assign(address); // it says what is wrong
      return;
    }
    const key = place.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    place.replaceWith(document.adoptNode(found));
    if (key) found.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
    for (const field of form.elements) {
      const now = read.forms.filter.elements[field.name];
      if (now && field !== document.activeElement) field.value = now.value;
    }
    if (remember) history.pushState(null, "", address);
    say("");
  } catch (error) {
    if (error.name === "AbortError") return;
    place.removeAttribute("aria-busy");
    say("the server does not answer");
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  show(addressOfForm());
});
form.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(() => form.checkValidity() && show(addressOfForm()), PAUSE_MS);
});
// What rollouts say is read when it is first searched: that begins before the first letter is typed.
form.elements.text.addEventListener(
  "focus",
  () => fetch(new URL(`/api${location.pathname}?text=a&limit=1`, location.href)).catch(() => {}),
  { once: true },
);
document.addEventListener("click", (event) => {
  const link = event.target.closest("#found :is(a[data-key], .pager a)");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  show(new URL(link.getAttribute("href"), location.href));
});
addEventListener("popstate", () => show(location.href, { remember: false }));

const found = document.getElementById("found");
if (found && "grows" in found.dataset) {
  listen(`/events/runs/${runAddress(found.dataset.name).slice("/runs/".length, -"/-/".length)}`, {
    files({ changed }) {
      if (changed.includes("rollouts")) show(location.href, { remember: false });
    },
  });
}
