// Elements from data. Texts become text nodes, so that a tenant's are never read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. Functions listen to the event of their name; null and false are left out. */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function s(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

const drawn = new WeakMap(); // what elements show, as JSON

/** Fills an element from data, unless it shows them already. What has a key keeps the focus. */
export function draw(element, data, children) {
  const text = JSON.stringify(data), key = document.activeElement?.dataset.key;
  if (drawn.get(element) === text) return;
  drawn.set(element, text);
  element.replaceChildren(...[children(data)].flat(Infinity));
  if (key)
    [...element.querySelectorAll("[data-key]")].find((each) => each.dataset.key === key)
      ?.focus({ preventScroll: true });
}

/** Marks for measurements when something is first shown. */
export function markShown(name) {
  if (!performance.getEntriesByName(name).length) performance.mark(name);
}

export function card(title, ...children) {
  const [name, ...beside] = [title].flat();
  return h("section", { class: "card", "aria-label": name },
    h("div", { class: "cardhead" }, h("h2", {}, name), beside), children);
}

/** A table that scrolls if too wide. Heads have their cells' class; rows, their class first. */
export function dataTable(label, heads, rows, more = "") {
  const th = (text) => h("th", { scope: "col" }, text), classes = Object.values(heads);
  const tr = ([tone, ...cells]) =>
    h("tr", { class: tone }, cells.map((cell, i) => h("td", { class: classes[i] }, cell)));
  return h("div", { class: `wide ${more}`, role: "group", "aria-label": label, tabindex: 0 },
    h("table", { "aria-label": label },
      h("thead", {}, h("tr", {}, Object.keys(heads).map(th))), h("tbody", {}, rows.map(tr))));
}

/** Numbers as a line between their extremes; null if they are too few. */
export function sparkline(values, width, height) {
  if (values.length < 2) return null;
  const low = Math.min(...values), span = Math.max(...values) - low || 1;
  const x = (i) => ((i / (values.length - 1)) * (width - 4) + 2).toFixed(1);
  const y = (value) => (height - 2 - ((value - low) / span) * (height - 4)).toFixed(1);
  const points = values.map((value, i) => `${x(i)},${y(value)}`);
  const last = points.at(-1).split(",");
  return s("svg",
    { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    s("polyline", { points: points.join(" ") }), s("circle", { cx: last[0], cy: last[1], r: 1.8 }));
}

export function progressBar(fraction, label) {
  const bar = h("span",
    { class: "bar", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100,
      "aria-label": label, "aria-valuenow": Math.round(fraction * 100) }, h("span"));
  bar.firstChild.style.width = `${(fraction * 100).toFixed(1)}%`;
  return bar;
}

/** A state with a mark that needs no colours. */
export function stateMark(state, tone) {
  const mark = { good: "●", busy: "◐", bad: "✕", quiet: "○" }[tone] ?? "○";
  return h("span", { class: `state ${tone}` },
    h("span", { "aria-hidden": "true" }, mark), ` ${state}`);
}

/** A block for each worker; null if there are none. */
export function workerBlocks(blocks) {
  if (!blocks.length) return null;
  const marks = blocks.map(([tone, state]) => h("i", { class: tone, title: state }));
  return h("span",
    { class: blocks.length > 12 ? "blocks many" : "blocks", role: "img",
      "aria-label": blocks.map(([, state]) => state).join(", ") }, marks);
}

/** A text whose parts in backticks are code. */
export function withCode(text) {
  return text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
}

export function number(value) {
  return value.toLocaleString("en");
}

export function ago(seconds) {
  return spell(Date.now() / 1000 - seconds);
}

/** A duration in two units. */
export function spell(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  for (const [unit, size, smaller, small] of [
    ["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]
  ]) {
    if (whole < size) continue;
    const rest = Math.floor((whole % size) / small);
    return rest ? `${Math.floor(whole / size)} ${unit} ${rest} ${smaller}`
      : `${Math.floor(whole / size)} ${unit}`;
  }
  return `${whole} s`;
}

/** The time of day of a time, with the date if it is not today's. */
export function timeOfDay(seconds) {
  const at = new Date(seconds * 1000), time = at.toLocaleTimeString([], { hour12: false });
  return at.toDateString() === new Date().toDateString() ? time
    : `${at.toLocaleDateString()} ${time}`;
}
