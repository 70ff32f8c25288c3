// The page over several runs: a table that sorts, two maps and their difference, and answers.
const runs = data.runs;
const names = [...new Set(runs.flatMap((run) => run.numbers.map((n) => n.name)))];
const number = (run, name) => run.numbers.find((n) => n.name === name);
const columns = [["run", (r) => r.name], ["kind", (r) => r.kind], ["of", (r) => `${r.title} · ${r.what}`], ["verdict", (r) => r.verdict], ...names.map((name) => [`${name} (%)`, (r) => (number(r, name) ? number(r, name).value : null)])];
const interval = (n) => (!n ? "–" : inPercent(n.value) + (n.low === null || n.low === undefined ? "" : ` [${inPercent(n.low)}, ${inPercent(n.high)}]`));

sortedTable("runs", columns, runs, (r) => [make("a", r.name, { href: r.link }), r.kind, `${r.title} · ${r.what}`, r.verdict, ...names.map((name) => interval(number(r, name)))]);

const probed = runs.filter((run) => run.heads);
function cellsOf(run, column) {
  const { layer, head } = run.heads, values = run.heads[column];
  const rows = Array.from({ length: Math.max(...layer) + 1 }, () => Array(Math.max(...head) + 1).fill(null));
  if (values) values.forEach((value, i) => { rows[layer[i]][head[i]] = value; });
  return rows;
}
const SCALE = () => (dark() ? [[0, "#f1a340"], [0.5, "#23282d"], [1, "#c4b3f5"]] : [[0, "#b35806"], [0.25, "#f1a340"], [0.5, "#f7f7f7"], [0.75, "#998ec3"], [1, "#3f1a75"]]);

function drawMaps() {
  const pair = [probed[$("first").value], probed[$("second").value]], column = $("measure").value;
  const [a, b] = pair.map((run) => cellsOf(run, column));
  const alike = a.length === b.length && a[0].length === b[0].length;
  const label = pair[0].labels.find((one) => column.startsWith(`${one.name}_`)), chance = label ? label.chance : 0.5;
  const minus = alike ? b.map((row, l) => row.map((v, h) => (v === null || a[l][h] === null ? null : v - a[l][h]))) : null;
  const map = (z, n, ends, name) => ({ type: "heatmap", z, xaxis: `x${n}`, yaxis: `y${n}`, zmin: ends[0], zmax: ends[1], colorscale: SCALE(), xgap: 1, ygap: 1, showscale: n !== 1, colorbar: { thickness: 10, outlinewidth: 0, x: n === 3 ? 1.01 : 0.64 }, hovertemplate: `${literal(name)}<br>layer %{y}, head %{x}: %{z:.3f}<extra></extra>` });
  const ends = [2 * chance - 1, 1], traces = [map(a, 1, ends, pair[0].name), map(b, 2, ends, pair[1].name)];
  const reach = minus ? Math.max(0.05, ...minus.flat().map((v) => Math.abs(v || 0))) : 0;
  if (minus) traces.push(map(minus, 3, [-reach, reach], "second minus first"));
  const layout = { height: Math.max(280, Math.min(40, 600 / a.length) * a.length + 90), annotations: [] };
  const domains = [[0, 0.28], [0.34, 0.62], [0.73, 1]];
  [pair[0].name, pair[1].name, minus ? "second minus first" : ""].forEach((name, i) => {
    layout[`xaxis${i + 1}`] = axis({ domain: domains[i], anchor: `y${i + 1}`, showgrid: false, title: { text: "head" }, visible: i < 2 || alike });
    layout[`yaxis${i + 1}`] = axis({ anchor: `x${i + 1}`, autorange: "reversed", showgrid: false, visible: i < 2 || alike, title: { text: i ? "" : "layer" } });
    layout.annotations.push({ xref: "paper", yref: "paper", x: domains[i][0], xanchor: "left", y: 1, yanchor: "bottom", showarrow: false, text: literal(name) });
  });
  let words = `${column.replace(/_/g, " ")} of ${pair[0].name} and ${pair[1].name}; they differ in their numbers of layers or heads.`;
  if (minus) {
    const flat = minus.flatMap((row, l) => row.map((v, h) => [v, l, h])).filter(([v]) => v !== null);
    const top = flat.reduce((x, y) => (Math.abs(y[0]) > Math.abs(x[0]) ? y : x), [0, 0, 0]);
    words = `${pair[1].name} minus ${pair[0].name}: largest difference ${told(top[0])} at layer ${top[1]}, head ${top[2]}.`;
  }
  $("difference").textContent = words;
  return { traces, layout, words };
}
if (probed.length > 1) {
  const choices = probed.map((run, n) => [String(n), `${run.name}: ${run.what}`]);
  fillSelect("first", choices, "0");
  fillSelect("second", choices, "1");
  const shared = Object.keys(probed[0].heads).filter((name) => name.endsWith("_accuracy") && probed.some((run, n) => n && name in run.heads));
  const sorted = [...shared].sort((a, b) => b.includes("_validation_") - a.includes("_validation_"));
  fillSelect("measure", sorted.map((name) => [name, name.replace(/_/g, " ")]));
  if (shared.length) {
    const redraw = plot("maps", drawMaps);
    for (const id of ["first", "second", "measure"]) $(id).addEventListener("change", redraw);
  } else $("maps-box").remove();
} else $("maps-box").remove();

const BELIEF = { TB: "true", FB: "false", Both: "blue", overall: "accent" };
// A sweep stands as chosen, then as it is and its controls.
const asked = runs.flatMap((run) => [run, ...run.beside]).filter((run) => run.numbers.some((n) => n.name in BELIEF));
function drawAnswers() {
  const traces = Object.entries(BELIEF).map(([name, shade], k) => {
    const own = asked.filter((run) => number(run, name)), found = own.map((run) => number(run, name));
    return { x: found.map((n) => n.value), y: own.map((run) => asked.indexOf(run) + (k - 1) * 0.18), name, mode: "markers", visible: own.length > 0, text: own.map((run) => literal(run.name)), hovertemplate: `%{text}, ${name}: %{x:.1%}<extra></extra>`, marker: { size: 10, symbol: MARKS[k], color: colour(shade) }, error_x: { type: "data", symmetric: false, array: found.map((n) => n.high - n.value), arrayminus: found.map((n) => n.value - n.low), thickness: 2, width: 4, color: colour(shade) } };
  });
  return {
    traces,
    layout: { height: 140 + 64 * asked.length, xaxis: axis({ title: { text: "share (95 % intervals; of draws mean, lowest and highest)" }, range: [-0.03, 1.03], tickformat: ".0%" }), yaxis: axis({ tickvals: asked.map((_, i) => i), ticktext: asked.map((run) => literal(run.name)), range: [asked.length - 0.5, -0.5] }) },
    words: asked.map((run) => `${run.name}: ${run.numbers.map((n) => `${n.name} ${interval(n)}`).join(", ")}`).join("; "),
  };
}
if (asked.length) plot("answers", drawAnswers);
else $("answers-box").remove();
csvLink("runs", Object.fromEntries(columns.map(([name, key]) => [name, runs.map(key)])));
