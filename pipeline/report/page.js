"use strict";
// Puts tables in order, shows some encodings, families and seeds only, and tells the numbers of the
// point under the pointer. Everything it knows stands in the page; without it everything is shown.
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // ---------------------------------------------------------------- tables in order

  const NUMBER = /^[-−+]?[\d,]*\.?\d+(e[-+]?\d+)?\*?$/i;

  /** What a row is put in order by: a number, a text, or null for nothing there. */
  function keyOf(row, column) {
    let end = 0;
    for (const cell of row.cells) {
      end += cell.colSpan;
      if (end <= column) continue;
      if (cell.classList.contains("undefined")) return null;
      if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
      const text = [...cell.childNodes]
        .filter((node) => node.nodeName !== "SMALL")
        .map((node) => node.textContent)
        .join("")
        .trim();
      if (["", "-", "–", "not defined", "not available"].includes(text)) return null;
      return NUMBER.test(text) ? parseFloat(text.replace("−", "-").replaceAll(",", "")) : text;
    }
    return null;
  }

  /** Smaller first, or larger with `sign` -1; what has no value comes last both ways. */
  function inOrder(a, b, sign) {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  }

  function sortBy(table, title) {
    const down = title.getAttribute("aria-sort") === "ascending";
    for (const other of all("thead th[aria-sort]", table)) other.removeAttribute("aria-sort");
    title.setAttribute("aria-sort", down ? "descending" : "ascending");
    const column = title.cellIndex;
    const arrange = (parent, parts, rowOf) => {
      const keyed = parts.map((part) => [keyOf(rowOf(part), column), part]);
      keyed.sort((a, b) => inOrder(a[0], b[0], down ? -1 : 1));
      parent.append(...keyed.map(([, part]) => part));
    };
    if (table.dataset.sort === "groups") {
      arrange(table, [...table.tBodies], (body) => body.rows[0]);
    } else {
      for (const body of table.tBodies) {
        const rows = [...body.rows].filter((row) => !("fixed" in row.dataset));
        arrange(body, rows, (row) => row);
      }
    }
  }

  function makeSortable(table) {
    for (const title of all("thead th", table)) {
      if (title.textContent.trim() === "") continue;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...title.childNodes);
      title.append(button);
      button.addEventListener("click", () => sortBy(table, title));
    }
  }

  // ---------------------------------------------------------------- filters

  const panel = document.getElementById("filter");
  const boxes = all("input", panel);
  const named = (name) => boxes.filter((box) => box.name === name);

  /** The row or rows that a title stands for; anything else is itself. */
  function whole(element) {
    if (element.tagName !== "TH" || !element.closest("tbody")) return element;
    return element.closest(element.rowSpan > 1 ? "tbody" : "tr");
  }

  const filtered = all("main [data-encoding], main [data-against]").map((element) => [
    whole(element),
    element.dataset,
  ]);

  function apply() {
    const checked = (name) => named(name).filter((box) => box.checked);
    const families = new Set(checked("family").map((box) => box.value));
    const encodings = new Set(
      checked("encoding")
        .filter((box) => families.has(box.dataset.family))
        .map((box) => box.value),
    );
    const seeds = new Set(checked("seed").map((box) => box.value));
    const fits = (chosen, value) => value === undefined || chosen.has(value);
    const seedsChosen = seeds.size < named("seed").length;
    document.body.classList.toggle("by-seed", seedsChosen);
    for (const [element, of] of filtered) {
      const shown =
        fits(encodings, of.encoding) && fits(encodings, of.against) && fits(seeds, of.seed);
      element.toggleAttribute("hidden", !shown);
    }
    say(encodings, seeds, seedsChosen);
  }

  function say(encodings, seeds, seedsChosen) {
    const some = encodings.size < named("encoding").length;
    let text = "everything is shown";
    if (seedsChosen) text = "all encodings";
    if (some) text = `${encodings.size} of ${named("encoding").length} encodings`;
    if (seedsChosen) {
      const kept = seeds.size ? `only seed ${[...seeds].join(", ")}` : "no seed";
      text += `, ${kept}: means and intervals over seeds are hidden, single seeds are shown`;
    }
    document.getElementById("shown").textContent = text;
  }

  function setAll(name, to) {
    for (const box of named(name)) box.checked = to;
    apply();
  }

  // ---------------------------------------------------------------- numbers under the pointer

  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;

  const visible = (element) => getComputedStyle(element).display !== "none";

  /** The numbers of all points that lie under the pointer together. */
  function numbersAt(circle) {
    const [x, y, r] = ["cx", "cy", "r"].map((name) => Number(circle.getAttribute(name)));
    return all("circle", circle.parentNode)
      .filter((one) => Math.hypot(one.getAttribute("cx") - x, one.getAttribute("cy") - y) <= r)
      .filter(visible)
      .map((one) => one.dataset.text);
  }

  /** The name of the line under the pointer. */
  function nameOf(line) {
    const box = named("encoding").find((one) => one.value === line.dataset.encoding);
    const name = box ? box.parentNode.textContent : "";
    return line.dataset.seed === undefined ? name : `${name}, seed ${line.dataset.seed}`;
  }

  function show(event) {
    const circle = event.target.closest(".points circle");
    const line = event.target.closest("svg g[data-encoding]");
    tip.hidden = !circle && !line;
    if (tip.hidden) return;
    tip.textContent = circle ? numbersAt(circle).join("\n") : nameOf(line);
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 16;
    const above = event.clientY - tip.offsetHeight - 12;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${below + tip.offsetHeight > innerHeight ? Math.max(8, above) : below}px`;
  }

  // ---------------------------------------------------------------- start

  all("table[data-sort]").forEach(makeSortable);
  for (const circle of all(".points circle")) {
    const title = circle.querySelector("title");
    circle.dataset.text = title.textContent;
    title.remove(); // else browsers show it too
  }
  document.body.append(tip);
  for (const figure of all("figure")) {
    figure.addEventListener("pointerover", show);
    figure.addEventListener("pointerleave", () => (tip.hidden = true));
  }
  panel.addEventListener("change", apply);
  panel.addEventListener("click", (event) => {
    const { set, to } = event.target.dataset;
    if (set) setAll(set, to === "all");
  });
  panel.hidden = false;
  // a browser that goes back to the page keeps what was checked
  apply();
})();
