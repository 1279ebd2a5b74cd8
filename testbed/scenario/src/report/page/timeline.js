// What happened when: lanes over the time of the run.

const WIDTH = 1280;
const LEFT = 112;
const RIGHT = 12;

/** Place of a second of the run, in the picture's units. */
function x(seconds) {
  return LEFT + (Math.min(Math.max(seconds, 0), LENGTH) / LENGTH) * (WIDTH - LEFT - RIGHT);
}

/** Second of the run under the pointer. */
function secondAt(svg, event) {
  const box = svg.getBoundingClientRect();
  const at = ((event.clientX - box.left) / box.width) * WIDTH;
  return Math.min(1, Math.max(0, (at - LEFT) / (WIDTH - LEFT - RIGHT))) * LENGTH;
}

/** Line that shows the moment looked at, on every picture over time. */
function cursor(height) {
  const line = s("line", { class: "cursor", y1: 0, y2: height });
  followers.push((seconds) => {
    line.setAttribute("x1", x(seconds));
    line.setAttribute("x2", x(seconds));
  });
  return line;
}

/** The scale of time below a picture, and its lines through it. */
function timeAxis(height) {
  const { list, digits } = ticks(LENGTH, 12);
  const parts = [s("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: height, y2: height })];
  for (const tick of list) {
    parts.push(s("line", { class: "rule", x1: x(tick), x2: x(tick), y1: 0, y2: height }));
    if (x(tick) < WIDTH - 14) parts.push(s("text", { class: "soft small", x: x(tick), y: height + 15, "text-anchor": "middle" }, `${tick.toFixed(digits)} s`));
  }
  return parts;
}

/** Puts things into as few rows as they need without touching; [{from, to}] in the picture's units. */
function stack(items, gap) {
  const ends = [];
  for (const item of items) {
    let lane = ends.findIndex((end) => end + gap <= item.from);
    if (lane < 0) lane = ends.length;
    ends[lane] = item.to;
    item.lane = lane;
  }
  return ends.length;
}

/** Things that would lie on each other become one, which is begun at most this far before its last. */
function clusters(items, gap, most = Infinity) {
  const groups = [];
  for (const item of [...items].sort((a, b) => a.from - b.from)) {
    const last = groups[groups.length - 1];
    if (last && item.from - last.to < gap && item.from - last.from <= most) {
      last.to = Math.max(last.to, item.to);
      last.items.push(item);
    } else {
      groups.push({ from: item.from, to: item.to, items: [item] });
    }
  }
  return groups;
}

function listed(lines) {
  return lines.length > 9 ? [...lines.slice(0, 8), `and ${lines.length - 8} more`].join("\n") : lines.join("\n");
}

function stepLane() {
  const begun = run.steps.filter((step) => step.began_ns);
  const items = begun.map((step) => {
    const from = x(sec(step.began_ns));
    const to = Math.max(x(step.ended_ns ? sec(step.ended_ns) : LENGTH), from + 8 + 7 * step.id.length);
    return { step, from, to };
  });
  const rows = stack(items, 2);
  const draw = (y) => items.map(({ step, from, to, lane }) => {
    const hint = `${step.id}  ${step.name || step.action}\n${step.action}\n${step.outcome}`;
    const named = to - from > 60 ? `${step.id}  ${fit(step.name || step.action, to - from - 36)}` : step.id;
    return s("g", { class: step.outcome, "data-hint": hint },
      s("rect", { class: "fill", x: from, y: y + lane * 20, width: to - from, height: 17, rx: 2 }),
      s("text", { class: "onbar", x: from + 4, y: y + lane * 20 + 12.5 }, named));
  });
  return { label: "Steps", height: Math.max(1, rows) * 20, draw };
}

function faultLane() {
  const items = run.faults.map((fault) => {
    const words = `${fault.kind} ${fault.subjects.join(", ")}`;
    const from = x(sec(fault.from_ns));
    const end = Math.max(x(fault.until_ns ? sec(fault.until_ns) : LENGTH), from + 3);
    const text = fit(words, 330);
    const room = text.length * 6.9 + 10;
    const inside = end - from > room;
    const before = !inside && end + room > WIDTH;
    return { words, text, end, begin: from, inside, before, from: before ? from - room : from, to: inside || before ? end : end + room };
  });
  const rows = stack(items, 6);
  const draw = (y) => items.map((item) => {
    const top = y + item.lane * 20;
    const at = item.inside ? item.begin + 5 : item.before ? item.begin - 5 : item.end + 5;
    return s("g", { "data-hint": item.words },
      s("rect", { x: item.begin, y: top, width: item.end - item.begin, height: 17, rx: 2, style: "fill: var(--fault)" }),
      s("text", { class: item.inside ? "onbar" : "small", x: at, y: top + 12.5, "text-anchor": item.before ? "end" : "start" }, item.text));
  });
  return { label: "Faults", height: rows * 20, draw };
}

/** Events of one family, each a mark; those that lie close together are one, wider and with their number. */
function eventLane(family, events) {
  const items = events.map((event) => ({ from: x(sec(event.at_ns)), to: x(sec(event.at_ns)), event }));
  const groups = clusters(items, 9, 40);
  const draw = (y) => groups.map((group) => {
    const lines = group.items.map(({ event }) => `${sec(event.at_ns).toFixed(3)} s  ${event.kind} ${event.subject}  ${event.detail}`);
    const many = group.items.length > 1;
    const middle = (group.from + group.to) / 2;
    const words = many ? count(group.items.length) : "";
    const half = many ? Math.max((group.to - group.from) / 2 + 3, words.length * 3.4 + 4) : 4;
    return s("g", { "data-hint": listed(lines), class: "c-other" },
      s("rect", { class: "fill", x: middle - half, y: y + 1, width: half * 2, height: 15, rx: many ? 7 : 4 }),
      many && s("text", { class: "onbar", x: middle, y: y + 12.5, "text-anchor": "middle" }, words));
  });
  return { label: `${family} events`, height: 18, draw };
}

function eventLanes() {
  const families = new Map();
  for (const event of run.events) {
    const word = event.kind.split(".")[0];
    const family = word === "member" ? "link" : ["link", "lsp", "program", "plane", "config"].includes(word) ? word : "other";
    if (!families.has(family)) families.set(family, []);
    families.get(family).push(event);
  }
  const order = ["link", "lsp", "program", "plane", "config", "other"];
  return order.filter((family) => families.has(family)).map((family) => eventLane(family, families.get(family)));
}

function lossLanes() {
  const losses = run.traffic.flatMap((traffic) => traffic.losses);
  const names = [...new Set([...CLASSES.filter((name) => losses.some((l) => l.class === name)), ...losses.map((l) => l.class)])];
  return names.map((name) => {
    const items = losses.filter((loss) => loss.class === name).map((loss) => ({
      from: x(sec(loss.start_ns)), to: x(sec(loss.start_ns) + (Number(loss.ms) || 0) / 1000), loss,
    }));
    const draw = (y) => clusters(items, 1).map((group) => {
      const lines = group.items.map(({ loss }) => `${sec(loss.start_ns).toFixed(3)} s  ${time(loss.ms)}, ${plural(loss.lost, "packet")}, ${loss.from} → ${loss.to}`);
      return s("rect", { class: `fill ${classOf(name)}`, "data-hint": listed(lines), x: group.from, y: y + 1, width: Math.max(3, group.to - group.from), height: 14 });
    });
    return { label: `${name} lost`, height: 17, draw };
  });
}

/** Stretches in which a plane was in the same state, as far as looks at the lab tell. */
function planeLane(number) {
  const spans = [];
  for (const look of run.samples) {
    const state = (look.planes.find((p) => p.plane === number) || {}).state || "unknown";
    const at = sec(look.at_ns);
    const last = spans[spans.length - 1];
    if (last) last.to = at;
    if (!last || last.state !== state) spans.push({ state, from: at, to: at });
  }
  const colour = { ready: "passed", drained: "skipped", degraded: "warned" };
  const cycles = run.cycles.filter((cycle) => cycle.plane === number);
  const draw = (y) => [
    spans.map(({ state, from, to }) => {
      const width = Math.max(2, x(to) - x(from));
      return s("g", { class: colour[state] || "running", "data-hint": `plane ${number} ${state}\n${from.toFixed(1)} s to ${to.toFixed(1)} s` },
        s("rect", { class: "fill", x: x(from), y: y + 10, width, height: 5, rx: 1 }),
        width > 60 && s("text", { class: "small soft", x: x(from) + 2, y: y + 6 }, state));
    }),
    cycles.map((cycle) => {
      const from = x(sec(cycle.ended_ns) - cycle.took_ms / 1000);
      const width = Math.max(4, x(sec(cycle.ended_ns)) - from);
      const hint = `controller cycle of plane ${number}, ${time(cycle.took_ms)}, ended at ${sec(cycle.ended_ns).toFixed(2)} s\n${cycle.detail}`;
      return s("rect", { x: from, y: y + 18, width, height: 8, "data-hint": hint, style: "fill: var(--running)" });
    }),
  ];
  return { label: `Plane ${number}`, height: 30, draw, note: cycles.length ? "state, cycles" : "state" };
}

function happened() {
  if (!run.steps.some((step) => step.began_ns) && !run.events.length && !run.samples.length) return null;
  const numbers = new Set(run.samples.flatMap((look) => look.planes.map((p) => p.plane)));
  run.cycles.forEach((cycle) => numbers.add(cycle.plane));
  const lanes = [stepLane(), faultLane(), ...eventLanes(), ...lossLanes()].filter((lane) => lane.height > 0);
  const planes = [...numbers].sort((a, b) => a - b).map(planeLane);
  let y = 6;
  const parts = [];
  for (const lane of [...lanes, ...planes]) {
    if (lane.note) y += 8;
    parts.push(s("text", { x: 0, y: y + 13 }, lane.label));
    if (lane.note) parts.push(s("text", { class: "soft small", x: 0, y: y + 27 }, lane.note));
    parts.push(lane.draw(y));
    y += lane.height + 7;
    parts.push(s("line", { class: "rule", x1: 0, x2: WIDTH - RIGHT, y1: y - 3, y2: y - 3 }));
  }
  const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${y + 22}`, role: "img", "aria-label": "Steps, faults, events and losses over time" },
    timeAxis(y), parts, cursor(y));
  svg.addEventListener("click", (event) => lookAt(secondAt(svg, event)));
  return section("happened", "What happened when", "Point at a mark to read it; click to see the network at that moment further down. Numbers count events that lie close together.", svg);
}
