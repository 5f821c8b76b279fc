// The plot of a report, drawn again so that one may ask it. It reads the page's own data, sets text and no markup, and loads nothing.
"use strict";
(() => {
  const figure = document.getElementById("front");
  const data = JSON.parse(document.getElementById("points").textContent);
  if (!data.points.length) return;
  const size = { left: 64, right: 16, top: 12, bottom: 44, width: 0, height: 0 };
  const state = { found: true, known: true, validation: true, test: true, logx: false, logy: false, chosen: -1 };
  const make = (name, attributes = {}, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    return made;
  };
  const element = (name, text = "", attributes = {}) => {
    const made = Object.assign(document.createElement(name), attributes);
    if (text) made.textContent = text;
    return made;
  };
  const shown = (p) => p.kind === "original" || (state[p.kind] && (p.part === "accuracy" || state[p.part]));

  const ticks = (low, high, log) => {
    if (log) {
      const found = [];
      for (let e = Math.floor(Math.log10(low)) - 1; e <= Math.ceil(Math.log10(high)); e++)
        for (const m of [1, 2, 5]) if (m * 10 ** e >= low && m * 10 ** e <= high) found.push(m * 10 ** e);
      if (found.length > 1) return found;
    }
    const raw = (high - low) / Math.max(3, Math.min(7, size.width / 110));
    const unit = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= raw);
    const found = [];
    for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-9; t += step) found.push(t);
    return found;
  };
  const number = (v) => (Math.abs(v) >= 1e5 || (v && Math.abs(v) < 1e-3) ? v.toExponential(1) : String(Number(v.toPrecision(5))));
  const scale = (values, log, from, to) => {
    let low = Math.min(...values), high = Math.max(...values);
    const real = log && low > 0;
    if (low === high) { low -= Math.abs(low) * 0.1 || 1; high += Math.abs(high) * 0.1 || 1; }
    const f = real ? Math.log10 : (v) => v;
    const margin = (f(high) - f(low)) * 0.05;
    const [a, b] = [f(low) - margin, f(high) + margin];
    const back = real ? (v) => 10 ** v : (v) => v;
    const place = (v) => from + ((f(v) - a) / (b - a)) * (to - from);
    return { place, ticks: ticks(back(a), back(b), real), floor: back(a) };
  };

  const mark = (p, x, y) => {
    const r = p.part === "validation" ? 4 : 6;
    const shape =
      p.kind === "original" ? make("rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r })
      : p.kind === "known" ? make("path", { d: `M${x} ${y - r - 1}L${x + r} ${y + r - 1}L${x - r} ${y + r - 1}Z` })
      : make("circle", { cx: x, cy: y, r });
    shape.setAttribute("class", `mark ${p.kind}${p.best ? " best" : ""} ${p.part}`);
    return shape;
  };

  const panel = element("div", "", { className: "asked" });
  panel.setAttribute("aria-live", "polite");
  const tell = (p) => {
    const e = data.entries[p.entry];
    const list = element("dl");
    for (const [name, value] of e.numbers) list.append(element("dt", name), element("dd", value));
    const text = element("div");
    text.append(element("strong", e.origin ? `${e.id}: ${e.origin}` : e.id), element("pre", e.expr), list);
    panel.replaceChildren(text);
    if (e.picture) panel.append(element("img", "", { src: e.picture, alt: `${e.id} as a graph of coordinates` }));
  };

  let order = [];
  const svg = make("svg", { role: "application", tabindex: 0 });
  svg.setAttribute("aria-label", `${data.y} against ${data.x}. Arrow keys go from network to network.`);
  const choose = (at) => {
    if (!order.length) return;
    state.chosen = (at + order.length) % order.length;
    for (const { shape } of order) shape.classList.remove("chosen");
    order[state.chosen].shape.classList.add("chosen");
    tell(order[state.chosen].point);
  };

  const draw = () => {
    const points = data.points.filter(shown);
    size.width = Math.max(280, figure.clientWidth);
    size.height = Math.max(300, Math.round(size.width * 0.5));
    svg.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
    svg.replaceChildren();
    panel.replaceChildren(element("p", "Point at a network, or press Tab and then the arrow keys, to see its formula and its numbers.", { className: "soft" }));
    order = [];
    state.chosen = -1;
    if (!points.length) return;
    const [w, h] = [size.width - size.right, size.height - size.bottom];
    const sx = scale(points.map((p) => p.x), state.logx, size.left, w);
    const sy = scale(points.flatMap((p) => (state.logy ? [p.y] : [p.y - p.err, p.y + p.err])), state.logy, h, size.top);
    for (const t of sx.ticks) {
      const x = sx.place(t);
      svg.append(make("line", { class: "grid", x1: x, x2: x, y1: size.top, y2: h }), make("text", { x, y: h + 18, "text-anchor": "middle" }, number(t)));
    }
    for (const t of sy.ticks) {
      const y = sy.place(t);
      svg.append(make("line", { class: "grid", x1: size.left, x2: w, y1: y, y2: y }), make("text", { x: size.left - 8, y: y + 4, "text-anchor": "end" }, number(t)));
    }
    svg.append(make("text", { x: (size.left + w) / 2, y: size.height - 6, "text-anchor": "middle" }, data.x));
    svg.append(make("text", { transform: `translate(14 ${(size.top + h) / 2}) rotate(-90)`, "text-anchor": "middle" }, data.y));
    for (const part of ["validation", "test", "accuracy"]) {
      const front = data.points.filter((p) => p.front && p.part === part && shown(p)).sort((a, b) => a.x - b.x);
      const path = front.map((p, i) => (i ? `H${sx.place(p.x)}V${sy.place(p.y)}` : `M${sx.place(p.x)} ${sy.place(p.y)}`)).join("");
      if (path) svg.append(make("path", { class: `step ${part}`, d: path }));
    }
    for (const point of [...points].sort((a, b) => a.x - b.x)) {
      const [x, y] = [sx.place(point.x), sy.place(point.y)];
      const low = state.logy ? Math.max(point.y - point.err, sy.floor) : point.y - point.err;
      if (point.err) svg.append(make("line", { class: `bar ${point.kind}`, x1: x, x2: x, y1: sy.place(low), y2: sy.place(point.y + point.err) }));
      const shape = mark(point, x, y);
      const at = order.length;
      shape.append(make("title", {}, data.entries[point.entry].id));
      shape.addEventListener("pointerenter", () => choose(at));
      shape.addEventListener("click", () => choose(at));
      order.push({ shape, point });
      svg.append(shape);
    }
  };

  svg.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (move) choose(state.chosen < 0 ? (move > 0 ? 0 : -1) : state.chosen + move);
    else if (event.key === "Home") choose(0);
    else if (event.key === "End") choose(-1);
    else if (event.key === "Escape") draw();
    else return;
    event.preventDefault();
  });

  const bar = element("div", "", { className: "toggles" });
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "What the plot shows");
  const parts = new Set(data.points.map((p) => p.part));
  const kinds = new Set(data.points.map((p) => p.kind));
  const names = { found: "found", known: "known", validation: "validation", test: "test", logx: "log latency", logy: `log ${data.metric}` };
  for (const [key, name] of Object.entries(names)) {
    const matters = key.startsWith("log") ? data.points.every((p) => (key === "logx" ? p.x : p.y) > 0) : parts.has(key) || kinds.has(key);
    if (!matters) continue;
    const button = element("button", name, { type: "button" });
    button.setAttribute("aria-pressed", state[key]);
    button.addEventListener("click", () => {
      state[key] = !state[key];
      button.setAttribute("aria-pressed", state[key]);
      draw();
    });
    bar.append(button);
  }
  figure.querySelector(".still").hidden = true;
  figure.prepend(bar, svg, panel);
  figure.classList.add("asks");
  draw();
  let width = size.width;
  addEventListener("resize", () => {
    if (figure.clientWidth !== width) draw();
    width = figure.clientWidth;
  });
})();
