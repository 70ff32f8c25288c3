// The page of a sweep: accuracy against alpha, with a slider over the strengths that were run.
const inRows = (table) => table.alpha.map((_, i) => Object.fromEntries(Object.entries(table).map(([name, values]) => [name, values[i]])));
const rows = inRows(data.curves), refused = inRows(data.refused);
const settings = [...new Map(rows.map((r) => [`${r.panel}/${r.heads}/${r.k}`, { panel: r.panel, heads: r.heads, k: r.k }])).values()];
const COLOURS = { TB: "true", FB: "false", Both: "blue", invalid: "missing", initial: "pink", reality: "brown" };
const SPOKEN = { invalid: "invalid replies", initial: "initial belief", reality: "reality" };
const now = { setting: settings[0], at: 0 };
const several = (name) => new Set(settings.map((s) => s[name])).size > 1;
const called = (s) => [`K = ${s.k}`, ...(several("panel") ? [s.panel] : []), ...(several("heads") ? [`heads by ${s.heads}`] : [])].join(", ");
const ofSetting = (r) => r.panel === now.setting.panel && r.heads === now.setting.heads && r.k === now.setting.k;
const own = () => rows.filter(ofSetting);
const costly = (alpha) => refused.some((r) => ofSetting(r) && r.alpha === alpha);
const alphas = () => [...new Set(own().map((r) => r.alpha))].sort((a, b) => a - b);
const isChosen = (s) => data.chosen && s.panel === data.chosen.direction && s.heads === (data.chosen.heads || "probe") && s.k === data.chosen.k;

// Strengths stand side by side, evenly, as they are stepped through: grids reach over powers of ten.
function line(points, name, shade, more = {}, banded = true) {
  const places = alphas(), sorted = [...points].sort((a, b) => a.alpha - b.alpha), x = sorted.map((r) => places.indexOf(r.alpha));
  const band = { x: [...x, ...[...x].reverse()], y: [...sorted.map((r) => r.high), ...sorted.map((r) => r.low).reverse()], fill: "toself", fillcolor: shade, opacity: 0.16, line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false };
  return [...(banded ? [band] : []), { x, y: sorted.map((r) => r.value), mode: "lines+markers", name: literal(name), text: sorted.map((r) => `alpha ${r.alpha}: ${inPercent(r.value)} [${inPercent(r.low)}, ${inPercent(r.high)}] of ${r.n}`), hovertemplate: `${literal(name)}<br>%{text}<extra></extra>`, line: { color: shade, width: name === "Both" ? 3.5 : 2, ...more }, marker: { size: name === "Both" ? 8 : 6, color: shade } }];
}

function drawCurves() {
  const points = own(), places = alphas(), traces = [];
  for (const [control, words] of Object.entries(data.controls)) {
    const drawn = points.filter((r) => r.direction === control && control !== now.setting.panel);
    if (drawn.length) traces.push(...line(drawn, `Both, ${words}`, colour(control === "random" ? "soft" : "ring"), { dash: "dot" }));
  }
  // Both lies below TB and FB, on which it often stands.
  for (const measure of ["Both", ...data.measures.filter((m) => m !== "Both")]) {
    const drawn = points.filter((r) => r.direction === now.setting.panel && r.measure === measure);
    const dash = measure === "initial" || measure === "reality" ? "dash" : measure === "TB" ? "longdash" : "solid";
    if (drawn.length) traces.push(...line(drawn, SPOKEN[measure] || measure, colour(COLOURS[measure]), { dash }, measure === "Both"));
  }
  const plain = points.find((r) => r.measure === "Both" && r.alpha === 0);
  const shapes = [{ type: "line", x0: now.at, x1: now.at, yref: "paper", y0: 0, y1: 1, line: { color: colour("accent"), width: 2 } }];
  if (plain) shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, y0: plain.value, y1: plain.value, line: { color: colour("ink"), width: 1, dash: "dot" } });
  const annotations = plain ? [{ xref: "paper", x: 1, xanchor: "right", yanchor: "bottom", y: plain.value, text: "Both as it is", showarrow: false, font: { size: 12, color: colour("soft") } }] : [];
  const rings = points.filter((r) => r.measure === "Both" && r.direction === now.setting.panel && costly(r.alpha));
  if (rings.length) traces.push({ x: rings.map((r) => places.indexOf(r.alpha)), y: rings.map((r) => r.value), mode: "markers", name: "better, but costs too much", marker: { symbol: "circle-open", size: 16, color: colour("ring"), line: { width: 2.5 } }, hoverinfo: "skip" });
  if (isChosen(now.setting)) {
    const both = points.find((r) => r.measure === "Both" && r.direction === now.setting.panel && r.alpha === data.chosen.alpha);
    traces.push({ x: [places.indexOf(data.chosen.alpha)], y: [both && both.value], mode: "markers", name: "chosen", marker: { symbol: "star", size: 18, color: colour("accent"), line: { width: 1.5, color: colour("paper") } }, hoverinfo: "skip" });
  }
  const best = points.filter((r) => r.measure === "Both" && r.direction === now.setting.panel).sort((a, b) => b.value - a.value)[0];
  return {
    traces,
    layout: {
      height: 470, shapes, annotations, xaxis: axis({ title: { text: "alpha (standard deviations), each strength that was run" }, tickvals: places.map((_, i) => i), ticktext: places.map(String), range: [-0.4, places.length - 0.6] }),
      yaxis: axis({ title: { text: "accuracy" }, range: [-0.03, 1.05], tickformat: ".0%" }), legend: { orientation: "h", y: -0.2, x: 0 },
    },
    words: `Accuracy against alpha, ${called(now.setting)}: Both is highest at alpha ${best.alpha} with ${inPercent(best.value)} percent, as it is ${plain ? inPercent(plain.value) : "not known"} percent.`,
  };
}

function fillAt() {
  const alpha = alphas()[now.at], points = own(), plain = (measure) => points.find((r) => r.measure === measure && r.alpha === 0);
  $("alpha-said").textContent = String(alpha);
  $("alpha").setAttribute("aria-valuetext", `alpha ${alpha}`);
  const shown = data.measures.map((measure) => [measure, points.find((r) => r.measure === measure && r.direction === now.setting.panel && r.alpha === alpha)]).filter(([, r]) => r);
  const said = (r) => `${inPercent(r.value)} [${inPercent(r.low)}, ${inPercent(r.high)}]`;
  const table = shown.map(([measure, r]) => [SPOKEN[measure] || measure, said(r), plain(measure) ? (100 * (r.value - plain(measure).value)).toFixed(1) : "–", String(r.n)]);
  for (const [control, words] of Object.entries(data.controls)) {
    const r = points.find((p) => p.direction === control && p.alpha === alpha);
    if (r && alpha !== 0 && control !== now.setting.panel) table.push([`Both, ${words}`, said(r), plain("Both") ? (100 * (r.value - plain("Both").value)).toFixed(1) : "–", String(r.n)]);
  }
  fillTable("numbers", ["measure", "% [95 %]", "minus as it is", "n"], table, `${called(now.setting)}, alpha ${alpha}`);
  const both = shown.find(([measure]) => measure === "Both");
  $("status").textContent = `${called(now.setting)}, alpha ${alpha}: Both ${both ? inPercent(both[1].value) : "–"} %${isChosen(now.setting) && alpha === data.chosen.alpha ? ", the chosen point" : costly(alpha) ? ", but it costs too much" : ""}`;
  fillReplies(alpha);
}

function fillReplies(alpha) {
  if (!data.replies.items) { $("replies-box").replaceChildren(make("p", "This sweep keeps no replies.", { class: "hint" })); return; }
  const key = alpha === 0 ? "unsteered" : `${now.setting.panel}/${now.setting.heads}/${now.setting.k}/${alpha}`;
  const before = data.replies.cells.unsteered, after = data.replies.cells[key];
  if (!after) { fillTable("replies", ["no replies of this strength"], []); return; }
  const cell = ([text, right]) => [text || "(nothing)", right ? "right" : "wrong"];
  fillTable("replies", ["story", "belief", "answer", "as it is", `alpha ${alpha}`], data.replies.items.map((item, n) => [item.story, item.condition, item.answer, cell(before[n]), cell(after[n])]), "Sample replies");
}

function step(at) { now.at = at; $("alpha").value = String(at); fillAt(); redraw(); }
function chooseSetting(setting) {
  const alpha = alphas()[now.at];
  now.setting = setting;
  $("setting").value = String(settings.indexOf(setting));
  $("alpha").max = String(alphas().length - 1);
  step(Math.max(0, alphas().indexOf(alpha)));
}
let redraw = () => {};
fillSelect("setting", settings.map((s, n) => [String(n), called(s) + (isChosen(s) ? " (chosen)" : "")]));
const goToChosen = () => {
  const found = settings.find(isChosen);
  if (!found) return;
  chooseSetting(found);
  step(alphas().indexOf(data.chosen.alpha));
};
chooseSetting(settings[0]);
goToChosen();
redraw = plot("curves", drawCurves);
$("setting").addEventListener("change", () => chooseSetting(settings[Number($("setting").value)]));
$("alpha").addEventListener("input", () => step(Number($("alpha").value)));
$("chosen").addEventListener("click", goToChosen);
$("curves").on("plotly_click", (event) => step(Math.round(event.points[0].x)));
csvLink("sweep", data.table);
