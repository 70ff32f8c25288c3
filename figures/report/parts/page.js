"use strict";
// What all pages share: theme, colours, tables, plots that are drawn anew when the theme changes.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const dark = () => document.documentElement.dataset.theme === "dark";
// Plotly takes a few HTML marks in its texts for its own.
const literal = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const told = (value, digits = 2) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const inPercent = (value) => (value === null || value === undefined ? "–" : (100 * value).toFixed(1));
const CLASSES = ["true", "false", "blue", "pink"];
const MARKS = ["circle", "triangle-up", "square", "diamond"];
const DRAWN = [];

function make(tag, words, attributes = {}, children = []) {
  const element = document.createElement(tag);
  if (words !== null && words !== undefined) element.textContent = words;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function tableParts(columns, rows, caption) {
  const head = make("thead", null, {}, [make("tr", null, {}, columns.map((c) => make("th", c, { scope: "col" })))]);
  const cell = (c) => (c instanceof Node ? make("td", null, {}, [c]) : Array.isArray(c) ? make("td", c[0], { class: c[1] }) : make("td", c));
  const body = make("tbody", null, {}, rows.map((row) => make("tr", null, {}, row.map(cell))));
  return [...(caption ? [make("caption", caption)] : []), head, body];
}
function fillTable(id, columns, rows, caption) { $(id).replaceChildren(...tableParts(columns, rows, caption)); }

// `columns` are names with what a row is sorted by; `cells` gives what a row shows.
function sortedTable(id, columns, rows, cells, caption) {
  const now = { by: null, down: true };
  const fill = () => {
    const order = [...rows];
    if (now.by !== null) {
      const key = columns[now.by][1];
      // What has no value stands last, whichever way it is sorted.
      order.sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === null || y === null) return (x === null) - (y === null);
        return (x < y ? -1 : x > y ? 1 : 0) * (now.down ? -1 : 1);
      });
    }
    fillTable(id, columns.map(([name]) => name), order.map(cells), caption);
    [...$(id).querySelectorAll("th")].forEach((th, n) => {
      const button = make("button", `${columns[n][0]}${n === now.by ? (now.down ? " ▼" : " ▲") : ""}`, { type: "button" });
      if (n === now.by) th.setAttribute("aria-sort", now.down ? "descending" : "ascending");
      button.addEventListener("click", () => {
        now.down = n === now.by ? !now.down : true;
        now.by = n;
        fill();
        $(id).querySelectorAll("th button")[n].focus();
        $("status").textContent = `sorted by ${columns[n][0]}, ${now.down ? "highest" : "lowest"} first`;
      });
      th.replaceChildren(button);
    });
  };
  fill();
}

function fillSelect(id, choices, chosen) {
  $(id).replaceChildren(...choices.map(([value, words]) => make("option", words, { value })));
  if (chosen !== undefined) $(id).value = chosen;
}

function axis(more = {}) {
  return { color: colour("soft"), gridcolor: colour("grid"), zeroline: false, linecolor: colour("line"), automargin: true, ...more };
}

// `draw` gives traces and layout; `words` what the picture shows, for those who do not see it.
function plot(id, draw) {
  const redraw = () => {
    const { traces, layout, words } = draw();
    if (words) $(id).setAttribute("aria-label", words);
    const base = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour("ink"), family: "system-ui, sans-serif", size: 13 },
      margin: { l: 56, r: 16, t: 34, b: 46 }, hoverlabel: { align: "left" }, dragmode: false, hovermode: "closest",
      legend: { orientation: "h", y: -0.2, x: 0 }, modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("soft"), activecolor: colour("ink") },
    };
    const config = { displaylogo: false, displayModeBar: "hover", responsive: true, scrollZoom: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
    return Plotly.react(id, traces, { ...base, ...layout }, config);
  };
  DRAWN.push(redraw);
  redraw();
  return redraw;
}

function bytes(text, type) {
  const raw = atob(text), found = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) found[i] = raw.charCodeAt(i);
  return new type(found.buffer);
}

function csvLink(name, columns) {
  const names = Object.keys(columns);
  const quoted = (v) => (v === null ? "" : /[",\n]/.test(String(v)) ? `"${String(v).replace(/"/g, '""')}"` : String(v));
  const button = make("button", `${name} (CSV)`, { type: "button" });
  button.addEventListener("click", () => {
    const lines = [names.map(quoted).join(",")];
    for (let i = 0; i < columns[names[0]].length; i += 1) lines.push(names.map((n) => quoted(columns[n][i])).join(","));
    const link = make("a", null, { download: `${name}.csv`, href: URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" })) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  $("downloads").append(button, " ");
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  DRAWN.forEach((redraw) => redraw());
}
const wanted = matchMedia("(prefers-color-scheme: dark)");
setTheme(wanted.matches ? "dark" : "light");
wanted.addEventListener("change", () => setTheme(wanted.matches ? "dark" : "light"));
$("theme").addEventListener("click", () => setTheme(dark() ? "light" : "dark"));

for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", () => {
    const code = button.parentElement.querySelector("code");
    const marked = () => {
      getSelection().selectAllChildren(code);
      button.textContent = "marked: copy with Ctrl+C";
    };
    // From a file the clipboard may be closed; then the words are at least marked.
    if (!navigator.clipboard) marked();
    else navigator.clipboard.writeText(code.textContent).then(() => { button.textContent = "copied"; }, marked);
  });
}
