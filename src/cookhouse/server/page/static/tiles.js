// What is looked at first: troubles, and one figure of each part.

import { make, show } from "./dom.js";
import { bytes, count, percent, plural, rate, seconds } from "./text.js";
import { addPoint } from "./trend.js";

const TURNS = { train: "trains", sample: "samples", errand: "runs an errand" };

/** The state of the server in a few words, and whether that is well. */
export function stateOf(status) {
  const { server, troubles } = status;
  if (server.draining.is_begun) return ["Stopping: nothing more is accepted", false];
  if (server.pause !== null) return [`Not ready: ${server.pause}`, false];
  if (troubles.length > 0) return [`Serving, with ${plural(troubles.length, "trouble")}`, false];
  return [`Serving for ${seconds(server.up_seconds)}`, true];
}

export function showFirst(status) {
  show(document.querySelector("#troubles ul"), status.troubles, (list, troubles) => {
    list.replaceChildren(...troubles.map((trouble) => make("li", trouble)));
  });
  show(document.getElementById("tiles"), tilesOf(status), (tiles, rows) => {
    tiles.replaceChildren(...rows.map(tile));
  });
  addPoint(document.getElementById("trend"), status.totals.tokens_per_second);
}

function tile([title, figure, note]) {
  const box = make("div");
  const value = make("dd", figure);
  value.append(make("small", note));
  box.append(make("dt", title), value);
  return box;
}

function tilesOf(status) {
  const { engine, totals, server, disk, journal } = status;
  return [
    ["Engine", engineState(engine), engineNote(engine)],
    ["Training requests", `${count(totals.num_waiting)} wait`, `${count(totals.num_running)} with the engine`],
    ["Samples", count(totals.num_samples), sequences(engine)],
    ["Tokens trained", `${rate(totals.tokens_per_second.trained)} /s`, "over the last minute"],
    ["Tokens sampled", `${rate(totals.tokens_per_second.sampled)} /s`, "over the last minute"],
    ["Engine's memory", bytes(engine.memory_bytes), gpu(engine)],
    ["Server's memory", bytes(server.memory_bytes), `the machine has ${bytes(server.machine_memory_available_bytes)} left`],
    ["Key-value cache", cacheUse(engine), cacheNote(engine)],
    ["Disk", `${bytes(disk.free_bytes)} free`, `of ${bytes(disk.bytes)}`],
    journalTile(journal),
    ["Checkpoints", count(totals.num_checkpoints), bytes(totals.checkpoint_bytes)],
    ["Sessions", count(totals.num_sessions), plural(totals.num_models, "model")],
  ];
}

function engineState(engine) {
  if (!engine.is_up) return "down";
  if (engine.told_seconds_ago === null) return "up";
  return engine.turn === null ? "idle" : TURNS[engine.turn.kind];
}

function engineNote(engine) {
  if (!engine.is_up) return "another is being started";
  if (engine.told_seconds_ago === null) return "it has not said yet what it does";
  if (engine.turn !== null && engine.turn.seconds >= 1) return `for ${seconds(engine.turn.seconds)}`;
  return `up for ${seconds(engine.up_seconds)}`;
}

function sequences(engine) {
  if (engine.caches === null) return "the engine has not said how many run";
  const sum = (name) => engine.caches.reduce((total, cache) => total + cache[name], 0);
  return `${plural(sum("num_running_sequences"), "sequence")} run, ${count(sum("num_waiting_sequences"))} wait`;
}

function gpu(engine) {
  if (engine.memory_bytes === null) return engine.is_up ? "the engine has not said" : "there is no engine";
  if (engine.device_memory === null) return "it computes on the CPU";
  const { used_bytes: used, total_bytes: total } = engine.device_memory;
  return `GPU: ${bytes(used)} of ${bytes(total)}`;
}

function cacheUse(engine) {
  if (engine.caches === null) return "not known";
  if (engine.caches.length === 0) return "none";
  const sum = (name) => engine.caches.reduce((total, cache) => total + cache[name], 0);
  return percent(sum("used_bytes"), sum("max_bytes"));
}

function cacheNote(engine) {
  if (engine.caches === null) return "the engine has not said";
  if (engine.caches.length === 0) return "nothing has been sampled";
  return `of ${bytes(engine.caches.reduce((total, cache) => total + cache.max_bytes, 0))}`;
}

function journalTile(journal) {
  if (journal === null) return ["Journal", "off", "a lost engine loses its models"];
  if (journal.failure !== null) return ["Journal", "fails", `for ${seconds(journal.failing_seconds)}`];
  const last = journal.last_commit_seconds_ago;
  const waiting = `${plural(journal.num_waiting, "entry", "entries")} to be written`;
  return ["Journal", last === null ? "nothing yet" : `${seconds(last)} ago`, waiting];
}
