// Figures over time, below each other on the same scale of time.

const TALL = 132;

/** Rates between readings of counters, each from its first reading on: [[second, per second]]. */
function rates(readings) {
  const points = [];
  for (let i = 1; i < readings.length; i += 1) {
    const [before, a] = readings[i - 1];
    const [now, b] = readings[i];
    // a counter that began anew tells nothing
    if (now > before && b >= a) points.push([before, (b - a) / (now - before)]);
  }
  if (points.length) points.push([readings[readings.length - 1][0], points[points.length - 1][1]]);
  return points;
}

function shades(height) {
  return run.faults.map((fault) => {
    const from = x(sec(fault.from_ns));
    const to = x(fault.until_ns ? sec(fault.until_ns) : LENGTH);
    return s("rect", { class: "shade", x: from, y: 0, width: Math.max(2, to - from), height });
  });
}

/** The value that holds at a second. */
function valueAt(series, seconds) {
  const before = series.points.filter(([at]) => at <= seconds + 1e-6);
  return before.length ? before[before.length - 1][1] : null;
}

function path(series, y) {
  let text = "";
  let before = null;
  for (const [at, value] of series.points) {
    const [left, top] = [x(at).toFixed(1), y(value).toFixed(1)];
    text += before === null ? `M${left} ${top}` : `H${left}V${top}`;
    before = value;
  }
  return text;
}

function legend(list) {
  return h("div", { class: "legend" }, list.map((series) => h("span", null,
    s("svg", { viewBox: "0 0 24 12", "aria-hidden": "true" },
      s("line", { class: `line ${series.colour}`, x1: 0, x2: 24, y1: 6, y2: 6, "stroke-dasharray": series.dash, style: "stroke-width: 3" })),
    series.name)));
}

/** One picture: series are {name, colour, dash, width, points: [[second, value]]}. */
function plot(title, about, list, unit = "LSPs") {
  const shown = list.filter((series) => series.points.length);
  if (!shown.length) return null;
  const most = shown.reduce((top, series) => series.points.reduce((n, p) => Math.max(n, p[1]), top), 0);
  const scale = ticks(most || 1, 4);
  const top = Math.max(scale.list[scale.list.length - 1], most) * 1.06 || 1;
  const y = (value) => TALL - (value / top) * (TALL - 8);
  const digits = Math.min(3, scale.digits);
  const lines = scale.list.map((tick) => [
    s("line", { class: "rule", x1: LEFT, x2: WIDTH - RIGHT, y1: y(tick), y2: y(tick) }),
    s("text", { class: "soft small", x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" }, count(tick.toFixed(digits))),
  ]);
  const paths = shown.map((series) => s("path", { class: `line ${series.colour}`, d: path(series, y), "stroke-dasharray": series.dash, style: series.width && `stroke-width: ${series.width}` }));
  const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${TALL + 20}`, role: "img", "aria-label": `${title}, ${unit}`, "data-plot": "" },
    shades(TALL), timeAxis(TALL), lines, paths, cursor(TALL), s("rect", { x: LEFT, y: 0, width: WIDTH - LEFT - RIGHT, height: TALL, fill: "transparent" }));
  svg.tell = (event) => {
    const at = secondAt(svg, event);
    const values = shown.map((series) => [series.name, valueAt(series, at)]);
    return [`${at.toFixed(2)} s`, ...values.map(([name, v]) => `${name}: ${v === null ? "–" : `${count(v.toFixed(v < 10 && v % 1 ? 2 : 0))} ${unit}`}`)].join("\n");
  };
  svg.addEventListener("click", (event) => lookAt(secondAt(svg, event)));
  return h("div", { class: "plot" }, h("header", null, h("h3", null, title, h("span", { class: "soft light" }, `  ${unit === "LSPs" ? "" : `${unit}, `}${about}`)), legend(shown)), svg);
}

const DASHES = [null, "7 3", "2 2.5", "9 3 2 3", "5 5"];

/** Mbit/s of each class on all core links, each hop counted. */
function throughput() {
  const totals = CLASSES.map(() => []);
  const sums = CLASSES.map(() => 0);
  let before = new Map();
  for (const look of run.samples) {
    const now = new Map();
    for (const [node, link, bytes] of look.sent) {
      const key = `${node}\n${link}`;
      const old = before.get(key);
      now.set(key, bytes);
      // a queue that was made anew begins at zero
      if (old) bytes.forEach((n, i) => { sums[i] += n >= old[i] ? n - old[i] : n; });
    }
    before = now;
    if (now.size) sums.forEach((sum, i) => totals[i].push([sec(look.at_ns), (sum * 8) / 1e6]));
  }
  return CLASSES.map((name, i) => ({ name, colour: classOf(name), dash: DASHES[i], points: rates(totals[i]) }));
}

/** Packets per second of each traffic; `column` of its series. */
function packets(column) {
  return run.traffic.map((traffic, i) => ({
    name: traffic.name, colour: `s${[1, 2, 0, 3][i % 4]}`, dash: DASHES[Math.floor(i / 4) % 5],
    points: rates(traffic.series.map((reading) => [sec(reading[0]), reading[column]])),
  }));
}

function planeSeries(value) {
  const numbers = [...new Set(run.samples.flatMap((look) => look.planes.map((p) => p.plane)))].sort((a, b) => a - b);
  return numbers.map((number, i) => {
    const points = [];
    for (const look of run.samples) {
      const plane = look.planes.find((p) => p.plane === number);
      if (plane) points.push([sec(look.at_ns), plane[value]]);
    }
    // lines on top of each other stay visible
    const width = 1.8 + 3 * Math.min(3, numbers.length - 1 - i);
    return { name: `plane ${number}`, colour: `s${[1, 2, 0, 3][i % 4]}`, dash: DASHES[Math.floor(i / 4) % 5], width, points };
  });
}

function plots() {
  const all = [
    plot("Sent on core links", "every hop counted", throughput(), "Mbit/s"),
    plot("Packets sent", "all pairs of hosts", packets(1), "packets/s"),
    plot("Packets lost", "all pairs of hosts", packets(3), "packets/s"),
    plot("LSPs programmed", "in the kernels of their sources", planeSeries("programmed")),
    plot("LSPs on their backup path", "of those programmed", planeSeries("on_backup")),
  ].filter(Boolean);
  if (!all.length) return null;
  return section("plots", "Figures over time", "Shaded: a fault is in force. Rates are those of the emulation.", all);
}
