"use strict";
// Layer 10 comes after layer 9.
const texts = new Intl.Collator(undefined, { numeric: true });
for (const table of document.querySelectorAll("table.s")) {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const value = (row, i) => { const c = row.cells[i]; return c.dataset.v === undefined ? c.textContent : Number(c.dataset.v); };
  const sort = (i) => {
    const down = heads[i].getAttribute("aria-sort") === "descending", sign = down ? 1 : -1;
    heads.forEach((h) => h.removeAttribute("aria-sort"));
    heads[i].setAttribute("aria-sort", down ? "ascending" : "descending");
    rows.sort((a, b) => {
      const x = value(a, i), y = value(b, i);
      return sign * (typeof x === "number" && typeof y === "number" ? x - y : texts.compare(x, y));
    });
    body.querySelectorAll("tr.p").forEach((r) => r.remove());
    body.append(...rows);
  };
  heads.forEach((head, i) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    head.addEventListener("click", () => sort(i));
  });
  const input = document.createElement("input");
  input.type = "search";
  input.name = "filter";
  input.placeholder = "filter, such as: mlp bf16";
  input.setAttribute("aria-label", "filter the rows of the table");
  const words = new Map(rows.map((r) => [r, [...r.querySelectorAll(".l")].map((c) => c.textContent).join(" ").toLowerCase()]));
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    body.querySelectorAll("tr.p").forEach((r) => r.remove());
    for (const row of rows) row.hidden = !wanted.every((w) => words.get(row).includes(w));
  });
  table.parentElement.before(input);
}

const SVG = document.querySelector("svg").namespaceURI;
const make = (name, attributes, parent) => {
  const e = document.createElementNS(SVG, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  parent.append(e);
  return e;
};
const button = (e, name, act) => {
  e.setAttribute("role", "button");
  e.tabIndex = 0;
  e.title = name;
  e.addEventListener("click", act);
  e.addEventListener("keydown", (k) => { if (k.key === "Enter" || k.key === " ") { k.preventDefault(); act(); } });
};
// A click on a name below a chart takes its line away, and brings it back.
for (const figure of document.querySelectorAll("figure")) {
  const lines = figure.querySelectorAll(":scope > svg > g"), names = figure.querySelectorAll(":scope > .k > span");
  if (lines.length > 1 && lines.length === names.length) names.forEach((name, i) => {
    name.setAttribute("aria-pressed", true);
    button(name, "show or hide", () => {
      name.setAttribute("aria-pressed", name.classList.contains("off"));
      [name, lines[i]].forEach((e) => e.classList.toggle("off"));
    });
  });
}
// A click on the name of a tensor shows its curves, and which of its bits change.
const study = JSON.parse(document.querySelector("script[type='application/json']").textContent);
const figure = (title, parent) => {
  const f = parent.appendChild(document.createElement("figure"));
  f.append(Object.assign(document.createElement("figcaption"), { textContent: title }));
  return f;
};
const short = (y) => String(Number(y.toPrecision(4)));
const curve = (title, values, parent) => {
  const first = study.checkpoints.length - values.length;
  const points = values.map((y, i) => [study.checkpoints[i + first].step, y]).filter((p) => p[1] !== null);
  if (points.length === 0) return;
  const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const svg = make("svg", { viewBox: "0 0 400 130", role: "img", "aria-label": title }, figure(title, parent));
  const x = (at) => 60 + 325 * (at - left) / (right - left || 1), y = (at) => 105 - 95 * (at - low) / (high - low || 1);
  for (const at of new Set([low, high])) {
    make("path", { class: "g", d: `M60 ${y(at)}H385` }, svg);
    make("text", { class: "t", x: 55, y: y(at) + 4, "text-anchor": "end" }, svg).textContent = short(at);
  }
  for (const at of new Set([left, right])) make("text", { class: "t", x: x(at), y: 123, "text-anchor": "middle" }, svg).textContent = at;
  make("path", { class: "l s0", d: "M" + points.map((p) => `${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join("L") }, svg);
  for (const p of points.length > 30 ? [] : points) {
    make("title", {}, make("circle", { class: "f0", cx: x(p[0]), cy: y(p[1]), r: 3 }, svg)).textContent = `${p[0]}: ${short(p[1])}`;
  }
};
const bits = (title, change, parent) => {
  const n = change.flips.length, svg = make("svg", { viewBox: "0 0 400 130", role: "img", "aria-label": title }, figure(title, parent));
  const most = Math.max(...change.flips, 1);
  change.flips.forEach((count, bit) => {
    const h = 100 * count / most, x = 390 * (n - 1 - bit) / n + 5;
    const bar = make("rect", { class: "f0", x, y: 105 - h, width: 390 / n - 1, height: h }, svg);
    make("title", {}, bar).textContent = `bit ${bit}: ${short(100 * count / change.compared)} %`;
    if (bit % (n > 32 ? 8 : n > 16 ? 4 : 2) === 0) make("text", { class: "t", x: x + 195 / n, y: 123, "text-anchor": "middle" }, svg).textContent = bit;
  });
};
const rows = [...document.querySelectorAll("tr[data-i]")];
for (const row of study.checkpoints?.length > 1 && study.tensors?.some((t) => t.course.norm.length) ? rows : []) {
  const t = study.tensors[row.dataset.i], cell = row.cells[0], name = document.createElement("span");
  if (!t.course.norm.length && !t.change) continue;
  name.append(...cell.childNodes);
  cell.append(name);
  button(name, "show or hide curves", () => {
    if (row.nextElementSibling?.className === "p") return row.nextElementSibling.remove();
    const shown = document.createElement("tr"), all = shown.insertCell();
    shown.className = "p";
    all.colSpan = row.cells.length;
    const charts = all.appendChild(document.createElement("div"));
    charts.className = "charts";
    const c = t.course;
    curve("Norm of the weights", c.norm, charts);
    curve("RMS of the updates", c.update_rms, charts);
    curve("‖Δw‖ / ‖w‖", c.ratio, charts);
    curve("Cosine of successive updates", c.cosine, charts);
    curve("Part of the elements that changed", c.changed, charts);
    if (t.change) bits("Which bits change, the highest first", t.change, charts);
    row.after(shown);
  });
}
