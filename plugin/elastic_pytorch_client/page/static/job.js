// One job. Each part is drawn again only when its data have changed.

import { ask, Reader } from "./ask.js";
import { ago, card, dataTable, draw, h, markShown, number, progressBar, sparkline, spell, stateMark,
  timeOfDay, withCode, workerBlocks } from "./dom.js";
import { LogView } from "./log.js";
import { Timeline, drawInterruptions } from "./timeline.js";

const REFRESH_MS = 10_000; // events and pods change without the job
// A change of these is more than progress.
const KNOWN_BY = ["state", "trouble", "workers", "blocks", "world", "interruptions", "note"];

export class JobView {
  constructor(place, namespace, name, close) {
    this.namespace = namespace;
    this.name = name;
    this.path = `${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
    this.parts = {};
    const part = (name) => (this.parts[name] = h("div", { class: `part ${name}` }));
    const above = ["head", "error", "facts", "why", "timeline", "interruptions", "cause", "workers",
      "stacks"].map(part);
    const below = ["conditions", "events"].map(part);
    const back = h("button", { class: "back", click: close, title: "Escape" },
      "‹ Jobs");
    this.log = new LogView(this.path);
    this.timeline = new Timeline(this.parts.timeline);
    place.replaceChildren(h("div", { class: "backbar" }, back), ...above, this.log.element,
      ...below, this.manifest());
    place.classList.add("unread");
    this.place = place;
    this.reader = new Reader(`jobs/${this.path}`, REFRESH_MS, (data) => this.take(data));
    this.reader.read();
  }

  stop() {
    this.reader.stop();
    this.log.stop();
    this.timeline.stop();
  }

  /** Shows a change; reads the job again if it is more than progress. */
  changed(rows) {
    const row = rows.find((each) => each.name === this.name && each.namespace === this.namespace);
    if (!row) return;
    const before = this.data?.row;
    if (this.data) {
      this.data.row = row;
      this.drawFacts(this.data);
    }
    if (before && KNOWN_BY.every(
      (field) => JSON.stringify(before[field]) === JSON.stringify(row[field]))) return;
    this.reader.soon();
  }

  drawFacts(data) {
    this.part("head", [data.row.name, data.row.namespace, data.row.state, data.row.tone,
      data.started, data.completed], () => head(data));
    this.part("facts", [data.row, data.size, data.group, data.metrics, data.checkpoint],
      () => facts(data));
  }

  take(data) {
    this.part("error", data.error ?? "",
      (error) => (error ? h("p", { class: "banner", role: "alert" }, withCode(error)) : []));
    if (data.error) return;
    this.data = data;
    this.place.classList.remove("unread");
    this.drawFacts(data);
    this.part("why", [data.why, data.row.lost, data.row.tone], () => why(data));
    (data.row.tone === "bad" ? this.parts.timeline : this.parts.workers).before(this.parts.cause);
    this.part("cause", data.rootCause, (cause) => (cause ? rootCause(cause) : []));
    this.part("interruptions", data.timeline.interruptions, drawInterruptions);
    this.part("workers", [data.workers, data.stacks], () => this.workers(data));
    this.part("conditions", data.conditions, conditions);
    this.part("events", data.timeline.events, events);
    this.timeline.draw(data.timeline);
    this.log.choose(data.workers);
    markShown("job-shown");
  }

  part(name, data, children) {
    draw(this.parts[name], data, children);
  }

  async readStacks() {
    this.part("stacks", null,
      () => card("Stacks", h("p", { class: "quiet" }, "Asking each process for its stack …")));
    const data = await ask(`stacks/${this.path}`), at = timeOfDay(Date.now() / 1000);
    this.part("stacks", [data, at], () => card(
      ["Stacks", h("span", { class: "quiet" }, `of the main threads at ${at}`)], stacks(data)));
  }

  workers({ workers, stacks: offered }) {
    const slow = workers.some((worker) => worker.slowdown);
    const rows = workers.map((worker) => [
      worker.tone, worker.rank === null ? "–" : String(worker.rank), String(worker.index),
      [stateMark(worker.state, worker.tone),
        worker.stateSince ? h("span", { class: "quiet" }, ` for ${ago(worker.stateSince)}`) : null],
      h("code", {}, worker.name),
      worker.node ? h("code", {}, worker.node) : h("span", { class: "quiet" }, "no node yet"),
      ...(slow ? [worker.slowdown
        ? h("span", { class: "note" }, `${worker.slowdown} × the median's work`) : ""] : []),
      h("button",
        { class: "plain", "aria-label": `log of ${worker.name}`,
          click: () => this.log.show(worker.index, true) }, "log")]);
    const heads = { Rank: "number", Index: "number", State: "", Pod: "", Node: "",
      ...(slow ? { Slow: "" } : {}), Log: "" };
    const button = h("button", { class: "chip", click: () => this.readStacks() },
      "Read stacks");
    return card(offered && rows.length ? ["Workers", button] : "Workers",
      rows.length
        ? dataTable("Workers", heads, rows) : h("p", { class: "quiet" }, "There are no workers."));
  }

  manifest() {
    const text = h("pre", { class: "text", tabindex: 0 }, "…");
    const toggle = async (event) => {
      if (!event.target.open) return;
      const data = await ask(`manifests/${this.path}`);
      text.textContent = data.error ?? data.yaml;
    };
    return h("details", { class: "card", toggle }, h("summary", {}, "Manifest"), text);
  }
}

function head({ row, started, completed }) {
  const times = completed && started
    ? `took ${spell(completed - started)}, ended ${ago(completed)} ago`
    : started ? `since ${timeOfDay(started)}` : "";
  return [h("h1", {}, row.name), h("p", { class: "under" }, stateMark(row.state, row.tone),
    h("span", { class: "quiet" }, row.namespace), h("span", { class: "quiet" }, times))];
}

function facts({ row, size, group, metrics, checkpoint }) {
  const fact = (title, value, ...below) =>
    h("div", { class: "fact" },
      h("dt", {}, title), h("dd", {}, h("b", {}, value || "–"), ...below));
  const small = (text) => (text ? h("span", { class: "small" }, text) : null);
  const far = row.fraction === null ? (row.step === null ? "" : `step ${number(row.step)}`)
    : `${Math.floor(row.fraction * 100)}%`;
  const steps = row.total ? `step ${number(row.step)} of ${number(row.total)}` : "";
  return h("dl", { class: "facts" },
    fact("Progress", far, row.fraction === null ? null : progressBar(row.fraction, "progress"),
      small([steps, checkpoint === null ? "" : `checkpoint at ${number(checkpoint)}`]
        .filter(Boolean).join(" · "))),
    fact("Time left", row.secondsLeft ? spell(row.secondsLeft) : "",
      small(row.speed ? `${row.speed} steps/s` : "")),
    fact("Loss", row.loss, sparkline(row.losses, 150, 34), small(metrics.join(" · "))),
    fact("Workers", row.workers === "-" ? "" : row.workers, workerBlocks(row.blocks),
      small(`${group} · ${size}`)),
    fact("Goodput", row.goodput, small(row.lost ? `lost ${row.lost}` : "")),
    fact("Interruptions", String(row.interruptions), small(row.interruption)));
}

function why({ why: said, row }) {
  const findings = said.findings.map((finding) =>
    h("div", { class: "finding" }, h("p", {}, withCode(finding.what)),
      ...finding.do.split("\n").filter(Boolean).map((line) => (line.startsWith("  ")
        ? command(line.trim()) : h("p", { class: "do" }, "→ ", withCode(line))))));
  const lost = row.lost ? h("p", { class: "quiet" }, `Lost since the job began: ${row.lost}.`)
    : null;
  return h("section",
    { class: `card why ${said.well ? "good" : row.tone === "bad" ? "bad" : "busy"}`,
      "aria-label": "Why" },
    h("h2", {}, withCode(said.headline)), findings, lost);
}

function command(text) {
  const copy = h("button", { class: "plain", click: async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "copied";
  } }, "copy");
  return h("div", { class: "command" }, h("code", {}, text), copy);
}

function stacks({ error, groups = [] }) {
  if (!groups.length) return h("p", { class: "note" }, withCode(error ?? "No worker runs."));
  return groups.map((group) => [h("h3", {}, group.name, group.trouble ? `, ${group.trouble}` : "",
    group.waitedFor
      ? h("span", { class: "note" }, ", outside of the collective that the others wait in") : ""),
    group.stack ? h("pre", { class: "text", tabindex: 0 }, group.stack) : ""]);
}

function rootCause(cause) {
  return card("Last failure", h("p", { class: "quiet" }, cause.whereAndHow),
    h("pre", { class: "text trace", tabindex: 0 }, cause.message.trimEnd()));
}

function conditions(all) {
  const rows = all.map((condition) => [condition.status === "True" ? "" : "quiet",
    `${{ True: "●", False: "○" }[condition.status] ?? "◐"} ${condition.type}`,
    condition.reason, condition.message,
    condition.since === null ? "" : ago(condition.since)]);
  return card("Conditions",
    dataTable("Conditions", { Condition: "", Reason: "", Message: "words", Age: "number" }, rows));
}

function events(all) {
  if (!all.length)
    return card("Events",
      h("p", { class: "quiet" }, "There are none. Kubernetes keeps them for an hour."));
  const rows = [...all].reverse().map((event) => [
    "", h("span", { title: timeOfDay(event.at) }, ago(event.at)),
    h("span", { class: event.warning ? "note" : "" }, event.reason), event.note]);
  return card("Events",
    dataTable("Events", { Age: "number", Reason: "", Message: "words" }, rows, "scroll"));
}
