// One job: what it does, why not, its timeline, its workers, its log. Each part is drawn again only when its data have changed.

import { ask } from "./ask.js";
import { ago, card, dataTable, h, number, progressBar, sparkline, spell, stateMark, timeOfDay, workerBlocks } from "./dom.js";
import { LogView } from "./log.js";
import { Timeline, drawInterruptions } from "./timeline.js";

const REFRESH_MS = 10_000; // events and pods change without the job
const SETTLE_MS = 400;
const KNOWN_BY = ["state", "trouble", "workers", "blocks", "world", "interruptions", "note"]; // what the job's progress leaves as it is

export class JobView {
  /** @param place where it is drawn. @param close is called to leave it. */
  constructor(place, namespace, name, close) {
    this.namespace = namespace;
    this.name = name;
    this.path = `${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
    this.drawn = new Map(); // what each part shows, as JSON
    this.parts = Object.fromEntries(
      ["head", "error", "facts", "why", "cause", "timeline", "interruptions", "workers", "conditions", "events"].map(
        (part) => [part, h("div", { class: `part ${part}` })],
      ),
    );
    const back = h("button", { type: "button", class: "back", click: close, title: "Escape" }, "‹ Jobs");
    this.log = new LogView(this.path);
    this.timeline = new Timeline(this.parts.timeline);
    const p = this.parts;
    place.replaceChildren(h("div", { class: "backbar" }, back), p.head, p.error, p.facts, p.why, p.timeline, p.interruptions, p.cause, p.workers,
      this.log.element, p.conditions, p.events, this.manifest());
    place.tabIndex = -1;
    place.focus({ preventScroll: true });
    this.read();
    this.timer = setInterval(() => this.read(), REFRESH_MS);
  }

  stop() {
    this.stopped = true;
    clearInterval(this.timer);
    clearTimeout(this.soon);
    this.log.stop();
    this.timeline.stop();
  }

  /** Shows what has changed of the job; reads it again if that is more than its progress. */
  changed(rows) {
    const row = rows.find((each) => each.name === this.name && each.namespace === this.namespace);
    if (!row) return;
    const before = this.data?.row;
    if (this.data) {
      this.data.row = row;
      this.drawFacts(this.data);
    }
    if (before && KNOWN_BY.every((field) => JSON.stringify(before[field]) === JSON.stringify(row[field]))) return;
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.read(), SETTLE_MS);
  }

  drawFacts(data) {
    this.part("head", [data.row.name, data.row.namespace, data.row.state, data.row.tone, data.started, data.completed], () => head(data));
    this.part("facts", [data.row, data.size, data.group, data.metrics, data.checkpoint], () => facts(data));
  }

  async read() {
    if (this.reading) return;
    this.reading = true;
    const data = await ask(`jobs/${this.path}`);
    this.reading = false;
    if (this.stopped) return;
    this.part("error", data.error ?? "", (error) => (error ? [h("p", { class: "banner", role: "alert" }, error)] : []));
    if (data.error) return;
    this.data = data;
    this.drawFacts(data);
    this.part("why", [data.why, data.row.lost, data.row.tone], () => why(data));
    (data.row.tone === "bad" ? this.parts.timeline : this.parts.workers).before(this.parts.cause);
    this.part("cause", data.rootCause, (cause) => (cause ? rootCause(cause) : []));
    this.part("interruptions", data.timeline.interruptions, drawInterruptions);
    this.part("workers", data.workers, (workers) => this.workers(workers));
    this.part("conditions", data.conditions, conditions);
    this.part("events", data.timeline.events, events);
    this.timeline.draw(data.timeline);
    this.log.choose(data.workers);
    if (!this.marked) {
      this.marked = true;
      performance.mark("job-shown");
    }
  }

  part(name, data, draw) {
    const text = JSON.stringify(data);
    if (this.drawn.get(name) === text) return;
    this.drawn.set(name, text);
    this.parts[name].replaceChildren(...draw(data));
  }

  workers(workers) {
    const slow = workers.some((worker) => worker.slowdown);
    const rows = workers.map((worker) => h("tr", { class: worker.tone },
      h("td", { class: "number" }, worker.rank === null ? "–" : String(worker.rank)),
      h("td", { class: "number" }, String(worker.index)),
      h("td", {}, stateMark(worker.state, worker.tone),
        worker.stateSince ? h("span", { class: "quiet" }, ` for ${spell(Date.now() / 1000 - worker.stateSince)}`) : null),
      h("td", {}, h("code", {}, worker.name)),
      h("td", {}, worker.node ? h("code", {}, worker.node) : h("span", { class: "quiet" }, "no node yet")),
      slow ? h("td", {}, worker.slowdown ? h("span", { class: "note" }, `${worker.slowdown} × the median's work`) : "") : null,
      h("td", {}, h("button", { type: "button", class: "plain", "aria-label": `log of ${worker.name}`,
        click: () => this.log.show(worker.index, true) }, "log"))));
    const heads = ["Rank", "Index", "State", "Pod", "Node", ...(slow ? ["Slow"] : []), "Log"];
    return card("Workers", rows.length ? dataTable("Workers", heads, rows) : h("p", { class: "quiet" }, "There are no workers."));
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
  const times = completed && started ? `took ${spell(completed - started)}, ended ${ago(completed)} ago`
    : started ? `since ${timeOfDay(started)}` : "";
  return [h("h1", {}, row.name), h("p", { class: "under" }, stateMark(row.state, row.tone),
    h("span", { class: "quiet" }, row.namespace), h("span", { class: "quiet" }, times))];
}

function facts({ row, size, group, metrics, checkpoint }) {
  const fact = (title, value, ...below) => h("div", { class: "fact" }, h("dt", {}, title), h("dd", {}, h("b", {}, value || "–"), ...below));
  const small = (text) => (text ? h("span", { class: "small" }, text) : null);
  const far = row.fraction === null ? (row.step === null ? "" : `step ${number(row.step)}`) : `${Math.floor(row.fraction * 100)}%`;
  const steps = row.total ? `step ${number(row.step)} of ${number(row.total)}` : "";
  return [h("dl", { class: "facts" },
    fact("Progress", far, row.fraction === null ? null : progressBar(row.fraction, "progress"),
      small([steps, checkpoint === null ? "" : `checkpoint at ${number(checkpoint)}`].filter(Boolean).join(" · "))),
    fact("Time left", row.left, small(row.speed ? `${row.speed} steps/s` : "")),
    fact("Loss", row.loss, sparkline(row.losses, 150, 34), small(metrics.join(" · "))),
    fact("Workers", row.workers === "-" ? "" : row.workers, workerBlocks(row.blocks), small(`${group} · ${size}`)),
    fact("Goodput", row.goodput, small(row.lost ? `lost ${row.lost}` : "")),
    fact("Interruptions", String(row.interruptions), small(row.interruption)))];
}

function why({ why: said, row }) {
  const findings = said.findings.map((finding) => h("div", { class: "finding" }, h("p", {}, finding.what),
    ...finding.do.split("\n").filter(Boolean).map((line) => (line.startsWith("  ") ? command(line.trim()) : h("p", { class: "do" }, `→ ${line}`)))));
  const lost = row.lost ? h("p", { class: "quiet" }, `Since it began, the job lost ${row.lost} of its time.`) : null;
  return [h("section", { class: `card why ${said.well ? "good" : row.tone === "bad" ? "bad" : "busy"}`, "aria-label": "Why" },
    h("h2", {}, said.headline), findings, lost)];
}

function command(text) {
  const copy = h("button", { type: "button", class: "plain", click: async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "copied";
  } }, "copy");
  return h("div", { class: "command" }, h("code", {}, text), copy);
}

function rootCause(cause) {
  return card("Last failure", h("p", { class: "quiet" }, `${cause.where}, ${cause.how}`),
    h("pre", { class: "text trace", tabindex: 0 }, cause.message.trimEnd()));
}

function conditions(all) {
  const rows = all.map((condition) => h("tr", { class: condition.status === "True" ? "" : "quiet" },
    h("td", {}, `${{ True: "●", False: "○" }[condition.status] ?? "◐"} ${condition.type}`),
    h("td", {}, condition.reason), h("td", { class: "words" }, condition.message),
    h("td", { class: "number" }, condition.since === null ? "" : ago(condition.since))));
  return card("Conditions", dataTable("Conditions", ["Condition", "Reason", "Message", "Age"], rows));
}

function events(all) {
  if (!all.length) return card("Events", h("p", { class: "quiet" }, "There are none. Kubernetes keeps them for an hour."));
  const rows = [...all].reverse().map((event) => h("tr", {},
    h("td", { class: "number", title: timeOfDay(event.at) }, ago(event.at)),
    h("td", { class: event.warning ? "note" : "" }, event.reason), h("td", { class: "words" }, event.note)));
  return card("Events", dataTable("Events", ["Age", "Reason", "Message"], rows, "scroll"));
}
