// The page: the view, and the changes from the server.

import { readAddress } from "./address.js";
import { LOST } from "./ask.js";
import { number, withCode } from "./dom.js";
import { JobList } from "./jobs.js";
import { JobView } from "./job.js";
import { NodeList } from "./nodes.js";

const byId = (id) => document.getElementById(id);
const rows = new Map(); // of all jobs, by UID
const list = new JobList(rows, open);
let view = null;
let sent = false; // whether the first rows have come

function open(row) {
  location.hash = `#/${encodeURIComponent(row.namespace)}/${encodeURIComponent(row.name)}`;
}

/** Back to the jobs, filtered and sorted as they were. */
function close() {
  location.hash = byId("to-jobs").hash;
}

function route(event) {
  const { parts } = readAddress();
  view?.stop();
  view = null;
  const one = parts.length === 2 && parts[0] && parts[1];
  const nodes = parts.length === 1 && parts[0] === "nodes";
  if (one || nodes) {
    if (event && !byId("jobs").hidden) byId("to-jobs").hash = new URL(event.oldURL).hash;
  } else {
    byId("to-jobs").hash = "#/";
  }
  byId("jobs").hidden = Boolean(one) || nodes;
  byId("job").hidden = !one;
  byId("nodes").hidden = !nodes;
  byId("to-jobs").ariaCurrent = nodes ? null : "page";
  byId("to-nodes").ariaCurrent = nodes ? "page" : null;
  for (const id of ["job", "nodes"]) byId(id).replaceChildren();
  if (one || nodes) byId(one ? "job" : "nodes").focus({ preventScroll: true });
  if (nodes) {
    view = new NodeList(byId("nodes"));
    document.title = "Nodes";
  } else if (one) {
    view = new JobView(byId("job"), parts[0], parts[1], close);
    document.title = `${parts[1]} · Jobs`;
    window.scrollTo(0, 0);
  } else {
    document.title = "Jobs";
    list.draw();
    list.focus();
  }
}

function take(message) {
  const { rows: changed, removed, trouble, namespace } = JSON.parse(message.data);
  if (!sent) rows.clear(); // an earlier connection's
  for (const row of changed) rows.set(row.id, row);
  for (const id of removed) rows.delete(id);
  sent = true;
  warn(trouble && `What is shown may be old: ${trouble}`);
  summarize();
  list.know(namespace);
  view?.changed(changed);
}

function warn(text) {
  byId("trouble").hidden = !text;
  byId("trouble").replaceChildren(...withCode(text));
}

function summarize() {
  let training = 0, processes = 0, trouble = 0;
  for (const row of rows.values()) {
    training += row.world > 0 ? 1 : 0;
    processes += row.world;
    trouble += row.trouble >= 3 ? 1 : 0;
  }
  const parts = [`${number(rows.size)} ${rows.size === 1 ? "job" : "jobs"}`];
  if (training) parts.push(`${number(training)} training with ${number(processes)} `
    + (processes === 1 ? "process" : "processes"));
  if (trouble) parts.push(`${number(trouble)} in trouble`);
  byId("summary").textContent = parts.join(" · ");
}

function show(state, words) {
  byId("link").dataset.state = state;
  byId("link").textContent = words;
}

function listen() {
  const source = new EventSource("events");
  source.onopen = () => {
    sent = false;
    show("live", "live");
  };
  source.onmessage = take;
  source.onerror = () => {
    show("lost", "not connected");
    warn(`What is shown is old: ${LOST}`);
  };
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "/" && !typing && !view) {
    event.preventDefault();
    byId("filter").focus();
  } else if (event.key === "n" && !typing && !(event.ctrlKey || event.metaKey || event.altKey)) {
    location.hash = "#/nodes";
  } else if (event.key === "Escape" && view) {
    close();
  }
});
window.addEventListener("hashchange", route);
route();
listen();

// At last, because a browser may refuse storage, and then throws.
const theme = byId("theme");
theme.addEventListener("change", () => {
  document.documentElement.style.colorScheme = theme.value;
  localStorage.setItem("theme", theme.value);
});
theme.value = document.documentElement.style.colorScheme = localStorage.getItem("theme")
  ?? theme.value;
