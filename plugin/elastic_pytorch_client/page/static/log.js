// The end of a worker's log, read again and again while it is looked at.

import { ask } from "./ask.js";
import { card, h } from "./dom.js";

const REFRESH_MS = 3_000;

export class LogView {
  /** @param path of the job, as it stands in addresses. */
  constructor(path) {
    this.path = path;
    this.index = null;
    this.select = h("select", { "aria-label": "Whose log", change: () => this.show(Number(this.select.value)) });
    this.follow = h("input", { type: "checkbox", checked: true });
    this.text = h("pre", { class: "text log", tabindex: 0, "aria-label": "The end of the log" });
    [this.element] = card(["Log", this.select, h("label", {}, this.follow, " follow")], this.text);
    this.timer = setInterval(() => this.follow.checked && !document.hidden && this.read(), REFRESH_MS);
  }

  stop() {
    clearInterval(this.timer);
    this.stopped = true;
  }

  /** Offers the workers that there are; shows the first one's log if none is chosen. */
  choose(workers) {
    const names = new Map(workers.map((w) => [w.index, `${w.rank === null ? "no rank" : `rank ${w.rank}`} · index ${w.index} · ${w.name}`]));
    const text = JSON.stringify([...names]);
    if (text === this.offered) return;
    this.offered = text;
    this.select.replaceChildren(...[...names].map(([index, name]) => h("option", { value: index }, name)));
    if (names.size && !names.has(this.index)) this.show(names.keys().next().value);
    this.select.value = String(this.index);
    if (!names.size) this.text.textContent = "There are no workers.";
  }

  /** Shows the log of the worker with an index. */
  show(index, intoView = false) {
    this.index = index;
    this.select.value = String(index);
    this.text.textContent = "…";
    this.read();
    if (intoView) this.element.scrollIntoView({ block: "nearest" });
  }

  async read() {
    if (this.index === null || this.reading) return;
    this.reading = true;
    const index = this.index;
    const data = await ask(`logs/${this.path}?index=${index}`);
    this.reading = false;
    if (this.stopped) return;
    if (index !== this.index) {
      this.read();
      return;
    }
    const atEnd = this.text.scrollTop + this.text.clientHeight >= this.text.scrollHeight - 30;
    const fresh = this.text.childElementCount === 0;
    const text = JSON.stringify(data);
    if (text === this.drawn && !fresh) return;
    this.drawn = text;
    const lines = data.error ? [h("span", { class: "note" }, data.error)] : data.lines.map((line) =>
      h("span", {}, h("time", { datetime: line.at }, clock(line.at)), `${line.text}\n`));
    this.text.replaceChildren(...(lines.length ? lines : [h("span", { class: "quiet" }, "This worker has no log yet, or its pod is gone.")]));
    if (atEnd || fresh) this.text.scrollTop = this.text.scrollHeight;
  }
}

function clock(stamp) {
  const at = new Date(stamp);
  return Number.isNaN(at.getTime()) ? "" : `${at.toLocaleTimeString([], { hour12: false })}  `;
}
