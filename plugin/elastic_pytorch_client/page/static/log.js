// The end of a worker's log, read repeatedly while visible.

import { ask, Reader } from "./ask.js";
import { card, draw, h } from "./dom.js";

const REFRESH_MS = 3_000;

export class LogView {
  constructor(path) {
    this.path = path;
    this.index = null;
    this.select = h("select",
      { "aria-label": "Whose log", change: () => this.show(Number(this.select.value)) });
    this.search = h("input",
      { type: "search", placeholder: "Search", "aria-label": "Search the log",
        input: () => this.draw() });
    this.follow = h("input", { type: "checkbox", checked: true });
    this.text = h("pre", { class: "text log", tabindex: 0, "aria-label": "The end of the log" });
    const download = h("button", { class: "plain", click: () => this.download() },
      "download all");
    this.element = card(
      ["Log", this.select, this.search, h("label", {}, this.follow, " follow"), download],
      this.text);
    this.reader = new Reader("", REFRESH_MS, (data) => this.take(data),
      () => this.index !== null && this.follow.checked);
  }

  stop() {
    this.reader.stop();
  }

  /** Offers the workers; shows the first one's log if none is chosen. */
  choose(workers) {
    const names = new Map(workers.map((w) => [w.index,
      `${w.rank === null ? "no rank" : `rank ${w.rank}`} · index ${w.index} · ${w.name}`]));
    const text = JSON.stringify([...names]);
    if (text === this.offered) return;
    this.offered = text;
    this.pods = new Map(workers.map((w) => [w.index, w.name]));
    this.select.replaceChildren(
      ...[...names].map(([index, name]) => h("option", { value: index }, name)));
    if (names.size && !names.has(this.index)) this.show(names.keys().next().value);
    this.select.value = String(this.index);
    if (!names.size) draw(this.text, "", () => "There are no workers.");
  }

  show(index, intoView = false) {
    this.index = index;
    this.select.value = String(index);
    this.data = null;
    draw(this.text, null, () => "…");
    this.reader.read(`logs/${this.path}?index=${index}`);
    if (intoView) this.element.scrollIntoView({ block: "nearest" });
  }

  take(data) {
    this.data = data;
    this.draw();
  }

  draw() {
    if (!this.data) return;
    const atEnd = this.text.scrollTop + this.text.clientHeight >= this.text.scrollHeight - 30;
    draw(this.text, [this.search.value.toLowerCase(), this.data], found);
    if (atEnd) this.text.scrollTop = this.text.scrollHeight;
  }

  async download() {
    if (this.index === null) return;
    const pod = this.pods.get(this.index),
      data = await ask(`logs/${this.path}?index=${this.index}&whole=1`);
    if (data.error) {
      this.take(data);
      return;
    }
    const href = URL.createObjectURL(
      new Blob(data.lines.map((line) => `${line.at} ${line.text}\n`), { type: "text/plain" }));
    h("a", { href, download: `${pod}.log` }).click();
    setTimeout(() => URL.revokeObjectURL(href), 60_000);
  }
}

function found([searched, { error, lines = [] }]) {
  if (error) return h("span", { class: "note" }, error);
  if (!lines.length)
    return h("span", { class: "quiet" }, "This worker has no log yet, or its pod is gone.");
  const matches = lines.filter((line) => line.text.toLowerCase().includes(searched));
  if (!matches.length)
    return h("span", { class: "quiet" }, `None of the last ${lines.length} lines has this text.`);
  return matches.map((line) =>
    h("span", {}, h("time", { datetime: line.at }, clock(line.at)), `${line.text}\n`));
}

function clock(stamp) {
  const at = new Date(stamp);
  return Number.isNaN(at.getTime()) ? "" : `${at.toLocaleTimeString([], { hour12: false })}  `;
}
