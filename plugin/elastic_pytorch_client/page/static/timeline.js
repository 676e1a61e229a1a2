// A job's timeline: workers, rounds, loss, speed, interruptions and events on one axis.

import { parameter, setParameter } from "./address.js";
import { card, dataTable, h, s, timeOfDay } from "./dom.js";

const LEFT = 84, RIGHT = 26, TOP = 14, ROW = 70, GAP = 18, AXIS = 24;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
  86400, 172800, 604800, 2592000, 31536000];
// with their seconds, as in the address
const RANGES = [["all", ""], ["1 h", "3600"], ["10 min", "600"]];
const PHASES = ["detection", "stop", "wait", "prepare", "start", "init", "first step"];
const LEGEND = [["group", "workers that train, with the number of their round"],
  ["wanted", "workers wanted"], ["interruption", "training stands still"],
  ["event", "event"], ["event warning", "warning"]];
const HINT = "Point at a time to read its values.";

export class Timeline {
  constructor(place) {
    this.picture = h("div", { class: "picture" });
    this.values = h("p", { class: "small" }, HINT);
    this.buttons = RANGES.map(([name, seconds]) =>
      h("button", { class: "chip", click: () => {
        setParameter("range", seconds);
        this.paint();
      } }, name));
    const range = h("span", { class: "chips", role: "group", "aria-label": "Range of time" },
      this.buttons);
    const legend = LEGEND.map(([mark, words]) => h("span", {}, h("i", { class: mark }), words));
    place.replaceChildren(
      card(["Timeline", range], this.picture, this.values, h("p", { class: "legend" }, legend)));
    this.observer = new ResizeObserver(() => this.paint());
    this.observer.observe(this.picture);
  }

  stop() {
    this.observer.disconnect();
  }

  draw(data) {
    this.data = data;
    this.paint();
  }

  paint() {
    const width = this.picture.clientWidth;
    if (!this.data || !width) return;
    const [, range] = RANGES.find(([, seconds]) => seconds === parameter("range")) ?? RANGES[0];
    this.buttons.forEach((button, i) =>
      button.setAttribute("aria-pressed", String(RANGES[i][1] === range)));
    this.picture.replaceChildren(picture(this.data, width, Number(range) || Infinity, (time) => {
      this.values.textContent = time === null ? HINT : valuesAt(this.data, time);
    }));
  }
}

function picture(data, width, range, point) {
  const end = data.end, begin = Math.max(data.begin, end - range), right = width - RIGHT;
  const lines = [["loss", data.losses], ["steps/s", data.speeds]]
    .filter(([, points]) => points.length > 1);
  const base = TOP + ROW, eventsAt = base + lines.length * (ROW + GAP) + GAP,
    bottom = eventsAt + 10, height = bottom + AXIS;
  const x = (time) => LEFT + (time - begin) / (end - begin) * (right - LEFT);
  const seen = (time) => x(Math.min(end, Math.max(begin, time)));
  const within = (time) => time >= begin && time <= end;
  const words = `${data.sizes.length} sizes of the group, `
    + `${data.interruptions.length} interruptions, ${data.events.length} events`;
  const svg = s("svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, class: "timeline", role: "img",
      "aria-label": `Timeline of the job: ${words}` });
  const row = (name, low, high, top) => svg.append(
    s("text", { class: "tick", x: 0, y: top + 4 }, name),
    s("line", { class: "base", x1: LEFT, x2: right, y1: top + ROW, y2: top + ROW }),
    ...[[high, top + 4], [low, top + ROW + 4]].map(([value, y]) =>
      s("text", { class: "tick", x: LEFT - 8, y, "text-anchor": "end" }, short(value))));

  const step = STEPS.find((each) => each >= (end - begin) / Math.max(2, Math.floor(width / 110)))
    ?? STEPS.at(-1);
  const offset = new Date(begin * 1000).getTimezoneOffset() * 60;
  for (let at = Math.ceil((begin - offset) / step) * step + offset; at <= end; at += step) {
    svg.append(s("line", { class: "grid", x1: x(at), x2: x(at), y1: 4, y2: bottom }),
      s("text", { class: "tick", x: x(at), y: bottom + 15, "text-anchor": "middle" },
        tick(at, step)));
  }

  const most = Math.max(1, data.wanted, ...data.sizes.map((size) => size.workers));
  const y = (workers) => base - workers / most * ROW;
  row("workers", 0, most, TOP);
  data.sizes.forEach((size, i) => {
    const until = data.sizes[i + 1]?.at ?? end;
    if (until < begin || !size.workers) return;
    const from = seen(size.at), span = seen(until) - from;
    svg.append(s("rect", { class: "group", x: from, width: Math.max(1, span - 1),
      y: y(size.workers), height: base - y(size.workers) }));
    if (span > 9 * String(size.round).length + 8)
      svg.append(s("text", { class: "round", x: from + 4, y: base - 5 }, String(size.round)));
  });
  svg.append(
    s("line", { class: "wanted", x1: LEFT, x2: right, y1: y(data.wanted), y2: y(data.wanted) }));

  for (const each of data.interruptions.filter(
    (each) => each.count === 1 && each.ended !== null && within(each.ended))) {
    const from = seen(each.ended - each.seconds), to = Math.max(x(each.ended), from + 2);
    svg.append(
      s("rect", { class: "interruption", x: from, width: to - from, y: 4, height: bottom - 4 }));
  }

  const clip = s("svg",
    { x: LEFT, width: right - LEFT, height, viewBox: `${LEFT} 0 ${right - LEFT} ${height}` });
  lines.forEach(([name, points], i) => {
    const top = base + i * (ROW + GAP) + GAP,
      shown = points.filter((_, i) => (points[i + 1]?.[0] ?? end) >= begin)
        .map(([, value]) => value);
    const high = Math.max(...shown), low = name === "loss" ? Math.min(...shown) : 0;
    const place = ([at, value]) =>
      `${x(at).toFixed(1)},${(top + ROW * (1 - (value - low) / (high - low || 1))).toFixed(1)}`;
    row(name, low, high, top);
    clip.append(s("polyline", { class: "line", points: points.map(place).join(" ") }));
  });

  svg.append(clip, s("text", { class: "tick", x: 0, y: eventsAt + 4 }, "events"));
  for (const event of data.events.filter((event) => within(event.at))) {
    svg.append(s("circle",
      { class: event.warning ? "event warning" : "event", cx: x(event.at), cy: eventsAt, r: 4 },
      s("title", {}, `${timeOfDay(event.at)} ${event.reason}: ${event.note}`)));
  }

  const cursor = s("line", { class: "cursor", y1: 4, y2: bottom });
  const move = (event) => {
    const at = Math.min(right, Math.max(LEFT, event.clientX - svg.getBoundingClientRect().left));
    cursor.setAttribute("transform", `translate(${at})`);
    svg.append(cursor);
    point(begin + (at - LEFT) / (right - LEFT) * (end - begin));
  };
  for (const name of ["pointermove", "pointerdown"]) svg.addEventListener(name, move);
  svg.addEventListener("pointerleave", () => {
    cursor.remove();
    point(null);
  });
  return svg;
}

function valuesAt(data, time) {
  const before = ([at]) => at <= time, size = data.sizes.findLast((each) => each.at <= time);
  const stop = data.interruptions.find(
    (each) => each.ended - each.seconds <= time && time < each.ended);
  const loss = data.losses.findLast(before), speed = data.speeds.findLast(before);
  return [
    timeOfDay(time), stop ? `${stop.cause} stops the training for ${stop.seconds.toFixed(1)} s`
      : size?.workers ? `${size.workers} workers in round ${size.round}` : "no group trains",
    loss && `loss ${short(loss[1])}`, speed && `${short(speed[1])} steps/s`
  ].filter(Boolean).join(" · ");
}

function short(value) {
  return value.toLocaleString("en", { maximumSignificantDigits: 3 });
}

function tick(at, step) {
  const date = new Date(at * 1000);
  if (step >= 86400) return date.toLocaleDateString([], { month: "short", day: "numeric" });
  const parts = { hour: "2-digit", minute: "2-digit", hour12: false };
  return date.toLocaleTimeString([], step < 60 ? { ...parts, second: "2-digit" } : parts);
}

/** The interruptions, newest first, with phases on one scale; a row of several has their mean. */
export function drawInterruptions(all) {
  if (!all.length) return [];
  const longest = Math.max(...all.map((each) => each.seconds / each.count), 0.001);
  const used = PHASES.filter((phase) =>
    all.some((each) => each.phases.some(([name]) => name === phase)));
  const rows = [...all].reverse().map((each) => {
    const known = each.phases.length ? each.phases : [["", each.seconds]];
    const bars = known.map(([name, seconds]) => {
      const bar = h("span",
        { class: `phase p${PHASES.indexOf(name)}`,
          title: `${name || "phases are not known"} ${seconds.toFixed(2)} s` });
      bar.style.width = `${(seconds / each.count / longest * 100).toFixed(2)}%`;
      return bar;
    });
    const spoken = each.phases.map(([name, seconds]) => `${name} ${seconds.toFixed(1)} s`)
      .join(", ") || "phases are not known";
    return ["", each.ended === null ? "–" : timeOfDay(each.ended),
      each.count > 1 ? `${each.count} × ${each.cause}` : each.cause,
      each.before === null || each.after === null ? "" : `${each.before} → ${each.after}`,
      `${each.seconds.toFixed(1)} s`, String(each.stepsLost ?? ""),
      h("span", { class: "stack", role: "img", "aria-label": spoken }, bars)];
  });
  const legend = used.map((phase) =>
    h("span", {}, h("i", { class: `phase p${PHASES.indexOf(phase)}` }), phase));
  const heads = { Ended: "number", Cause: "", Workers: "number", Duration: "number",
    "Steps repeated": "number", Phases: "phases" };
  return card("Interruptions", dataTable("Interruptions", heads, rows),
    h("p", { class: "legend" }, legend));
}
