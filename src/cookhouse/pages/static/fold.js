// What a click shows or hides: a <details data-fold="NAME"> is open on the next visit if it was left open, and a link to
// something inside of one opens it.

const PLACE = "cookhouse-folds";

function opened() {
  try {
    return new Set(JSON.parse(localStorage.getItem(PLACE) ?? "[]"));
  } catch {
    return new Set(); // a browser that keeps nothing for files
  }
}

for (const part of document.querySelectorAll("details[data-fold]")) if (opened().has(part.dataset.fold)) part.open = true;
// It does not bubble, and parts are made anew while a run goes on.
document.addEventListener("toggle", ({ target }) => target.dataset.fold && keepFold(target), true);

function keepFold(part) {
  const now = opened();
  if (part.open) now.add(part.dataset.fold);
  else now.delete(part.dataset.fold);
  try {
    localStorage.setItem(PLACE, JSON.stringify([...now]));
  } catch {} // it is open for as long as the page is
}

function openTarget() {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let part = target || null; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (target) target.scrollIntoView();
}

addEventListener("hashchange", openTarget);
openTarget();
