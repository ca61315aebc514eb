// What is looked at first: troubles, and one figure of each part.

import { draw } from "./chart.js";
import { make } from "./dom.js";
import { show } from "./table.js";
import { bytes, count, percent, plural, rate, seconds } from "./text.js";

const TURNS = { train: "trains", sample: "samples", other: "busy" };

/** The state of the server in a few words, and whether that is well. */
export function stateOf(status) {
  const { server, troubles } = status;
  if (server.draining.is_draining) return ["Stopping: nothing more is accepted", false];
  if (server.pause !== null) return [`Not ready: ${server.pause}`, false];
  if (troubles.length > 0) return [`Serving, with ${plural(troubles.length, "trouble")}`, false];
  return [`Serving for ${seconds(server.up_seconds)}`, true];
}

export function showFirst(status) {
  show(document.querySelector("#troubles ul"), status.troubles, (list, troubles) => {
    list.hidden = troubles.length === 0;
    list.replaceChildren(...troubles.map((trouble) => make("li", {}, trouble)));
  });
  show(document.getElementById("tiles"), tilesOf(status), (tiles, rows) => {
    tiles.replaceChildren(...rows.map(tile));
  });
  addPoint(document.querySelector("#trend .plot"), status.totals.tokens_per_second);
}

function tile([title, figure, note]) {
  return make("div", {}, make("dt", {}, title), make("dd", {}, figure, make("small", {}, note)));
}

const MOST_POINTS = 300;
const points = [];

export function forgetPoints() {
  points.length = 0;
}

/** Tokens per second over the last looks. */
function addPoint(place, { trained, scored, sampled }) {
  points.push([points.length === 0 ? 0 : points[points.length - 1][0] + 1, trained + scored, sampled]);
  if (points.length > MOST_POINTS) points.shift();
  const line = (label, style, at) => ({ label, style, is_dense: true, points: points.map((point) => [point[0], point[at]]) });
  draw(place, {
    name: "tokens per second",
    over: "second",
    first: points[0][0],
    last: points[points.length - 1][0],
    lines: [line("trained", "series-0", 1), line("sampled", "series-1", 2)],
  });
}

function tilesOf(status) {
  const { workers, totals, server, disk, journal } = status;
  return [
    workersTile(workers),
    ["Training requests", `${count(totals.num_waiting)} wait`, `${count(totals.num_running)} with ${theWorkers(workers)}`],
    ["Samples", count(totals.num_samples), sequences(cachesOf(workers))],
    ["Tokens trained", `${rate(totals.tokens_per_second.trained)} /s`, "over the last minute"],
    ["Tokens sampled", `${rate(totals.tokens_per_second.sampled)} /s`, "over the last minute"],
    ["Workers' memory", bytes(sum(workers, "memory_bytes")), gpu(workers)],
    ["Server's memory", bytes(server.memory_bytes), `the machine has ${bytes(server.machine_memory_available_bytes)} left`],
    ["Key-value cache", ...cacheUse(cachesOf(workers))],
    ["Disk", `${bytes(disk.free_bytes)} free`, `of ${bytes(disk.bytes)}`],
    journalTile(journal),
    ["Checkpoints", count(totals.num_checkpoints), bytes(totals.checkpoint_bytes)],
    ["Sessions", count(totals.num_sessions), plural(totals.num_models, "model")],
  ];
}

const theWorkers = (workers) => (workers.length === 1 ? "the worker" : "the workers");

/** The sum of what is known; null where nothing is. */
function sum(rows, name) {
  const known = rows.map((row) => row[name]).filter((value) => value !== null);
  return known.length === 0 ? null : known.reduce((total, value) => total + value, 0);
}

function workersTile(workers) {
  const up = workers.filter((worker) => worker.is_up);
  if (workers.length === 1) return ["Worker", workerState(workers[0]), workerNote(workers[0])];
  return ["Workers", `${count(up.length)} of ${count(workers.length)} up`, busyNote(up)];
}

function busyNote(up) {
  const known = up.filter((worker) => worker.utilization !== null);
  if (known.length === 0) return "utilization not known yet";
  const rest = known.length < up.length ? `, ${count(up.length - known.length)} not known` : "";
  return `busy ${percent(sum(known, "utilization"), known.length)} of the time${rest}`;
}

function workerState(worker) {
  if (worker.state !== "up") return worker.state;
  if (worker.status_age_seconds === null) return "up";
  return worker.turn === null ? "idle" : TURNS[worker.turn.kind];
}

function workerNote(worker) {
  if (worker.state === "starting") return "not up yet";
  if (worker.state === "restarting") return `lost ${seconds(worker.last_loss.seconds_ago)} ago`;
  if (worker.state === "draining") return "gets no new work";
  if (worker.status_age_seconds === null) return "not known yet what it does";
  if (worker.turn !== null && worker.turn.seconds >= 1) return `for ${seconds(worker.turn.seconds)}`;
  return `up for ${seconds(worker.up_seconds)}`;
}

/** The caches of all workers that have told; null: none has. */
function cachesOf(workers) {
  const told = workers.filter((worker) => worker.caches !== null);
  return told.length === 0 ? null : told.flatMap((worker) => worker.caches);
}

function sequences(caches) {
  if (caches === null) return "sequences not known yet";
  const total = (name) => sum(caches, name) ?? 0;
  return `${plural(total("num_running_sequences"), "sequence")} run, ${count(total("num_waiting_sequences"))} wait`;
}

function gpu(workers) {
  const told = workers.filter((worker) => worker.memory_bytes !== null);
  if (told.length === 0) return workers.some((worker) => worker.is_up) ? "not known yet" : "no worker is up";
  const devices = told.map((worker) => worker.device_memory).filter((memory) => memory !== null);
  if (devices.length === 0) return "computed on the CPU";
  const used = bytes(sum(devices, "used_bytes"));
  return devices.length === 1 ? `GPU: ${used} of ${bytes(devices[0].total_bytes)}` : `GPUs: ${used}`;
}

function cacheUse(caches) {
  if (caches === null) return ["not known", "no worker has responded"];
  if (caches.length === 0) return ["none", "nothing has been sampled"];
  return [percent(sum(caches, "used_bytes"), sum(caches, "max_bytes")), `of ${bytes(sum(caches, "max_bytes"))}`];
}

function journalTile(journal) {
  if (journal === null) return ["Journal", "off", "a lost worker loses its models"];
  if (journal.failure !== null) return ["Journal", "fails", `for ${seconds(journal.failing_seconds)}`];
  const last = journal.last_commit_seconds_ago;
  const waiting = `${plural(journal.num_waiting, "entry", "entries")} to be written`;
  return ["Journal", last === null ? "nothing yet" : `${seconds(last)} ago`, waiting];
}
