// The course of a job: one axis of time with its group and its rounds, loss and speed, what interrupted it, and its events.

import { card, h, s, spell, timeOfDay } from "./dom.js";

const LEFT = 74, RIGHT = 12, GROUP = 84, LINE = 34, MARKS = 18, AXIS = 24;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000, 31536000];
const RANGES = [["all", Infinity], ["1 h", 3600], ["10 min", 600]];
const PHASES = ["detection", "stop", "wait", "prepare", "start", "init", "first step"];

export class Course {
  /** @param place where it is drawn. */
  constructor(place) {
    this.range = Infinity;
    this.picture = h("div", { class: "picture" });
    this.buttons = RANGES.map(([name, seconds]) => h("button", { type: "button", class: "chip", click: () => {
      this.range = seconds;
      this.paint();
    } }, name));
    const [section] = card("Course", this.picture);
    section.firstChild.replaceWith(h("div", { class: "cardhead" }, h("h2", {}, "Course"),
      h("span", { class: "chips", role: "group", "aria-label": "Range of time" }, this.buttons)));
    place.replaceChildren(section);
    this.observer = new ResizeObserver(() => this.data && this.paint());
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
    this.buttons.forEach((button, i) => button.setAttribute("aria-pressed", RANGES[i][1] === this.range ? "true" : "false"));
    this.picture.replaceChildren(picture(this.data, width, this.range));
  }
}

function picture(data, width, range) {
  const end = data.end, begin = Math.max(data.begin, end - range);
  const lines = [["loss", data.losses], ["steps/s", data.speeds]].filter(([, points]) => points.length > 1);
  const marksTop = GROUP + lines.length * LINE + 4, axisTop = marksTop + MARKS;
  const height = axisTop + AXIS, right = width - RIGHT;
  const x = (time) => LEFT + (Math.min(end, Math.max(begin, time)) - begin) / (end - begin) * (right - LEFT);
  const within = (time) => time >= begin && time <= end;
  const label = `${data.sizes.length} sizes of the group, ${data.interruptions.length} interruptions, ${data.events.length} events`;
  const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "course", role: "img", "aria-label": `Course of the job: ${label}` });

  const step = STEPS.find((each) => each >= (end - begin) / Math.max(2, Math.floor(width / 110))) ?? STEPS.at(-1);
  const offset = new Date(begin * 1000).getTimezoneOffset() * 60;
  for (let at = Math.ceil((begin - offset) / step) * step + offset; at <= end; at += step) {
    svg.append(s("line", { class: "grid", x1: x(at), x2: x(at), y1: 4, y2: axisTop }),
      s("text", { class: "tick", x: x(at), y: axisTop + 15, "text-anchor": "middle" }, tick(at, step)));
  }

  const most = Math.max(1, data.wanted, ...data.sizes.map((size) => size.workers));
  const y = (workers) => GROUP - workers / most * (GROUP - 14);
  svg.append(s("line", { class: "wanted", x1: LEFT, x2: right, y1: y(data.wanted), y2: y(data.wanted) },
    s("title", {}, `${data.wanted} workers are wanted`)));
  svg.append(s("line", { class: "base", x1: LEFT, x2: right, y1: GROUP, y2: GROUP }));
  for (const value of new Set([most, data.wanted, 0])) {
    svg.append(s("text", { class: "tick", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, String(value)));
  }
  svg.append(s("text", { class: "tick name", x: 0, y: y(most) + 4 }, "group"));
  data.sizes.forEach((size, i) => {
    const until = data.sizes[i + 1]?.at ?? end;
    if (until < begin || !size.workers) return;
    const from = x(size.at), words = `${size.workers} workers in round ${size.round}, from ${timeOfDay(size.at)}, for ${spell(until - size.at)}`;
    svg.append(s("rect", { class: "group", x: from, width: Math.max(1, x(until) - from - 1), y: y(size.workers),
      height: GROUP - y(size.workers) }, s("title", {}, words)));
    if (x(until) - from > 9 * String(size.round).length + 8) svg.append(s("text", { class: "round", x: from + 4, y: GROUP - 5 }, String(size.round)));
  });

  for (const each of data.interruptions.filter((each) => each.count === 1 && each.ended !== null && within(each.ended))) {
    const from = x(each.ended - each.seconds), to = Math.max(x(each.ended), from + 2);
    svg.append(s("rect", { class: "interruption", x: from, width: to - from, y: 4, height: axisTop - 4 },
      s("title", {}, `${each.cause}: ${each.seconds.toFixed(1)} s until ${timeOfDay(each.ended)}`)));
  }

  svg.append(s("text", { class: "tick name", x: 0, y: marksTop + 11 }, "events"));
  for (const event of data.events.filter((event) => within(event.at))) {
    svg.append(s("circle", { class: event.warning ? "event warning" : "event", cx: x(event.at), cy: marksTop + 7, r: 4 },
      s("title", {}, `${timeOfDay(event.at)} ${event.reason}: ${event.note}`)));
  }

  lines.forEach(([name, points], i) => {
    const top = GROUP + i * LINE + 8, low = Math.min(...points.map(([, value]) => value)), high = Math.max(...points.map(([, value]) => value));
    const place = ([at, value]) => `${x(at).toFixed(1)},${(top + (LINE - 10) * (1 - (value - low) / (high - low || 1))).toFixed(1)}`;
    const [, last] = points.at(-1), words = `${name} from ${points[0][1].toPrecision(3)} to ${last.toPrecision(3)}`;
    svg.append(s("text", { class: "tick name", x: 0, y: top + 15 }, name),
      s("text", { class: "tick", x: LEFT - 8, y: top + 15, "text-anchor": "end" }, last.toPrecision(3)),
      s("polyline", { class: "line", points: points.filter(([at]) => within(at)).map(place).join(" ") }, s("title", {}, words)));
  });
  return svg;
}

function tick(at, step) {
  const date = new Date(at * 1000);
  if (step >= 86400) return date.toLocaleDateString([], { month: "short", day: "numeric" });
  const parts = { hour: "2-digit", minute: "2-digit", hour12: false };
  return date.toLocaleTimeString([], step < 60 ? { ...parts, second: "2-digit" } : parts);
}

/** The interruptions, the newest first, each with its phases on one scale; of several in one row, their mean. */
export function drawInterruptions(all) {
  if (!all.length) return [];
  const longest = Math.max(...all.map((each) => each.seconds / each.count), 0.001);
  const used = PHASES.filter((phase) => all.some((each) => each.phases.some(([name]) => name === phase)));
  const rows = [...all].reverse().map((each) => {
    const known = each.phases.length ? each.phases : [["", each.seconds]];
    const bars = known.map(([name, seconds]) => {
      const bar = h("span", { class: `phase p${PHASES.indexOf(name)}`, title: `${name || "phases are not known"} ${seconds.toFixed(2)} s` });
      bar.style.width = `${(seconds / each.count / longest * 100).toFixed(2)}%`;
      return bar;
    });
    const spoken = each.phases.map(([name, seconds]) => `${name} ${seconds.toFixed(1)} s`).join(", ") || "phases are not known";
    const lost = each.stepsLost ? `${each.stepsLost} ${each.stepsLost === 1 ? "step" : "steps"} again` : "";
    return h("tr", {}, h("td", { class: "number" }, each.ended === null ? "–" : timeOfDay(each.ended)), h("td", {}, each.count > 1 ? `${each.count} × ${each.cause}` : each.cause),
      h("td", { class: "number" }, each.before === null || each.after === null ? "" : `${each.before} → ${each.after}`),
      h("td", { class: "number" }, `${each.seconds.toFixed(1)} s`), h("td", { class: "number" }, lost),
      h("td", { class: "phases" }, h("span", { class: "stack", role: "img", "aria-label": spoken }, bars)));
  });
  const legend = h("p", { class: "legend" }, used.map((phase) => h("span", {}, h("i", { class: `phase p${PHASES.indexOf(phase)}` }), phase)));
  const heads = ["Over at", "Cause", "Workers", "Took", "Repeated", "Phases"].map((text) => h("th", { scope: "col" }, text));
  return card("Interruptions", h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows))), legend);
}
