// The tables of a status.

import { facts, table } from "./table.js";
import { bytes, count, percent, plural, rate, seconds } from "./text.js";

const KINDS = { weights: "training state", sampler_weights: "for sampling", external_weights: "for others" };
const TURNS = { train: "training", sample: "sampling", other: "other" };

const at = (name) => document.getElementById(name);
const none = (value, text = "–") => (value === null ? text : value);
const others = (number) => (number > 0 ? `${count(number)} more are not listed.` : "");

export function showTables(status) {
  showQueues(status);
  showTenants(status);
  showSessions(status);
  showWorkers(status);
  showRequests(status.requests);
  showStorage(status);
}

function showQueues({ models, samples }) {
  table(
    at("models"),
    [["Model", "id"], ["Tenant", "more"], ["Base model", "more"], ["Rank", "number more"], ["Worker", "more"], ["Wait", "number"],
      ["Run", "number"], ["Oldest", "number"], ["Note"]],
    models.listed.map((row) => [
      row.model_id, row.tenant, row.base_model, none(row.lora_rank, "all weights"), none(row.worker),
      count(row.num_accepting + row.num_waiting), count(row.num_running),
      row.oldest_seconds === null ? "–" : seconds(row.oldest_seconds), row.loss ?? "",
    ]),
    { empty: "No model is in training.", note: others(models.num_left_out) },
  );
  table(
    at("samples"),
    [["Tenant"], ["Base model", "more"], ["Requests", "number"], ["Oldest", "number more"], ["Sequences running", "number"],
      ["waiting", "number"]],
    samples.map((row) => [
      row.tenant, row.base_model, count(row.num_requests), seconds(row.oldest_seconds),
      count(row.num_running_sequences), count(row.num_waiting_sequences),
    ]),
    { empty: "Nothing is sampled." },
  );
}

function showTenants({ tenants, totals, viewer }) {
  const cells = (row) => [
    count(row.num_sessions), count(row.num_waiting), count(row.num_running), count(row.num_samples),
    rate(row.tokens_per_second.trained), rate(row.tokens_per_second.sampled), percent(row.engine_share, 1),
    bytes(row.held_bytes), count(row.num_checkpoints), bytes(row.checkpoint_bytes),
  ];
  const rows = tenants.map((row) => [row.is_viewer ? `${row.tenant} (you)` : row.tenant, ...cells(row)]);
  const note = viewer.is_operator
    ? "A tenant is named by the beginning of its key's digest."
    : "Names of other tenants are for the holder of the server's first key.";
  table(
    at("tenant-rows"),
    [["Tenant"], ["Sessions", "number"], ["Wait", "number"], ["Run", "number"], ["Samples", "number more"],
      ["Trained/s", "number more"], ["Sampled/s", "number more"], ["Workers' time", "number"], ["Held", "number more"],
      ["Checkpoints", "number more"], ["Size", "number more"]],
    [...rows, ["all", ...cells(totals)]],
    { note },
  );
}

function showSessions({ sessions }) {
  table(
    at("session-rows"),
    [["Session", "id"], ["Name"], ["Tenant", "more"], ["SDK", "more"], ["Last heard of", "number"],
      ["Models", "number more"], ["Samplers", "number more"]],
    sessions.listed.map((row) => [
      row.session_id, row.name ?? "", row.tenant, row.sdk_version ?? "", `${seconds(row.silent_seconds)} ago`,
      count(row.num_models), count(row.num_samplers),
    ]),
    { empty: "Nobody has a session.", note: others(sessions.num_left_out) },
  );
}

function showWorkers({ workers, base_models: baseModels, viewer }) {
  table(
    at("worker-rows"),
    [["Name"], ["Role", "more"], ["State"], ["Models", "number more"], ["Weights", "number more"], ["Commands", "number more"],
      ["Tokens", "number more"], ["Busy", "number"], ["Memory", "number"], ["GPU", "number more"], ["Losses", "number"]],
    workers.map((row) => [
      row.name, [row.trains ? "trains" : "", row.samples ? "samples" : ""].filter(Boolean).join(", "), stateOfWorker(row),
      count(row.num_models), count(row.num_snapshots), count(row.num_commands), count(row.num_tokens),
      row.utilization === null ? "–" : percent(row.utilization, 1), bytes(row.memory_bytes), gpuText(row.device_memory),
      count(row.num_losses),
    ]),
    { note: "Weights are those published for sampling. Busy: the share of the last seconds that its turns took." },
  );
  table(
    at("worker-work"),
    [["Worker"], ["Node", "more"], ["Device", "more"], ["Running"], ["Last loss"]],
    workers.map((row) => [
      row.name, none(row.node), none(row.computes_on, "not up yet"), nowText(row), lossText(row.last_loss, viewer),
    ]),
  );
  table(
    at("base-models"),
    [["Name"], ["Kind", "more"], ["Context", "number"], ["Rank at most", "number more"], ["Models", "number"], ["Samplers", "number more"]],
    baseModels.map((row) => [
      row.name, row.architecture, count(row.max_context_tokens), count(row.max_lora_rank), count(row.num_models),
      count(row.num_samplers),
    ]),
  );
  table(
    at("caches"),
    [["Worker"], ["Base model", "more"], ["Used", "number"], ["Allocated", "number more"], ["Maximum", "number"],
      ["Sequences running", "number"], ["waiting", "number"]],
    workers.flatMap(({ name, caches }) => (caches ?? []).map((row) => [
      name, row.base_model, bytes(row.used_bytes), bytes(row.bytes), bytes(row.max_bytes),
      count(row.num_running_sequences), count(row.num_waiting_sequences),
    ])),
    { empty: emptyText(workers, "caches", "Nothing has been sampled since they started.") },
  );
  table(
    at("turns"),
    [["Worker"], ["Kind"], ["Turns", "number"], ["Time", "number"], ["Each", "number"]],
    workers.flatMap(({ name, turns }) => (turns ?? []).map((row) => [
      name, TURNS[row.kind], count(row.number), seconds(row.seconds),
      row.number ? seconds(row.seconds / row.number) : "–",
    ])),
    { empty: emptyText(workers, "turns", "None.") },
  );
}

function stateOfWorker({ state, up_seconds: upSeconds }) {
  return state === "up" ? `up ${seconds(upSeconds)}` : state;
}

function gpuText(memory) {
  return memory === null ? "–" : `${bytes(memory.used_bytes)} of ${bytes(memory.total_bytes)}`;
}

function lossText(loss, viewer) {
  if (loss === null) return "none";
  const reason = loss.reason ?? (viewer.is_operator ? "" : "told to the holder of the first key");
  return `${seconds(loss.seconds_ago)} ago: ${reason}`;
}

function emptyText(workers, name, text) {
  return workers.every((worker) => worker[name] === null) ? "Not known yet." : text;
}

function nowText({ turn, status_age_seconds: age, silent_seconds: silent, is_up: isUp }) {
  if (!isUp) return "nothing";
  if (age === null) return silent === null ? "not known yet" : `not responding for ${seconds(silent)}`;
  if (turn === null) return "nothing: waiting for requests";
  const parts = turn.running.map((one) => {
    const whose = one.tenant === null ? "of another tenant" : `of ${one.tenant}`;
    return `${one.command} ${one.model_id === null ? "" : `on ${one.model_id} `}${whose}`;
  });
  const left = turn.num_running - parts.length;
  const rest = left > 0 && turn.kind !== "sample" ? ` and ${count(left)} more` : "";
  return `${TURNS[turn.kind]} for ${seconds(turn.seconds)}: ${parts.join("; ")}${rest}`;
}

function showRequests({ routes, window_seconds: windowSeconds }) {
  at("window").textContent =
    `Of the last ${seconds(windowSeconds)}, the newest 1,000 of each route, of all tenants. The time is until the answer ` +
    "begins: of retrieve_future until the result is there, of a streamed answer until its first tokens.";
  table(
    at("routes"),
    [["Route", "id"], ["Answers", "number"], ["Median", "number"], ["95 of 100", "number more"], ["Refused (4xx)", "number more"],
      ["Failed (5xx)", "number"]],
    (routes ?? []).map((row) => [
      row.route, count(row.number), seconds(row.median_seconds), seconds(row.p95_seconds), count(row.num_refused),
      count(row.num_failed),
    ]),
    { empty: routes === null ? "Not known yet." : "None." },
  );
}

function showStorage({ journal, disk, checkpoints, server, servers }) {
  const rows = [
    ["State folder", none(disk.folder, "told to the holder of the first key")],
    ["Disk", `${bytes(disk.free_bytes)} free of ${bytes(disk.bytes)}`],
    ["Database", disk.database_bytes === null ? "not in the state folder" : bytes(disk.database_bytes)],
    ["Requests held in memory", `${bytes(server.held_bytes)} of ${bytes(server.max_held_bytes)}`],
    ["Results kept", count(server.draining.num_results_kept)],
  ];
  for (const row of servers ?? []) {
    const state = `${row.is_this ? ", this one" : ""}${row.is_draining ? ", draining" : ""}`;
    rows.push([
      `Server ${row.url ?? ""}`,
      `${plural(row.num_sessions, "session")}, heard of ${seconds(row.silent_seconds)} ago${state}`,
    ]);
  }
  if (journal === null) {
    rows.push(["Journal", "off"]);
  } else {
    const last = journal.last_commit_seconds_ago;
    const failing = journal.failure === null ? "" : `${journal.failure} (for ${seconds(journal.failing_seconds)})`;
    rows.push(
      ["Journal, last written", last === null ? "nothing yet" : `${seconds(last)} ago`],
      ["Journal, failure", failing || "none"],
      ["Journal, to be written", `${plural(journal.num_waiting, "entry", "entries")}, ${bytes(journal.waiting_bytes)}`],
      ["Journal, kept for a restart", `${plural(journal.num_kept_requests, "request")}, ${bytes(journal.kept_bytes)}`],
    );
    for (const [name, size] of Object.entries(journal.folder_bytes ?? {})) {
      rows.push([`Folder ${name}/`, size === null ? "too many files to count" : bytes(size)]);
    }
  }
  facts(at("storage-facts"), rows);
  table(
    at("checkpoints"),
    [["Path", "id"], ["Tenant", "more"], ["Base model", "more"], ["Kind"], ["Size", "number"], ["Saved", "number"], ["For", "more"]],
    (checkpoints.listed ?? []).map((row) => [
      row.path, row.tenant, row.base_model, KINDS[row.kind] ?? row.kind, bytes(row.bytes),
      `${seconds(row.seconds_ago)} ago`, row.is_public ? "everybody" : "its tenant",
    ]),
    { empty: checkpoints.listed === null ? "Not known yet." : "None has been saved." },
  );
  facts(at("settings-facts"), [
    ["version", server.version],
    ["python", server.python],
    ["process", none(server.process_id, "told to the holder of the first key")],
    ...Object.entries(server.settings).map(([name, value]) => [name, setting(name, value)]),
  ]);
}

function setting(name, value) {
  if (name.endsWith("_bytes")) return bytes(value);
  if (name.endsWith("_seconds")) return seconds(value);
  return typeof value === "number" ? count(value) : String(value);
}
