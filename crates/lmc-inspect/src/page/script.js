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
    for (const row of rows) row.hidden = !wanted.every((w) => words.get(row).includes(w));
  });
  table.parentElement.before(input);
}
