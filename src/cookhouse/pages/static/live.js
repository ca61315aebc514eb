// Events of an address, for as long as somebody looks: a page in a hidden tab holds no connection, of which a browser
// allows six to a server. What was missed comes by the id of the last event.

const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 10000;

// listen("/events/runs/x", { rows(data) {…}, state(data) {…} }, lastId) calls the function named as the event, until the
// function that it returns is called.
export function listen(address, handlers, lastId = "") {
  let source = null;
  let timer = null;
  let delay = FIRST_DELAY_MS;
  let isDeleted = false;

  function open() {
    close();
    if (document.hidden) return;
    const whole = new URL(address, location.href);
    if (lastId) whole.searchParams.set("last-event-id", lastId);
    source = new EventSource(whole);
    source.onopen = () => {
      delay = FIRST_DELAY_MS;
      if (!isDeleted) say("");
    };
    // It would try again by itself, but not after an answer that is no stream, such as that of a server behind a proxy.
    source.onerror = () => {
      close();
      say(isDeleted ? "the run was deleted" : "connection lost; trying again");
      timer = setTimeout(open, delay);
      delay = Math.min(2 * delay, LONGEST_DELAY_MS);
    };
    source.addEventListener("state", (event) => {
      isDeleted = JSON.parse(event.data).status === "deleted";
      say(isDeleted ? "the run was deleted; this is what was seen of it last" : "");
    });
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => {
        if (event.lastEventId) lastId = event.lastEventId;
        handle(JSON.parse(event.data));
      });
    }
  }

  function close() {
    clearTimeout(timer);
    source?.close();
    source = null;
  }

  const ended = new AbortController();
  const within = { signal: ended.signal };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()), within);
  addEventListener("pagehide", close, within);
  addEventListener("pageshow", (event) => event.persisted && open(), within);
  open();
  return () => {
    ended.abort();
    close();
  };
}

// Words beside the navigation, read out by screen readers; none hides them.
export function say(text) {
  const place = document.getElementById("connection");
  if (place.textContent === text) return;
  place.textContent = text;
  place.hidden = !text;
}
