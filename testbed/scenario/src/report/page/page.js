// What all parts of the page use: the record, elements, scales; the head, the steps, and what is where.

const run = JSON.parse(document.getElementById("run").textContent);
const CLASSES = ["icp", "gold", "silver", "bronze"];
const SIGNS = { passed: "✓", warned: "!", failed: "✕", broken: "✕", skipped: "–", running: "…" };

/** Seconds of the run at a time of the record. */
function sec(ns) {
  return Math.max(0, (ns - run.began_ns) / 1e9);
}

/** Seconds that the run took, or took so far. */
const LENGTH = (() => {
  let last = run.ended_ns;
  if (!last) {
    for (const step of run.steps) last = Math.max(last, step.began_ns, step.ended_ns);
    for (const thing of [...run.samples, ...run.events]) last = Math.max(last, thing.at_ns);
  }
  return Math.max(sec(last), 0.001);
})();

/** Text without what cannot be seen but turns the direction of writing, or is no character at all. */
function plain(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, "\u00b7");
}

function fillIn(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, typeof value === "string" ? plain(value) : value);
  }
  const there = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false && child !== "");
  // strings become text nodes: nothing of the record is ever read as HTML
  element.append(...there.map((child) => (child instanceof Node ? child : plain(String(child)))));
  return element;
}

/** An HTML element. */
function h(tag, attributes, ...children) {
  return fillIn(document.createElement(tag), attributes, children);
}

/** An SVG element. */
function s(tag, attributes, ...children) {
  return fillIn(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function three(value) {
  const size = Math.abs(value);
  return value.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

/** `950 µs`, `10.1 ms`, `2.05 s` of milliseconds. */
function time(ms) {
  if (typeof ms !== "number" || !Number.isFinite(ms)) return "–";
  if (Math.abs(ms) < 0.9995) return `${(ms * 1000).toFixed(0)} µs`;
  return Math.abs(ms) < 999.5 ? `${three(ms)} ms` : `${three(ms / 1000)} s`;
}

function count(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

function share(part, whole) {
  if (!part || !whole) return "0 %";
  const percent = (100 * part) / whole;
  return percent < 0.005 ? "< 0.01 %" : `${three(percent)} %`;
}

function classOf(name) {
  return CLASSES.includes(name) ? `c-${name}` : "c-other";
}

/** Text cut to about a width in pixels of 12 px type. */
function fit(text, width) {
  const most = Math.max(1, Math.floor(width / 6.6));
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

/** Distances between ticks that people can count in. */
function ticks(most, about) {
  const raw = Math.max(most, 1e-9) / about;
  const ten = 10 ** Math.floor(Math.log10(raw));
  const size = [1, 2, 5, 10].map((n) => n * ten).find((n) => n >= raw * 0.999);
  const list = [];
  for (let n = 0; n * size <= most * 1.0001; n += 1) list.push(n * size);
  return { size, list, digits: Math.max(0, -Math.floor(Math.log10(size) + 1e-9)) };
}

/** A table; columns are [heading, is it a number]. */
function table(columns, rows, name) {
  const head = columns.map(([text, number]) => h("th", { scope: "col", class: number && "number" }, text));
  return h("table", { class: name }, h("thead", null, h("tr", null, head)), h("tbody", null, rows));
}

/** A table's row; cells that belong below a number's heading are right-aligned. */
function row(columns, cells, name) {
  return h("tr", { class: name }, cells.map((cell, i) => h("td", { class: columns[i][1] && "number" }, cell)));
}

function section(id, title, about, ...children) {
  const heading = h("h2", { id: `${id}-title` }, title);
  return h("section", { id, "aria-labelledby": `${id}-title` }, heading, about && h("p", { class: "under" }, about), children);
}

function facts(pairs) {
  const known = pairs.filter(([, value]) => value);
  return h("dl", { class: "facts" }, known.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

function timers() {
  const late = run.timers;
  if (!late.most_us) return "";
  return `${time(late.median_us / 1000)} (median), ${time(late.p99_us / 1000)} (99 %), ${time(late.most_us / 1000)} (most)`;
}

function head(seed) {
  const began = run.began_unix_ms ? `${new Date(run.began_unix_ms).toISOString().slice(0, 19).replace("T", " ")} UTC` : "";
  const shows = run.title.shows.map((number) => h("span", { class: "chip" }, number));
  return h("header", { class: run.outcome },
    h("div", { class: "head" },
      h("span", { class: "badge" }, h("span", { "aria-hidden": "true" }, SIGNS[run.outcome] || ""), run.outcome),
      h("h1", null, run.title.name || run.id || "Run"),
      run.title.about && h("p", { class: "about" }, run.title.about),
      shows.length ? h("p", { class: "chips" }, h("span", { class: "soft" }, "Shows"), shows) : null),
    run.reason && h("p", { class: "decided" }, run.reason),
    facts([["Lab", run.lab], ["Carrier", run.carrier], ["Began", began], ["Took", LENGTH > 0.001 && time(LENGTH * 1000)], ["Seed", seed],
      ["Timers were late by", timers()], ["Scenario file", run.title.file], ["Run", run.id], ["Evidence", run.evidence]]));
}

function tile(value, words) {
  return h("div", { class: "tile" }, h("b", null, value), h("span", null, words));
}

/** The figures that one wants to know first. */
function tiles() {
  const passed = run.steps.filter((step) => step.outcome === "passed").length;
  const sent = run.traffic.reduce((sum, t) => sum + t.sent, 0);
  const lost = run.traffic.reduce((sum, t) => sum + t.lost, 0);
  const losses = run.traffic.flatMap((t) => t.losses);
  const longest = losses.reduce((most, loss) => (most && most.ms >= loss.ms ? most : loss), null);
  const backup = Math.max(0, ...run.samples.map((look) => look.planes.reduce((sum, p) => sum + p.on_backup, 0)));
  return h("div", { class: "tiles" },
    tile(`${passed} of ${run.steps.length}`, "steps and watches passed"),
    tile(sent ? share(lost, sent) : "–", sent ? `${count(lost)} of ${count(sent)} packets lost` : "no traffic"),
    tile(longest ? time(longest.ms) : "–", longest ? `longest loss, ${longest.class} from ${longest.from}` : "no window of loss"),
    tile(count(run.timelines.length), run.timelines.length === 1 ? "failure" : "failures"),
    tile(count(backup), "LSPs on their backup at most"));
}

function steps() {
  const columns = [["#"], ["State"], ["Step"], ["Began", true], ["Took", true], ["Expected"], ["Observed"]];
  const rows = run.steps.map((step) => {
    const began = step.began_ns ? `${sec(step.began_ns).toFixed(2)} s` : "–";
    const took = step.ended_ns ? time((step.ended_ns - step.began_ns) / 1e6) : "–";
    const named = step.name && step.name !== step.action;
    const what = [named && h("div", null, step.name), h("div", { class: named ? "mono soft" : "mono" }, step.action)];
    if (step.notes.length) {
      what.push(h("details", null, h("summary", null, plural(step.notes.length, "note")), h("pre", null, step.notes.join("\n"))));
    }
    const state = h("span", { class: `state ${step.outcome}` }, `${SIGNS[step.outcome] || ""} ${step.outcome}`);
    const bad = ["failed", "broken"].includes(step.outcome) ? "bad" : null;
    return row(columns, [step.id, state, what, began, took, step.expected || "", step.observed || ""], bad);
  });
  if (!rows.length) rows.push(h("tr", null, h("td", { colspan: columns.length, class: "soft" }, "No step was recorded.")));
  return section("steps", "Steps", null, table(columns, rows, "steps"));
}

/** Things to do when another moment is looked at. */
const followers = [];
let moment = 0;

function lookAt(seconds) {
  moment = Math.min(LENGTH, Math.max(0, seconds));
  followers.forEach((follow) => follow(moment));
}

/** A box beside the pointer that tells what is under it. */
function hints() {
  const box = document.getElementById("hint");
  const place = (x, y) => {
    box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.offsetWidth - 8))}px`;
    box.style.top = `${y + 18 + box.offsetHeight > innerHeight ? Math.max(4, y - box.offsetHeight - 10) : y + 18}px`;
  };
  document.addEventListener("pointermove", (event) => {
    const over = event.target instanceof Element ? event.target.closest("[data-hint], [data-plot]") : null;
    const words = over && (over.tell ? over.tell(event) : over.getAttribute("data-hint"));
    box.hidden = !words;
    if (words) {
      box.textContent = plain(words);
      place(event.clientX, event.clientY);
    }
  });
  document.addEventListener("pointerleave", () => { box.hidden = true; });
  addEventListener("scroll", () => { box.hidden = true; }, { passive: true });
}

function show() {
  const page = document.getElementById("page");
  page.append(head(page.dataset.seed), tiles(), steps());
  for (const part of [happened, plots, maps, trafficTables, courses, eventTable, logs]) {
    const made = part();
    if (made) page.append(made);
  }
  hints();
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
  const first = run.faults.find((fault) => fault.from_ns);
  // `#t=12.5` after the page's address asks for a moment
  const asked = /^#t=(\d+\.?\d*)$/.exec(location.hash);
  lookAt(asked ? Number(asked[1]) : first ? sec(first.from_ns) + 0.1 : 0);
}
