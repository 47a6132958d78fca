"use strict";
const make = (name, text, more = {}) => Object.assign(document.createElement(name), { textContent: text }, more);
const texts = row => Array.from(row.cells, cell => cell.textContent);

// What a cell is sorted by: a number (1,234; 25.1k; 3.6 × 10 to the 11; −0.01 before its interval), or its text.
const SIZES = { k: 1e3, M: 1e6, B: 1e9, T: 1e12 };
function value(cell) {
  const [factor, power] = [cell.firstChild?.textContent ?? "", cell.querySelector("sup")?.textContent];
  const plain = text => Number.parseFloat(text.replaceAll("−", "-").replaceAll(",", ""));
  if (power) return plain(factor.replace(/(× )?10$/, "") || "1") * 10 ** plain(power);
  return plain(cell.textContent) * (SIZES[cell.textContent.trim().slice(-1)] ?? 1);
}

function sort(table, header) {
  const column = header.cellIndex, up = header.getAttribute("aria-sort") !== "ascending";
  const keys = new Map(Array.from(table.tBodies[0].rows, row => {
    const cell = row.cells[column];
    return [row, header.classList.contains("number") ? value(cell) : cell.textContent];
  }));
  const none = key => key === "" || Number.isNaN(key);
  const rows = [...keys.keys()].sort((one, other) => {
    const [a, b] = [keys.get(one), keys.get(other)];
    if (none(a) || none(b)) return none(a) - none(b);
    const order = typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
    return up ? order : -order;
  });
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", up ? "ascending" : "descending");
  table.tBodies[0].append(...rows);
}

async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "The browser refused: select and copy by hand";
  }
  setTimeout(() => { button.textContent = before; }, 2000);
}

// The lines of CSV text: a quoted cell may hold a line's end.
const lines = text => text.match(/(?:"[^"]*"|[^"\n])+/g) ?? [];

for (const table of document.querySelectorAll("table.sortable")) {
  const box = table.parentElement, name = box.getAttribute("aria-label");
  for (const header of table.tHead.rows[0].cells) {
    const button = make("button", header.textContent, { type: "button" });
    button.addEventListener("click", () => sort(table, header));
    header.replaceChildren(button);
  }
  const rows = Array.from(table.tBodies[0].rows);
  const found = new Map(rows.map(row => [row, texts(row).join(" ").toLowerCase()]));
  const tools = make("div", "", { className: "tools" });
  const label = make("label", "Filter ");
  const input = make("input", "", { type: "search", placeholder: "words of a row" });
  input.setAttribute("aria-label", `Filter ${name}`);
  label.append(input);
  const shown = make("output", `${rows.length} rows`);
  const button = make("button", "Copy these rows as CSV", { type: "button" });
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/);
    for (const row of rows) row.hidden = !words.every(word => found.get(row).includes(word));
    const left = rows.filter(row => !row.hidden).length;
    shown.textContent = left < rows.length ? `${left} of ${rows.length} rows` : `${rows.length} rows`;
  });
  button.addEventListener("click", () => {
    const [head, ...all] = lines(box.nextElementSibling?.querySelector("pre")?.textContent ?? "");
    const line = new Map(rows.map((row, number) => [row, all[number]]));
    const chosen = Array.from(table.tBodies[0].rows).filter(row => !row.hidden).map(row => line.get(row));
    copy([head, ...chosen, ""].join("\n"), button);
  });
  tools.append(label, shown, button);
  box.before(tools);
}

for (const block of document.querySelectorAll("pre.copy")) {
  const button = make("button", "Copy", { type: "button" });
  button.addEventListener("click", () => copy(block.textContent, button));
  block.after(button);
}

// A figure says below it which trial is under the pointer, or chosen with the arrow keys.
for (const box of document.querySelectorAll(".drawing")) {
  const points = Array.from(box.querySelectorAll("title"), title => title.parentElement);
  if (!points.length) continue;
  const readout = make("output", "", { className: "readout" });
  box.after(readout);
  let at = -1;
  const choose = number => {
    points[at]?.classList.remove("here");
    at = number;
    points[at]?.classList.add("here");
    readout.textContent = points[at]?.querySelector("title").textContent ?? "";
  };
  box.addEventListener("pointerover", event => {
    const number = points.indexOf(event.target.closest("use, path"));
    if (number >= 0) choose(number);
  });
  box.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") choose(-1);
    if (!step) return;
    event.preventDefault();
    choose((at + step + points.length) % points.length);
  });
}

// Each arm of a figure can be hidden, and its axes can be linear.
for (const figure of document.querySelectorAll("figure")) {
  const drawings = Array.from(figure.querySelectorAll(".drawing"));
  const linear = drawings.filter(drawing => drawing.classList.contains("linear"));
  if (!linear.length) continue;
  const tools = make("div", "", { className: "tools" });
  for (const [number, arm] of Object.entries(JSON.parse(figure.dataset.arms ?? "{}"))) {
    const label = make("label", ""), box = make("input", "", { type: "checkbox", checked: true });
    box.addEventListener("change", () => {
      for (const part of figure.querySelectorAll(`[data-arm="${number}"]`)) part.classList.toggle("off", !box.checked);
    });
    label.append(box, arm);
    tools.append(label);
  }
  const button = make("button", "Linear axes", { type: "button" });
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => {
    const pressed = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", String(pressed));
    for (const drawing of drawings) drawing.hidden = linear.includes(drawing) !== pressed;
  });
  tools.append(button);
  figure.prepend(tools);
}
