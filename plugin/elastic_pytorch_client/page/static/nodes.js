// The troubled nodes: what is known of each, and from which job.

import { Reader } from "./ask.js";
import { ago, card, dataTable, draw, h, markShown, spell, stateMark } from "./dom.js";

const REFRESH_MS = 5_000;
const SOURCES = "A status has the last failure of its job. Of a job with more than 128 workers "
  + "it lists those that do not train, and some of the others.";
const NOT_LISTED = "You may not list nodes, or they do not answer: which are not ready, cordoned "
  + "or about to end is not known here.";

export class NodeList {
  constructor(place) {
    this.list = h("div", {});
    this.words = h("p", { class: "quiet small" });
    place.replaceChildren(this.list, this.words);
    this.reader = new Reader("nodes", REFRESH_MS, (data) => this.take(data));
    this.reader.read();
  }

  stop() {
    this.reader.stop();
  }

  changed() {
    this.reader.soon();
  }

  take(data) {
    draw(this.list, data,
      () => (data.error ? h("p", { class: "banner", role: "alert" }, data.error) : table(data)));
    for (const time of this.list.querySelectorAll("[data-at]"))
      time.textContent = when(Number(time.dataset.at));
    this.words.textContent = data.error ? ""
      : [rest(data), data.listed ? "" : NOT_LISTED, SOURCES].filter(Boolean).join(" ");
    markShown("nodes-shown");
  }
}

function table(data) {
  if (!data.nodes.length)
    return card("Nodes",
      h("p", { class: "quiet" }, "Nothing is known to be the matter with any node."));
  const rows = data.nodes.map((node) => [
    node.tone, [h("code", {}, node.name), stateMark(node.state, node.tone)],
    [h("span", {},
      node.workers ? `${node.workers} ${node.workers === 1 ? "worker" : "workers"}` : "no workers"),
      h("span", { class: "small" },
        node.jobs.join(", ") + (node.moreJobs ? ` and ${node.moreJobs} more` : ""))],
    h("ul", {}, node.findings.map((finding) => item(node, finding)),
      node.moreFindings ? h("li", { class: "quiet" }, `and ${node.moreFindings} more`) : null)]);
  const heads = { Node: "node", "Workers now": "here", "What is known": "words" };
  return card("Nodes in trouble",
    dataTable("Nodes in trouble, the worst first", heads, rows, "nodes"));
}

function item(node, finding) {
  const [namespace, name] = finding.job ?? [];
  const link = finding.job
    ? h("a", { href: `#/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`,
      "data-key": `${node.name}/${namespace}/${name}/${finding.what}`,
      "aria-label": `job ${name} in ${namespace}` }, name) : null;
  return h("li", {}, link, link ? " " : null, finding.what,
    finding.at === null ? null
      : h("span", { class: "quiet", "data-at": finding.at }, when(finding.at)));
}

function when(at) {
  const now = Date.now() / 1000;
  return at > now + 1 ? `, in ${spell(at - now)}` : `, ${ago(at)} ago`;
}

function rest(data) {
  const more = data.more ? `${data.more} more nodes are in trouble. ` : "";
  return more + (data.well === 1 ? "1 other node has workers."
    : `${data.well} other nodes have workers.`);
}
