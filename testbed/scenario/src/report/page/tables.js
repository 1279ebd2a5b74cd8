// Traffic and its losses, the course of failures, events and logs.

const MOST_ROWS = 200;
const MOST_EVENTS = 2000;
const STAGES = ["kernel", "flood", "decision", "restarted", "written", "packets"];
const WORDS = { kernel: "kernel event", flood: "flood", decision: "decision", restarted: "restarted", written: "FIB written", packets: "packets back" };

function swatch(name) {
  return h("span", { class: `swatch ${classOf(name)}`, "aria-hidden": "true" });
}

function classTable(traffic) {
  const columns = [["Class"], ["Sent", true], ["Received", true], ["Lost", true], ["Share", true], ["Windows", true], ["Longest", true]];
  const rows = traffic.classes.map(([name, sent, received, lost]) => {
    const windows = traffic.losses.filter((loss) => loss.class === name);
    const longest = windows.reduce((most, loss) => Math.max(most, Number(loss.ms) || 0), 0);
    const cells = [[swatch(name), name], count(sent), count(received), count(lost), share(lost, sent), count(windows.length), longest ? time(longest) : "–"];
    return row(columns, cells);
  });
  return table(columns, rows);
}

function lossTable(traffic) {
  if (!traffic.losses.length) return h("p", { class: "soft" }, "Nothing was lost.");
  const columns = [["Began", true], ["Length", true], ["Lost", true], ["Class"], ["Stream"], ["Began with"], ["", true]];
  const rows = traffic.losses.slice(0, MOST_ROWS).map((loss) => {
    const cause = loss.cause === null ? null : run.events[loss.cause];
    const apart = cause ? (loss.start_ns - cause.at_ns) / 1e6 : 0;
    const distance = cause ? (apart < 0 ? `sent ${time(-apart)} before` : `${time(apart)} after`) : "";
    return row(columns, [`${sec(loss.start_ns).toFixed(3)} s`, time(loss.ms), count(loss.lost), [swatch(loss.class), loss.class],
      `${loss.from} → ${loss.to}`, cause ? `${cause.kind} ${cause.subject}` : h("span", { class: "soft" }, "nothing near"), distance]);
  });
  const rest = traffic.losses.length - rows.length;
  return h("details", { open: rows.length <= 40, class: "long" }, h("summary", null, `${plural(traffic.losses.length, "window")} of loss, with what began ${traffic.losses.length === 1 ? "it" : "them"}`),
    table(columns, rows), rest > 0 && h("p", { class: "soft" }, `and ${count(rest)} more in the record`));
}

function trafficTables() {
  if (!run.traffic.length) return null;
  const parts = run.traffic.map((traffic) => {
    const end = traffic.ended_ns ? `${sec(traffic.ended_ns).toFixed(1)} s` : "the end";
    const refused = traffic.refused ? `, ${plural(traffic.refused, "packet")} refused by the sending host` : "";
    return h("div", { class: "plot" }, h("header", null, h("h3", null, traffic.name), h("span", { class: "soft" }, `from ${sec(traffic.began_ns).toFixed(1)} s to ${end}${refused}`)),
      classTable(traffic), lossTable(traffic));
  });
  const made = section("traffic", "Traffic and what was lost of it", null, parts);
  made.classList.add("long");
  return made;
}

/** What of a failure belongs on one line: a stage with its first and last router, or packets of a class. */
function reached(timeline) {
  const lines = [];
  for (const [ms, stage, words] of timeline.points) {
    const known = stage === "packets" ? null : lines.find((line) => line.stage === stage);
    if (known) {
      known.last = Number(ms) || 0;
      known.words.push(words);
    } else {
      lines.push({ stage, first: Number(ms) || 0, last: Number(ms) || 0, words: [words] });
    }
  }
  const place = (line) => (STAGES.indexOf(line.stage) + STAGES.length + 1) % (STAGES.length + 1);
  return lines.sort((a, b) => place(a) - place(b) || a.first - b.first);
}

/** One failure: for each stage a bar until its first router had reached it, and a stronger one until its last had. */
function course(timeline) {
  const lines = reached(timeline);
  const most = lines.reduce((end, line) => Math.max(end, line.last), 0) || 1;
  const rows = lines.map((line) => {
    const until = h("i", { class: "until" });
    const during = h("i", null);
    until.style.width = `${(100 * line.first) / most}%`;
    during.style.width = `${(100 * (line.last - line.first)) / most}%`;
    const figures = line.first < line.last ? `${time(line.first)} … ${time(line.last)}` : time(line.first);
    return h("div", { class: `bar-row s${Math.max(0, STAGES.indexOf(line.stage))}` }, h("span", null, WORDS[line.stage] || line.stage),
      h("span", { class: "track" }, until, during), h("span", { class: "number" }, figures), h("span", { class: "soft" }, line.words.join("; ")));
  });
  const none = h("p", { class: "soft" }, "Nothing that followed was seen, and nothing was lost.");
  return h("article", { class: "course" }, h("header", null, h("h3", null, timeline.failure), h("span", { class: "soft" }, `at ${sec(timeline.at_ns).toFixed(3)} s`)),
    rows.length ? rows : none);
}

function courses() {
  if (!run.timelines.length) return null;
  const shown = run.timelines.slice(0, 12).map(course);
  const rest = run.timelines.slice(12);
  const more = rest.length ? h("details", { class: "long" }, h("summary", null, `${plural(rest.length, "more failure")}`), rest.map(course)) : null;
  const made = section("courses", "From each failure to the first packet", "Milliseconds since the failure: the pale bar ends when the first router had reached the stage, the strong one when the last had. Stages that nobody told of are left out.", shown, more);
  made.classList.add("long");
  return made;
}

/** A block that is filled when it is opened first. */
function later(words, fill) {
  const block = h("details", { class: "long" }, h("summary", null, words));
  block.addEventListener("toggle", () => {
    if (block.open && block.children.length === 1) block.append(...fill());
  });
  return block;
}

function eventTable() {
  if (!run.events.length && !run.cycles.length) return null;
  const columns = [["At", true], ["Event"], ["About"], ["Details"]];
  const events = () => {
    const rows = run.events.slice(0, MOST_EVENTS).map((e) => row(columns, [`${sec(e.at_ns).toFixed(4)} s`, e.kind, e.subject, e.detail]));
    const rest = run.events.length - rows.length;
    return [table(columns, rows), rest > 0 ? h("p", { class: "soft" }, `and ${count(rest)} more in the record`) : ""];
  };
  const cycleColumns = [["Ended", true], ["Plane", true], ["Took", true], ["What it did"]];
  const cycles = () => [table(cycleColumns, run.cycles.slice(0, MOST_EVENTS).map((c) => row(cycleColumns, [`${sec(c.ended_ns).toFixed(2)} s`, c.plane, time(c.took_ms), c.detail])))];
  const made = section("events", "Events and cycles", null, later(plural(run.events.length, "event"), events),
    run.cycles.length ? later(plural(run.cycles.length, "controller cycle"), cycles) : null);
  made.classList.add("long");
  return made;
}

function logs() {
  if (!run.logs.length) return null;
  const blocks = run.logs.map((log) => h("details", { class: "long" }, h("summary", null, `${log.program} on ${log.node}`), h("pre", null, log.text)));
  const made = section("logs", "Logs of the programs concerned", "Their last lines.", blocks);
  made.classList.add("long");
  return made;
}
