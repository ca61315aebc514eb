// Asks the server, with the key that this tab holds.

const PLACE = "cookhouse-key";
const PATIENCE_MS = 15000;

export class RefusedKey extends Error {}
export class Gone extends Error {}

/** Takes a key from the address (#key=tml-…), and takes it out of the address bar and the history. */
export function takeKeyFromAddress() {
  const match = /^#key=(.+)$/.exec(location.hash);
  if (!match) return;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    keepKey(decodeURIComponent(match[1]));
  } catch (error) {
    if (!(error instanceof URIError)) throw error;
    keepKey(match[1]);
  }
}

export function keepKey(key) {
  sessionStorage.setItem(PLACE, key.trim());
}

export function heldKey() {
  return sessionStorage.getItem(PLACE);
}

export function forgetKey() {
  sessionStorage.removeItem(PLACE);
}

/** The answer to a request; what is refused for its key is thrown as such. */
export async function ask(path, { body = null, signal = null } = {}) {
  const key = heldKey();
  if (!/^[\x21-\x7e]+$/.test(key ?? "")) throw new RefusedKey("That is no key: one starts with tml-.");
  const headers = { "X-API-Key": key, Authorization: `Bearer ${key}` };
  const request = { headers, cache: "no-store", signal: signal ?? AbortSignal.timeout(PATIENCE_MS) };
  if (body !== null) {
    request.method = "POST";
    request.body = JSON.stringify(body);
    headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(path, request);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Gone("The server does not answer.");
  }
  if (answer.status === 401) throw new RefusedKey("The server does not accept this key.");
  if (!answer.ok) throw new Error(await reasonOf(answer));
  return answer;
}

async function reasonOf(answer) {
  const text = await answer.text();
  try {
    const content = JSON.parse(text);
    return content.error?.message ?? content.detail ?? `The server answered ${answer.status}.`;
  } catch {
    return `The server answered ${answer.status}.`;
  }
}
