"use strict";
for (const table of document.querySelectorAll("table.s")) {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const value = (row, i) => { const c = row.cells[i]; return c.dataset.v === undefined ? c.textContent : Number(c.dataset.v); };
  const sort = (i) => {
    const down = heads[i].getAttribute("aria-sort") === "descending", sign = down ? 1 : -1;
    heads.forEach((h) => h.removeAttribute("aria-sort"));
    heads[i].setAttribute("aria-sort", down ? "ascending" : "descending");
    rows.sort((a, b) => {
      const x = value(a, i), y = value(b, i);
      return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
    });
    body.append(...rows);
  };
  heads.forEach((head, i) => {
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(i));
    head.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); sort(i); } });
  });
  const input = document.createElement("input");
  input.type = "search";
  input.name = "filter";
  input.placeholder = "filter, such as: mlp bf16";
  input.setAttribute("aria-label", "filter the rows of the table");
  const texts = new Map(rows.map((r) => [r, [...r.querySelectorAll(".l")].map((c) => c.textContent).join(" ").toLowerCase()]));
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every((w) => texts.get(row).includes(w));
  });
  table.parentElement.before(input);
}
