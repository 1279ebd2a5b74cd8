// The network at a moment: a map for each plane, and a slider.

const MAP = { width: 600, height: 390, rx: 190, ry: 122 };

/** Sites around an ellipse, in an order in which linked ones are near each other: exchanges as long as they help. */
function siteOrder() {
  const site = new Map(run.topology.nodes.map((node) => [node.name, node.site]));
  const order = [...new Set(run.topology.nodes.filter((n) => n.role === "router").map((n) => n.site))].sort();
  const pairs = run.topology.links.filter((l) => l.kind === "core").map((l) => [order.indexOf(site.get(l.a)), order.indexOf(site.get(l.b))]);
  const place = order.map((_, i) => i);
  const cost = () => pairs.reduce((sum, [a, b]) => {
    if (a < 0 || b < 0) return sum;
    const apart = Math.abs(place[a] - place[b]);
    return sum + Math.min(apart, order.length - apart) ** 2;
  }, 0);
  let best = cost();
  for (let round = 0, better = order.length <= 40; better && round < 20; round += 1) {
    better = false;
    for (let i = 0; i < place.length; i += 1) {
      for (let j = 0; j < i; j += 1) {
        [place[i], place[j]] = [place[j], place[i]];
        const now = cost();
        if (now < best) {
          best = now;
          better = true;
        } else {
          [place[i], place[j]] = [place[j], place[i]];
        }
      }
    }
  }
  return new Map(order.map((name, i) => [name, (2 * Math.PI * place[i]) / order.length - Math.PI / 2 - Math.PI / Math.max(order.length, 1)]));
}

function spot(angle, further) {
  return [MAP.width / 2 + Math.cos(angle) * (MAP.rx + further), MAP.height / 2 + Math.sin(angle) * (MAP.ry + further)];
}

/** For each look at the lab, how full links were since the one before: 0 to 1, the fuller direction. */
const fullness = [];
function fullnessAt(index) {
  const nth = Math.max(1, index);
  if (fullness[nth] || nth >= run.samples.length) return fullness[nth] || new Map();
  const [before, now] = [run.samples[nth - 1], run.samples[nth]];
  const rate = new Map(run.topology.links.map((link) => [link.name, link.rate_bps]));
  const old = new Map(before.sent.map(([node, link, bytes]) => [`${node}\n${link}`, bytes]));
  const span = (now.at_ns - before.at_ns) / 1e9;
  const full = new Map();
  for (const [node, link, bytes] of now.sent) {
    const was = old.get(`${node}\n${link}`);
    if (!was || !rate.get(link) || span <= 0) continue;
    const moved = bytes.reduce((sum, n, i) => sum + Math.max(0, n - was[i]), 0);
    full.set(link, Math.max(full.get(link) || 0, (moved * 8) / span / rate.get(link)));
  }
  fullness[nth] = full;
  return full;
}

/** Cuts and restorations of each link, by time: they tell the moment better than looks do. */
const turns = new Map();
for (const event of run.events) {
  if (event.kind === "link.cut" || event.kind === "link.restored") {
    if (!turns.has(event.subject)) turns.set(event.subject, []);
    turns.get(event.subject).push([sec(event.at_ns), event.kind === "link.cut"]);
  }
}

function lookIndex(seconds) {
  let index = 0;
  while (index + 1 < run.samples.length && sec(run.samples[index + 1].at_ns) <= seconds) index += 1;
  return index;
}

function inForce(seconds) {
  return run.faults.filter((f) => sec(f.from_ns) <= seconds && (!f.until_ns || seconds < sec(f.until_ns)));
}

/** What is the matter with a link: null, or words; "cut" if nothing passes. */
function trouble(link, seconds, look, faults) {
  const known = (turns.get(link.name) || []).filter(([at]) => at <= seconds);
  if (known.length && known[known.length - 1][1]) return "cut";
  const broken = look ? look.broken_links.find(([name]) => name === link.name) : null;
  if (broken && !(known.length && broken[1] === "cut")) return broken[1];
  const fault = faults.find((f) => f.subjects.includes(link.name));
  return fault && !(known.length && fault.kind === "cut") ? fault.kind : null;
}

/** Ends of a link's line; parallel links lie beside each other. */
function strand(link, nodes, nth, of) {
  const [[ax, ay], [bx, by]] = [nodes.get(link.a), nodes.get(link.b)];
  const length = Math.hypot(bx - ax, by - ay) || 1;
  const aside = (nth - (of - 1) / 2) * 9;
  const [dx, dy] = [(-(by - ay) / length) * aside, ((bx - ax) / length) * aside];
  return [ax + dx, ay + dy, bx + dx, by + dy];
}

function shadeOf(full) {
  return `var(--util-${full < 0.1 ? 0 : full < 0.3 ? 1 : full < 0.6 ? 2 : full < 0.85 ? 3 : 4})`;
}

/** How far a point is from a line. */
function apart([px, py], [x1, y1, x2, y2]) {
  const [dx, dy] = [x2 - x1, y2 - y1];
  const along = Math.min(1, Math.max(0, ((px - x1) * dx + (py - y1) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(px - x1 - along * dx, py - y1 - along * dy);
}

/** Place on each line for its words, as far as can be from other lines and the words before it. */
function labelSpots(lines) {
  const taken = [];
  for (const line of lines) {
    const others = lines.filter((other) => other !== line);
    let best = null;
    for (const part of [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74]) {
      const at = [line[0] + (line[2] - line[0]) * part, line[1] + (line[3] - line[1]) * part];
      const room = Math.min(30, ...others.map((other) => apart(at, other)), ...taken.map((t) => Math.hypot(at[0] - t[0], (at[1] - t[1]) * 2)));
      if (!best || room > best.room + 1) best = { at, room };
    }
    taken.push(best.at);
  }
  return taken;
}

/** A link of the map: how it looks now is set later. */
function drawLink(link, ends, [mx, my], labelled) {
  const [x1, y1, x2, y2] = ends;
  const line = s("line", { x1, y1, x2, y2, "stroke-linecap": "round" });
  const wide = s("line", { x1, y1, x2, y2, stroke: "transparent", "stroke-width": 14 });
  const text = s("text", { class: "small halo", x: mx, y: my + 4, "text-anchor": "middle", "pointer-events": "none" });
  const group = s("g", { "data-hint": link.name }, line, wide);
  // above all lines
  group.words = text;
  group.now = (state, full) => {
    const [cut, hurt] = [state === "cut" || state === "shut" || state === "down", state !== null];
    const colour = cut ? "var(--failed)" : hurt ? "var(--warned)" : shadeOf(full);
    line.setAttribute("style", `stroke: ${colour}; stroke-width: ${cut ? 2.5 : hurt ? 4 : 2 + 5 * Math.min(1, full)}`);
    line.setAttribute("stroke-dasharray", cut ? "3 6" : hurt ? "9 5" : "none");
    text.textContent = cut ? `✕ ${state}` : hurt ? plain(fit(state, 100)) : labelled && full >= 0.005 ? `${Math.round(full * 100)} %` : "";
    text.setAttribute("style", hurt ? `fill: ${colour}; font-weight: 650` : "");
    const load = link.rate_bps ? `${Math.round(full * 100)} % of ${link.capacity} used` : link.capacity;
    group.setAttribute("data-hint", plain(`${link.name}\n${hurt ? state : "up"}${cut ? "" : `, ${load}`}`));
  };
  return group;
}

function drawNode(node, at, angle, outer) {
  const fabric = node.role === "aggregator";
  const shape = fabric
    ? s("rect", { class: "node", x: at[0] - 5, y: at[1] - 5, width: 10, height: 10, rx: 1 })
    : s("circle", { class: `node${outer ? " dc" : ""}`, cx: at[0], cy: at[1], r: 7 });
  const group = s("g", { "data-hint": node.name }, shape);
  if (!fabric) {
    const [tx, ty] = spot(angle, outer ? 56 : 24);
    const side = Math.cos(angle);
    const anchor = Math.abs(side) < 0.35 ? "middle" : side > 0 ? "start" : "end";
    group.append(s("text", { class: "strong", x: tx - (outer ? side * 8 : 0), y: ty + 4, "text-anchor": anchor }, fit(node.site, 64)));
  }
  group.now = (broken, faults) => {
    const own = broken.filter(([name]) => name === node.name || name.startsWith(`${node.name}/`)).map(([name, state]) => `${name} ${state}`);
    for (const fault of faults) {
      own.push(...fault.subjects.filter((name) => name === node.name || name.startsWith(`${node.name}/`)).map((name) => `${fault.kind} ${name}`));
    }
    shape.classList.toggle("hurt", own.length > 0);
    group.setAttribute("data-hint", plain([node.name, ...own].join("\n")));
  };
  return group;
}

/** The map of a plane, and what brings it to a moment. */
function planeMap(plane, angles) {
  const routers = run.topology.nodes.filter((node) => node.role === "router" && node.plane === plane);
  const fabrics = run.topology.nodes.filter((node) => node.role === "aggregator" && angles.has(node.site));
  const outer = new Set(fabrics.map((node) => node.site));
  const spots = new Map([...routers.map((n) => [n.name, spot(angles.get(n.site), 0)]), ...fabrics.map((n) => [n.name, spot(angles.get(n.site), 34)])]);
  const links = run.topology.links.filter((l) => l.plane === plane && spots.has(l.a) && spots.has(l.b));
  const lines = links.map((link) => {
    const beside = links.filter((l) => l.a === link.a && l.b === link.b);
    return strand(link, spots, beside.indexOf(link), beside.length);
  });
  const places = labelSpots(lines);
  const labelled = (link) => links.length <= 40 && link.rate_bps > 0;
  const drawn = links.map((link, nth) => [link, drawLink(link, lines[nth], places[nth], labelled(link))]);
  const nodes = [...routers, ...fabrics].map((node) => [node, drawNode(node, spots.get(node.name), angles.get(node.site), outer.has(node.site))]);
  const said = h("span", { class: "soft" });
  const svg = s("svg", { viewBox: `0 0 ${MAP.width} ${MAP.height}`, role: "img", "aria-label": `Map of plane ${plane}` }, drawn.map((d) => d[1]), drawn.map((d) => d[1].words), nodes.map((n) => n[1]));
  const card = h("article", { class: "map", "data-plane": plane }, h("header", null, h("h3", null, `Plane ${plane}`), said), svg);
  followers.push((seconds) => {
    const index = lookIndex(seconds);
    const look = run.samples[index];
    const [full, faults] = [fullnessAt(index), inForce(seconds)];
    const state = look && look.planes.find((p) => p.plane === plane);
    card.classList.toggle("drained", Boolean(state) && state.state === "drained");
    said.textContent = state ? `${plain(state.state)}, ${count(state.programmed)} of ${count(state.wanted)} LSPs, ${count(state.on_backup)} on backup` : "";
    drawn.forEach(([link, group]) => group.now(trouble(link, seconds, look, faults), full.get(link.name) || 0));
    nodes.forEach(([, group]) => group.now(look ? look.broken_programs : [], faults));
  });
  return card;
}

/** Tabs that show one plane or all of them, for labs with many. */
function planeTabs(cards) {
  if (cards.length < 2) return null;
  const buttons = [["All planes", null], ...cards.map((card) => [`Plane ${card.dataset.plane}`, card])].map(([words, card]) => {
    const button = h("button", { type: "button", role: "tab" }, words);
    button.pick = () => {
      cards.forEach((other) => { other.hidden = card !== null && other !== card; });
      buttons.forEach((other) => {
        other.setAttribute("aria-selected", other === button);
        other.tabIndex = other === button ? 0 : -1;
      });
    };
    button.addEventListener("click", button.pick);
    return button;
  });
  const bar = h("div", { class: "tabs", role: "tablist", "aria-label": "Planes" }, buttons);
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length];
    next.focus();
    next.pick();
  });
  buttons[cards.length > 4 ? 1 : 0].pick();
  return bar;
}

/** The slider and the buttons that go from step to step. */
function controls() {
  const slider = h("input", { type: "range", min: 0, max: LENGTH, step: LENGTH / 1000, "aria-label": "Moment of the run, seconds" });
  const shown = h("output", null);
  const starts = run.steps.filter((step) => step.began_ns).map((step) => sec(step.began_ns) + 0.001).sort((a, b) => a - b);
  const button = (words, find) => {
    const made = h("button", { type: "button" }, words);
    made.addEventListener("click", () => lookAt(find()));
    return made;
  };
  const back = button("◀ step", () => [...starts].reverse().find((at) => at < moment - 0.002) || 0);
  const on = button("step ▶", () => starts.find((at) => at > moment + 0.002) || LENGTH);
  slider.addEventListener("input", () => lookAt(Number(slider.value)));
  followers.push((seconds) => {
    slider.value = seconds;
    slider.setAttribute("aria-valuetext", `${seconds.toFixed(2)} seconds`);
    shown.textContent = `${seconds.toFixed(2)} s`;
  });
  return h("div", { class: "controls" }, h("span", null, back, " ", on), slider, shown);
}

function nowLine() {
  const line = h("p", { class: "now" });
  followers.push((seconds) => {
    const going = run.steps.filter((step) => step.began_ns && sec(step.began_ns) <= seconds && (!step.ended_ns || seconds < sec(step.ended_ns)));
    const last = [...run.steps].reverse().find((step) => step.began_ns && sec(step.began_ns) <= seconds);
    const list = going.length ? going : last ? [last] : [];
    const faults = inForce(seconds).map((fault) => `${fault.kind} ${fault.subjects.join(", ")}`);
    const text = list.slice(-3).map((step) => `step ${step.id}: ${step.name || step.action}`).join(" · ");
    line.textContent = plain([text, faults.length ? `in force: ${faults.join("; ")}` : ""].filter(Boolean).join("; "));
  });
  return line;
}

function mapLegend() {
  const key = (words, style, dash) => h("span", null,
    s("svg", { viewBox: "0 0 24 12", "aria-hidden": "true" }, s("line", { x1: 1, x2: 23, y1: 6, y2: 6, style, "stroke-dasharray": dash })), words);
  const used = [["under 10 %", 0.05, 2], ["to 30 %", 0.2, 3], ["to 60 %", 0.5, 4.5], ["to 85 %", 0.8, 6], ["over 85 %", 0.9, 7]];
  return h("div", { class: "legend" }, h("span", null, "Of the link's rate used:"),
    used.map(([words, full, width]) => key(words, `stroke: ${shadeOf(full)}; stroke-width: ${width}`)),
    key("cut", "stroke: var(--failed); stroke-width: 3", "3 5"), key("impaired", "stroke: var(--warned); stroke-width: 4", "9 5"),
    h("span", null, "● data centre  ○ midpoint  □ fabric"));
}

function maps() {
  const planes = [...new Set(run.topology.nodes.filter((n) => n.role === "router" && n.plane !== null).map((n) => n.plane))].sort((a, b) => a - b);
  if (!planes.length) return null;
  const angles = siteOrder();
  const cards = planes.map((plane) => planeMap(plane, angles));
  return section("map", "The network at a moment", null, controls(), nowLine(), planeTabs(cards), h("div", { class: "maps" }, cards), mapLegend());
}
