// The table of jobs. Only rows in sight are elements, so that thousands cost as much as twenty.

import { parameter, setParameter } from "./address.js";
import { draw, h, markShown, number, progressBar, sparkline, spell, stateMark, withCode,
  workerBlocks } from "./dom.js";

const BEYOND = 6; // rows above and below what is in sight

/** Compares rows by a field: `loss`, or `-loss` for the largest first. Rows without it are last. */
function inOrder(order) {
  const field = order.replace("-", ""), sign = order.startsWith("-") ? -1 : 1;
  const key = (row) => (field === "name" ? row.name : parseFloat(row[field]));
  return (a, b) => {
    const [x, y] = [key(a), key(b)];
    return Number.isNaN(x) - Number.isNaN(y) || sign * compare(x, y) || compare(a.name, b.name)
      || compare(a.namespace, b.namespace);
  };
}

function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

export class JobList {
  /** @param rows of all jobs, by UID. @param open is called with the chosen row. */
  constructor(rows, open) {
    this.rows = rows;
    this.open = open;
    this.chosen = null; // the UID of the row that has the focus
    this.shown = [];
    this.elements = new Map(); // of the rows in sight, by UID
    [this.table, this.body, this.filter, this.namespaces, this.chips, this.none] = [
      "table", "rows", "filter", "namespace", "chips", "none"
    ].map((id) => document.getElementById(id));
    this.heads = [...document.querySelectorAll("[data-sort]")];
    this.table.addEventListener("scroll", () => this.draw(false), { passive: true });
    window.addEventListener("resize", () => this.draw(false));
    for (const control of [this.filter, this.namespaces]) {
      control.addEventListener("input", () => this.choose(control.id, control.value));
    }
    for (const head of this.heads) {
      // A second click reverses a column, or removes a chip.
      const { sort } = head.dataset,
        again = head.className ? "" : sort.startsWith("-") ? sort.slice(1) : `-${sort}`;
      head.addEventListener("click", () => this.choose("sort", this.order === sort ? again : sort));
    }
    this.filter.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        this.choose("filter", "");
        this.focus();
      } else if (event.key === "Enter" || event.key === "ArrowDown") {
        event.preventDefault();
        this.focus(true);
      }
    });
    this.body.addEventListener("keydown", (event) => this.key(event));
  }

  get order() {
    return parameter("sort") || "-trouble";
  }

  /** Puts a filter or an order into the address, and draws. */
  choose(name, text) {
    setParameter(name, text);
    this.table.scrollTop = 0;
    this.draw();
  }

  know(namespace) {
    this.namespace = namespace; // null: the whole cluster; undefined before the first message
    this.draw();
  }

  /** Draws with the next frame; without `changed`, only scrolls. */
  draw(changed = true) {
    this.changed ||= changed;
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (this.table.closest("[hidden]")) return;
      if (this.changed) this.select();
      this.changed = false;
      this.paint();
      if (this.rows.size) markShown("jobs-shown");
    });
  }

  focus(first = false) {
    requestAnimationFrame(() => {
      const place = this.shown.findIndex((row) => row.id === this.chosen);
      if (place >= 0 || first) this.go(Math.max(0, place));
    });
  }

  select() {
    const [filter, namespace, state] = ["filter", "namespace", "state"].map(parameter);
    if (this.filter.value !== filter) this.filter.value = filter;
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    const counts = new Map();
    const found = [];
    for (const row of this.rows.values()) {
      const text = `${row.namespace}/${row.name} ${row.state} ${row.note}`.toLowerCase();
      if (!words.every((word) => text.includes(word))
        || (namespace && row.namespace !== namespace)) continue;
      counts.set(row.state, (counts.get(row.state) ?? 0) + 1);
      if (!state || row.state === state) found.push(row);
    }
    this.shown = found.sort(inOrder(this.order));
    this.drawNamespaces(namespace);
    this.drawOrder();
    this.drawChips(counts, state);
    this.table.setAttribute("aria-rowcount", this.shown.length + 1);
    this.none.hidden = this.namespace === undefined || this.shown.length > 0;
    draw(this.none, [this.rows.size > 0, this.namespace], () => this.nothing());
  }

  nothing() {
    if (this.rows.size) return ["No job matches. ", h("a", { href: "#/" }, "Show all jobs")];
    return withCode(this.namespace === null
      ? "This cluster has no ElasticPyTorchJobs. Create one with `kubectl apply -f job.yaml`."
      : `The namespace ${this.namespace} has no ElasticPyTorchJobs. Create one with `
        + "`kubectl apply -f job.yaml`, or see those of all namespaces with `kubectl epj ui -A`.");
  }

  drawNamespaces(chosen) {
    const names = [...new Set([...this.rows.values()].map((row) => row.namespace)
      .concat(chosen || []))].sort();
    draw(this.namespaces, ["", ...names],
      (all) => all.map((name) => h("option", { value: name }, name || "all")));
    this.namespaces.value = chosen;
    this.namespaces.parentElement.hidden = names.length < 2;
  }

  drawOrder() {
    const column = (order) => order.replace("-", "");
    for (const head of this.heads) {
      const sorted = column(head.dataset.sort) === column(this.order);
      if (head.className) head.ariaPressed = String(sorted);
      else head.parentElement.ariaSort = !sorted ? null
        : this.order.startsWith("-") ? "descending" : "ascending";
    }
  }

  drawChips(counts, chosen) {
    const states = [...new Set([...counts.keys()].concat(chosen || []))].sort();
    draw(this.chips, [chosen, states.map((state) => [state, counts.get(state) ?? 0])],
      ([, all]) => all.map(([state, count]) => {
        const click = () => this.choose("state", chosen === state ? "" : state);
        return h("button",
          { class: "chip", "aria-pressed": String(chosen === state),
            "data-key": `state ${state}`, click },
          `${state} `, h("b", {}, number(count)));
      }));
  }

  paint() {
    const height = parseFloat(getComputedStyle(this.table).getPropertyValue("--row"));
    this.body.style.height = `${this.shown.length * height}px`; // before measuring the table
    const top = Math.max(0, this.table.scrollTop - this.body.offsetTop);
    const first = Math.max(0, Math.floor(top / height) - BEYOND);
    const last = Math.min(this.shown.length,
      Math.ceil((top + this.table.clientHeight) / height) + BEYOND);
    const wanted = new Map();
    for (let place = first; place < last; place++) {
      const row = this.shown[place];
      let element = this.elements.get(row.id);
      if (element?.row !== row) {
        const focused = element !== undefined && element === document.activeElement;
        const fresh = this.element(row);
        if (element) element.replaceWith(fresh);
        else this.body.append(fresh);
        element = fresh;
        this.elements.set(row.id, element);
        if (focused) element.focus({ preventScroll: true });
      }
      element.style.transform = `translateY(${place * height}px)`;
      element.setAttribute("aria-rowindex", place + 2);
      element.tabIndex = row.id === this.chosen || (place === first && !this.chosen) ? 0 : -1;
      wanted.set(row.id, element);
    }
    for (const [id, element] of this.elements) {
      if (wanted.has(id)) continue;
      element.remove();
      this.elements.delete(id);
    }
    const ordered = [...wanted.values()]; // screen readers read in the order of the elements
    if (ordered.some((element, i) => element !== this.body.children[i])) {
      const focused = ordered.find((element) => element === document.activeElement);
      this.body.replaceChildren(...ordered);
      focused?.focus({ preventScroll: true });
    }
    this.height = height;
  }

  element(row) {
    const cell = (name, ...children) =>
      h("span", { role: "gridcell", class: `cell ${name}` }, ...children);
    const line = (...children) => h("span", { class: "line" }, ...children);
    const small = (text) => h("span", { class: "small", title: text || null }, text);
    const far = row.fraction === null ? "" : `${Math.floor(row.fraction * 100)}%`;
    const steps = row.step === null ? ""
      : row.total ? `${number(row.step)} / ${number(row.total)}` : `step ${number(row.step)}`;
    const times = row.interruptions === 1 ? "1 interruption" : `${row.interruptions} interruptions`;
    const interrupted = row.interruptions
      ? [times, row.interruption].filter(Boolean).join(", ") : "";
    const note = row.note
      ? h("span", { class: `note ${interrupted ? "" : "two"}`, title: row.note }, row.note) : null;
    const last = interrupted
      ? h("span", { class: `small ${note ? "" : "two"}`, title: interrupted }, interrupted) : null;
    const element = h("div", {
        role: "row", class: `row ${row.tone}`, click: () => this.open(row),
        focus: () => { this.chosen = row.id; },
        "aria-label": `${row.name} in ${row.namespace}, ${row.state}`,
      },
      cell("who", line(h("b", { title: row.name }, row.name)),
        line(stateMark(row.state, row.tone), small(row.namespace))),
      cell("workers", line(row.workers === "-" ? h("span", { class: "quiet" }, "–") : row.workers),
        line(workerBlocks(row.blocks))),
      cell("far", line(far || "–", small(steps)),
        row.fraction === null ? null : progressBar(row.fraction, `progress of ${row.name}`)),
      cell("left", row.secondsLeft ? spell(row.secondsLeft) : "–"),
      cell("loss", line(row.loss || "–"), sparkline(row.losses, 96, 20)),
      cell("goodput", line(row.goodput || "–"),
        h("span", { class: "small two", title: row.lost || null }, row.lost)),
      cell("said", note, last,
        note || last ? null : h("span", { class: "small" }, "never interrupted")));
    element.row = row;
    return element;
  }

  key(event) {
    const place = this.shown.findIndex((row) => row.id === this.chosen);
    const page = Math.max(1, Math.floor(this.table.clientHeight / this.height) - 2);
    const moves = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page,
      Home: -Infinity, End: Infinity };
    if (event.key === "Enter" && place >= 0) this.open(this.shown[place]);
    else if (event.key in moves && !event.ctrlKey && !event.metaKey && !event.altKey)
      this.go(place + moves[event.key]);
    else return;
    event.preventDefault();
  }

  go(place) {
    const row = this.shown[Math.min(this.shown.length - 1, Math.max(0, place))];
    if (!row) return;
    this.chosen = row.id;
    const at = this.shown.indexOf(row) * this.height, head = this.body.offsetTop;
    if (at < this.table.scrollTop) this.table.scrollTop = at;
    else if (at + this.height + head > this.table.scrollTop + this.table.clientHeight) {
      this.table.scrollTop = at + this.height + head - this.table.clientHeight;
    }
    this.paint();
    this.elements.get(row.id)?.focus({ preventScroll: true });
  }
}
