// The page of a probing run: a map of all heads, one head opened, and curves over all of them.
const heads = data.heads, samples = data.samples;
const COUNT = heads.layer.length;
const LAYERS = Math.max(...heads.layer) + 1, ACROSS = Math.max(...heads.head) + 1;
const SPLITS = ["validation", "test", "train"];
const VERDICTS = { "readable and used": "true", "used, not readable": "blue", "readable, not used": "false", "neither readable nor used": "missing", "": "missing" };
const place = new Map(heads.layer.map((layer, i) => [`${layer},${heads.head[i]}`, i]));
const now = { label: data.labels[0], measure: "", head: 0, cursor: 0, shown: "held-out", kind: data.kinds[0] };
now.head = now.cursor = place.get(data.labels[0].best.join());

const column = (name) => heads[name] || heads.layer.map(() => null);
const accuracy = (split, label = now.label) => column(`${label.name}_${split}_accuracy`);
const called = (i) => `layer ${heads.layer[i]}, head ${heads.head[i]}`;
const kindOf = (name) => data.kinds.find((kind) => kind.name === name);

// What the map shows: values, the line between what counts and what does not, the middle of its colours.
function measured() {
  const kind = kindOf(now.measure);
  if (kind) {
    const values = column(`${kind.name}_patch`), low = column(`${kind.name}_patch_low`);
    const reach = Math.max(0.1, ...values.map((v) => Math.abs(v || 0)));
    return { values, above: low.map((v) => v > 1 / COUNT), middle: 0, ends: [-reach, reach], what: `share of the gap carried: ${kind.said}`, line: "used: interval above an equal part of all" };
  }
  const values = accuracy(now.measure), { threshold } = now.label;
  const chance = column(`${now.label.name}_${now.measure}_chance`)[0] || now.label.chance;
  const lowest = Math.min(chance, ...values.filter((v) => v !== null));
  const reach = Math.max(1 - chance, chance - lowest);
  const limited = now.measure === "validation" && threshold !== null;
  return {
    values, above: limited ? values.map((v) => v > threshold) : null, middle: chance, ends: [chance - reach, chance + reach], threshold: limited ? threshold : null,
    what: `${now.measure} accuracy of ${now.label.said}`, line: limited ? `outlined: above the null (${told(threshold)})` : "",
  };
}

// Orange below the middle, purple above: apart for colour-blind readers, and by lightness.
function scale() {
  const middle = dark() ? "#23282d" : "#f7f7f7";
  return dark()
    ? [[0, "#f1a340"], [0.25, "#8a5f2b"], [0.5, middle], [0.75, "#6d5fa8"], [1, "#c4b3f5"]]
    : [[0, "#b35806"], [0.25, "#f1a340"], [0.5, middle], [0.75, "#998ec3"], [1, "#3f1a75"]];
}

// Sides of cells that count against cells that do not, as one broken line.
function outline(above) {
  const x = [], y = [];
  const counts = (layer, head) => above[place.get(`${layer},${head}`)] === true;
  const side = (x0, y0, x1, y1) => { x.push(x0, x1, null); y.push(y0, y1, null); };
  for (let l = 0; l < LAYERS; l += 1) {
    for (let h = 0; h < ACROSS; h += 1) {
      if (!counts(l, h)) continue;
      if (!counts(l - 1, h)) side(h - 0.5, l - 0.5, h + 0.5, l - 0.5);
      if (!counts(l + 1, h)) side(h - 0.5, l + 0.5, h + 0.5, l + 0.5);
      if (!counts(l, h - 1)) side(h - 0.5, l - 0.5, h - 0.5, l + 0.5);
      if (!counts(l, h + 1)) side(h + 0.5, l - 0.5, h + 0.5, l + 0.5);
    }
  }
  return { x, y };
}

function grid(values) {
  const rows = Array.from({ length: LAYERS }, () => Array(ACROSS).fill(null));
  values.forEach((value, i) => { rows[heads.layer[i]][heads.head[i]] = value; });
  return rows;
}

function drawMap() {
  const shown = measured(), cells = grid(shown.values);
  const mark = (i, symbol, name, size) => ({ x: [heads.head[i]], y: [heads.layer[i]], mode: "markers", hoverinfo: "skip", name, showlegend: true, marker: { symbol, size, color: colour("ring"), line: { width: 2.5, color: colour("ring") } } });
  const layers = cells.map((_, l) => l);
  const present = cells.map((row) => row.filter((v) => v !== null));
  const traces = [
    { type: "heatmap", z: cells, zmin: shown.ends[0], zmax: shown.ends[1], colorscale: scale(), xgap: 1, ygap: 1, hovertemplate: "layer %{y}, head %{x}: %{z:.3f}<extra></extra>", colorbar: { title: { text: "", side: "right" }, thickness: 12, x: 1.01, outlinewidth: 0 } },
    mark(place.get(now.label.best.join()), "circle-open", `best on validation`, 18),
    mark(now.cursor, "square-open", "chosen", 22),
  ];
  if (shown.above) traces.push({ ...outline(shown.above), mode: "lines", line: { color: colour("ink"), width: 2 }, hoverinfo: "skip", name: literal(shown.line) });
  const mean = present.map((row) => (row.length ? row.reduce((a, b) => a + b, 0) / row.length : null));
  const most = present.map((row) => (row.length ? Math.max(...row) : null));
  const aside = { xaxis: "x2", hovertemplate: "layer %{y}: %{x:.3f}<extra></extra>" };
  traces.push({ ...aside, x: most, y: layers, mode: "lines+markers", name: "best of the layer", line: { color: colour("accent"), width: 2.5 }, marker: { size: 4 } });
  traces.push({ ...aside, x: mean, y: layers, mode: "lines", name: "mean of the layer", line: { color: colour("soft"), width: 1.5, dash: "dot" } });
  const limit = kindOf(now.measure) ? 1 / COUNT : shown.threshold;
  const shapes = [{ type: "line", xref: "x2", yref: "paper", x0: shown.middle, x1: shown.middle, y0: 0, y1: 1, line: { color: colour("soft"), width: 1, dash: "dot" } }];
  if (limit !== null && limit !== undefined) {
    shapes.push({ type: "rect", xref: "x2", yref: "paper", x0: shown.middle, x1: limit, y0: 0, y1: 1, fillcolor: colour("band"), line: { width: 0 } });
    shapes.push({ type: "line", xref: "x2", yref: "paper", x0: limit, x1: limit, y0: 0, y1: 1, line: { color: colour("ring"), width: 1.5, dash: "dash" } });
  }
  const band = kindOf(now.measure) ? "equal part" : "null";
  const side = Math.max(14, Math.min(44, 640 / LAYERS));
  const top = shown.values.reduce((a, v, i) => (v !== null && (a < 0 || v > shown.values[a]) ? i : a), -1);
  const counted = shown.above ? ` ${shown.above.filter(Boolean).length} of ${COUNT} heads are ${kindOf(now.measure) ? "used" : "above the null"}.` : "";
  return {
    traces,
    layout: {
      height: Math.max(300, side * LAYERS + 150), shapes, title: { text: literal(shown.what), font: { size: 14 }, x: 0, xref: "paper" },
      xaxis: axis({ domain: [0, 0.74], title: { text: "head" }, range: [-0.5, ACROSS - 0.5], showgrid: false, constrain: "domain", dtick: ACROSS <= 16 ? 1 : 4 }),
      yaxis: axis({ title: { text: "layer" }, range: [LAYERS - 0.5, -0.5], showgrid: false, dtick: LAYERS <= 16 ? 1 : 4 }),
      xaxis2: axis({ domain: [0.79, 1], title: { text: limit === null || limit === undefined ? "by layer" : `by layer (band: ${band})` } }),
      legend: { orientation: "h", y: -0.16, x: 0 },
    },
    words: `Map of ${LAYERS} layers by ${ACROSS} heads: ${shown.what}. Highest: ${told(shown.values[top])} at ${called(top)}.${counted} Arrow keys move, Enter opens a head.`,
  };
}

function tell(i) {
  const shown = measured();
  const beside = shown.above ? `, ${kindOf(now.measure) ? (shown.above[i] ? "used" : "not used") : shown.above[i] ? "above the null" : "inside the null"}` : "";
  $("status").textContent = `${called(i)}: ${shown.what} ${told(shown.values[i], 3)}${beside}`;
}

// Samples of a head in its plane: x, y, and how sure its probe is of which class.
function opened(label, i) {
  const found = data.points[label.name], xy = bytes(found.points[i], Int16Array);
  const [sx, sy] = found.scale[i], kept = samples.splits[now.shown];
  const truth = samples.labels[label.name].values, classes = samples.labels[label.name].classes;
  const sure = found.sure && bytes(found.sure[i], Float32Array), guess = found.guess && bytes(found.guess[i], Uint8Array);
  const points = [];
  for (let n = 0; n < truth.length; n += 1) {
    if (!kept.includes(samples.split[n])) continue;
    const x = xy[2 * n] * sx, y = xy[2 * n + 1] * sy;
    let certain = sure && sure[n], said = guess && guess[n];
    if (found.line) {
      const logit = found.line[i][0] * x + found.line[i][1];
      certain = Math.abs(logit);
      said = logit > 0 ? 0 : 1;
    }
    points.push({ n, x, y, truth: truth[n], certain, said });
  }
  return { points, classes, line: found.line && found.line[i], axes: found.axes };
}

// As the density figure: a kernel's width is by the spread of the densest half of its class, so that
// it does not smear over gaps, and is less next to a boundary that most of the class keeps.
function widths(values, ends, boundary) {
  const sorted = [...values].sort((a, b) => a - b), n = sorted.length, half = Math.ceil(n / 2);
  const mean = sorted.reduce((a, b) => a + b, 0) / n;
  const whole = Math.sqrt(sorted.reduce((a, b) => a + (b - mean) ** 2, 0) / n);
  let shortest = Infinity;
  for (let i = 0; i + half <= n; i += 1) shortest = Math.min(shortest, sorted[i + half - 1] - sorted[i]);
  const least = (ends[1] - ends[0]) / 160;
  const width = Math.max(least, (shortest > 0 ? Math.min(whole, shortest / 1.349) : whole) * n ** (-1 / 6));
  if (boundary === null) return values.map(() => width);
  const side = Math.sign((sorted[half - 1] + sorted[n - half]) / 2 - boundary);
  return values.map((v) => { const room = ((v - boundary) * side) / 3; return room > 0 ? Math.min(width, Math.max(room, least / 3)) : width; });
}
function density(points, xs, ys, boundary) {
  if (points.length < 3) return null;
  const kernels = (name, places, at) => {
    const values = points.map((p) => p[name]), wide = widths(values, [places[0], places[places.length - 1]], at);
    if (Math.max(...values) === Math.min(...values)) return null;
    return places.map((x) => values.map((v, i) => { const off = (x - v) / wide[i]; return Math.abs(off) < 3 ? Math.exp(-off * off / 2) / wide[i] : 0; }));
  };
  const across = kernels("x", xs, boundary), up = kernels("y", ys, null);
  if (!across || !up) return null;
  return up.map((row) => across.map((column) => row.reduce((sum, k, i) => sum + k * column[i], 0) / points.length));
}

const spread = (values) => {
  const low = Math.min(...values), high = Math.max(...values), margin = 0.12 * (high - low) || 0.5;
  return [low - margin, high + margin];
};
const steps = ([low, high], n = 64) => Array.from({ length: n }, (_, i) => low + ((high - low) * i) / (n - 1));
const sampleText = (p, classes) => literal(`${samples.ids[p.n]} (${samples.split[p.n]}): ${classes[p.truth]}, probe says ${classes[p.said]}`);
const lineAt = (frame, at, more = {}) => ({ type: "line", xref: "x", yref: "paper", x0: at, x1: at, y0: 0, y1: 1, line: { color: colour("ink"), width: 1.5, dash: "dash" }, ...more });

function drawDensity() {
  const i = now.head, { points, classes, line, axes } = opened(now.label, i);
  if (!points.length) return { traces: [], layout: { title: { text: `no ${now.shown} samples` } }, words: `No ${now.shown} samples.` };
  const xf = spread(points.map((p) => p.x)), yf = spread(points.map((p) => p.y));
  const xs = steps(xf), ys = steps(yf), traces = [];
  const at = line && line[0] ? -line[1] / line[0] : null, inside = at !== null && at > xf[0] && at < xf[1];
  classes.forEach((name, c) => {
    const own = points.filter((p) => p.truth === c), shade = colour(CLASSES[c % 4]), z = density(own, xs, ys, at);
    if (z) traces.push({ type: "contour", x: xs, y: ys, z, showscale: false, ncontours: 7, contours: { coloring: "lines" }, line: { width: 1.3, color: shade }, colorscale: [[0, shade], [1, shade]], hoverinfo: "skip", showlegend: false });
    traces.push({ x: own.map((p) => p.x), y: own.map((p) => p.y), mode: "markers", name: literal(`${now.label.short} ${name} (n = ${own.length})`), text: own.map((p) => sampleText(p, classes)), hovertemplate: "%{text}<extra></extra>", marker: { color: shade, size: 5, symbol: MARKS[c % 4], opacity: 0.6 } });
  });
  const right = points.filter((p) => p.truth === p.said).length / points.length;
  const off = at === null || inside ? "" : "; its boundary lies outside";
  return {
    traces,
    layout: {
      height: 460, margin: { l: 56, r: 16, t: 34, b: 110 }, legend: { orientation: "h", y: -0.25, x: 0, font: { size: 12 } }, shapes: inside ? [lineAt(xf, at)] : [], title: { text: `Density: ${inPercent(right)} % of ${points.length} told${off}`, font: { size: 14 }, x: 0, xref: "paper" },
      xaxis: axis({ range: xf, title: { text: axes === "probe" ? "along the probe's direction (dashed: it says 0.5)" : "principal component 1" } }),
      yaxis: axis({ range: yf, title: { text: axes === "probe" ? "main direction off it" : "principal component 2" } }),
    },
    words: `Density of ${points.length} ${now.shown} samples of ${called(i)} by ${now.label.said}; the probe tells ${inPercent(right)} percent.`,
  };
}

// Both labels' planes share their origin: the second probe's coordinate off the first is worked out.
function drawClusters() {
  const i = now.head, [one, two] = data.labels, cosine = data.points.cosine[i];
  const first = opened(one, i), second = opened(two, i), sine = Math.sqrt(Math.max(0, 1 - cosine * cosine));
  const flat = cosine === null || sine < 1e-3;
  const points = first.points.map((p, n) => ({ ...p, y: flat ? p.y : (second.points[n].x - cosine * p.x) / sine, other: second.points[n] }));
  const xf = spread(points.map((p) => p.x)), yf = spread(points.map((p) => p.y));
  const traces = [[0, 0], [1, 1], [0, 1], [1, 0]].map(([a, b], c) => {
    const own = points.filter((p) => p.truth === a && p.other.truth === b);
    return { x: own.map((p) => p.x), y: own.map((p) => p.y), mode: "markers", name: literal(`${one.short} ${first.classes[a]}, ${two.short} ${second.classes[b]} (n = ${own.length})`), text: own.map((p) => sampleText(p, first.classes)), hovertemplate: "%{text}<extra></extra>", marker: { color: colour(CLASSES[c]), symbol: MARKS[c], size: 6, opacity: 0.75 } };
  });
  const shapes = [];
  if (first.line[0]) shapes.push(lineAt(xf, -first.line[1] / first.line[0]));
  if (!flat && second.line[0]) {
    const level = (x) => (-second.line[1] / second.line[0] - cosine * x) / sine;
    traces.push({ x: xf, y: xf.map(level), mode: "lines", name: literal(`${two.short} at 0.5`), line: { color: colour("soft"), width: 1.5, dash: "dot" }, hoverinfo: "skip" });
  }
  return {
    traces,
    layout: {
      height: 460, shapes, title: { text: flat ? "Clusters: both probes have one direction, or none" : "Clusters in the plane of both probes", font: { size: 14 }, x: 0, xref: "paper" },
      xaxis: axis({ range: xf, title: { text: literal(`along the probe of ${one.short} (dashed: it says 0.5)`) } }),
      legend: { orientation: "h", y: -0.25, x: 0, font: { size: 12 } }, margin: { l: 56, r: 16, t: 34, b: 110 },
      yaxis: axis({ range: yf, title: { text: literal(flat ? "main direction off it" : `probe of ${two.short}, part off that of ${one.short}`) } }),
    },
    words: `Clusters of ${points.length} ${now.shown} samples of ${called(i)} by ${one.said} and ${two.said}.`,
  };
}

function fillPanel() {
  const i = now.head, name = now.label.name;
  const rank = column(`${name}_rank`)[i];
  $("panel-title").textContent = `Layer ${heads.layer[i]}, head ${heads.head[i]}: rank ${rank} of ${COUNT} by ${now.label.said}`;
  const rows = data.labels.map((label) => [label.said, ...["train", "validation", "test"].map((s) => told(accuracy(s, label)[i], 3)), told(column(`${label.name}_test_auc`)[i], 3), told(column(`${label.name}_p_family`)[i], 3), told(column(`${label.name}_selectivity`)[i])]);
  const told2 = data.kinds.map((kind) => [kind.said, `share ${told(column(`${kind.name}_patch`)[i])}`, `[${told(column(`${kind.name}_patch_low`)[i])}, ${told(column(`${kind.name}_patch_high`)[i])}]`, (kind.verdicts[name] || [])[i] || "not said", "", "", ""]);
  fillTable("panel-numbers", ["", "train", "validation", "test", "test AUC", "p against the best", "selectivity"], [...rows, ...told2]);
  const counted = data.points[name].confusion, classes = samples.labels[name].classes, k = classes.length;
  const sums = Array(k * k).fill(0);
  for (const split of samples.splits[now.shown]) if (counted[split]) counted[split][i].forEach((v, n) => { sums[n] += v; });
  const body = classes.map((c, r) => [`is ${c}`, ...classes.map((_, p) => [String(sums[r * k + p]), r === p ? "right" : sums[r * k + p] ? "wrong" : ""])]);
  fillTable("confusion", ["", ...classes.map((c) => `probe says ${c}`)], body, `${now.label.said}, ${now.shown} samples (all ${sums.reduce((a, b) => a + b, 0)})`);
  fillSamples(opened(now.label, i));
}

// What the model was shown; of a story also what others see, and who believes what when.
function filmParts(id, film) {
  const story = data.frames.stories[film];
  const strip = (image, words) => make("img", null, { class: "strip", src: `data:image/png;base64,${image}`, alt: `${words}, frame by frame` });
  const parts = [strip(data.frames.images[film], `what the model was shown with ${id}`)];
  if (!story) return parts;
  parts.unshift(make("div", `as the model was shown it: ${story.shown}`));
  for (const [who, image] of story.others) parts.push(make("div", `not shown: ${who}`), strip(image, `what the ${who} perspective sees of ${id}`));
  const held = story.beliefs.map(([who, ...places]) => [who, ...places.map(String)]);
  parts.push(make("table", null, {}, tableParts(["", ...story.frames.map((frame) => `frame ${frame}`)], held)));
  return parts;
}

function fillSamples({ points, classes }) {
  const sorted = [...points].sort((a, b) => b.certain - a.certain);
  const parts = [["Most certain and right", sorted.filter((p) => p.said === p.truth)], ["Most certain and wrong", sorted.filter((p) => p.said !== p.truth)], ["Least certain", [...sorted].reverse()]];
  $("samples").replaceChildren(...parts.flatMap(([title, found]) => {
    if (!found.length) return [make("h3", title), make("p", "none")];
    const items = found.slice(0, 4).map((p) => {
      const summary = make("summary", `${samples.ids[p.n]} (${samples.split[p.n]}): is ${classes[p.truth]}, probe says ${classes[p.said]}, logit ${p.certain.toFixed(2)}`);
      const words = samples.texts ? samples.texts[samples.text[p.n]] : "This run keeps no prompts.";
      const film = data.frames.of ? data.frames.of[samples.ids[p.n]] : undefined;
      return make("li", null, {}, [make("details", null, {}, [summary, ...(film === undefined ? [] : filmParts(samples.ids[p.n], film)), make("p", words)])]);
    });
    return [make("h3", title), make("ol", null, { class: "samples" }, items)];
  }), make("p", points.length && samples.of > samples.ids.length ? `Points and lists are of ${samples.ids.length} of ${samples.of} samples, taken evenly; tables are of all.` : "", { class: "hint" }), ...(data.frames.of ? [make("p", "Frames stand in the page for held-out samples that the best heads of each label list.", { class: "hint" })] : []));
}

function drawUsed() {
  const kind = now.kind, x = accuracy("validation"), y = column(`${kind.name}_patch`), low = column(`${kind.name}_patch_low`), high = column(`${kind.name}_patch_high`);
  const verdicts = kind.verdicts[now.label.name] || heads.layer.map(() => "");
  const traces = Object.entries(VERDICTS).map(([words, shade]) => {
    const own = verdicts.map((v, i) => (v === words ? i : -1)).filter((i) => i >= 0);
    return { x: own.map((i) => x[i]), y: own.map((i) => y[i]), customdata: own, mode: "markers", name: words || "not said", visible: own.length ? true : false, text: own.map(called), hovertemplate: "%{text}: accuracy %{x:.3f}, share %{y:.3f}<extra></extra>", marker: { color: colour(shade), size: 8 }, error_y: { type: "data", symmetric: false, array: own.map((i) => high[i] - y[i]), arrayminus: own.map((i) => y[i] - low[i]), thickness: 1, width: 0, color: colour(shade) } };
  });
  const shapes = [{ type: "line", xref: "paper", yref: "y", x0: 0, x1: 1, y0: 1 / COUNT, y1: 1 / COUNT, line: { color: colour("soft"), width: 1.2, dash: "dot" } }];
  if (now.label.threshold !== null) shapes.push(lineAt(null, now.label.threshold, { line: { color: colour("ring"), width: 1.5, dash: "dash" } }));
  const count = (words) => verdicts.filter((v) => v === words).length;
  return {
    traces,
    layout: {
      height: 420, shapes, xaxis: axis({ title: { text: literal(`validation accuracy of ${now.label.said}: readable right of the null (dashed)`) } }),
      yaxis: axis({ title: { text: "share of the gap carried: used" } }), title: { text: literal(`${kind.said}: a head is used if its whole bar is above the dotted line`), font: { size: 14 }, x: 0, xref: "paper" },
    },
    words: `Used against readable, ${kind.said}: ${count("readable and used")} heads are readable and used, ${count("readable, not used")} readable, not used, ${count("used, not readable")} used, not readable.`,
  };
}

function byRank() {
  const rank = column(`${now.label.name}_rank`);
  return heads.layer.map((_, i) => i).filter((i) => rank[i] !== null).sort((a, b) => rank[a] - rank[b]);
}

function drawRanks() {
  const order = byRank(), x = order.map((_, n) => n + 1);
  const curve = (split, more) => ({ x, y: order.map((i) => accuracy(split)[i]), customdata: order, text: order.map(called), name: split, hovertemplate: `%{text}: ${split} %{y:.3f}, rank %{x}<extra></extra>`, ...more });
  const traces = [curve("validation", { mode: "lines+markers", line: { color: colour("accent"), width: 2 }, marker: { size: 5 } })];
  if (accuracy("test").some((v) => v !== null)) traces.push(curve("test", { mode: "markers", marker: { color: colour("false"), size: 5, symbol: "diamond" } }));
  const { threshold, chance } = now.label, shapes = [], annotations = [];
  const level = (at, dash, shade) => shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, y0: at, y1: at, line: { color: colour(shade), width: 1.3, dash } });
  level(chance, "dot", "soft");
  annotations.push({ xref: "paper", x: 1, y: chance, text: "chance", showarrow: false, xanchor: "right", yanchor: "bottom", font: { color: colour("soft"), size: 12 } });
  if (threshold !== null) {
    shapes.push({ type: "rect", xref: "paper", x0: 0, x1: 1, y0: chance, y1: threshold, fillcolor: colour("band"), line: { width: 0 } });
    level(threshold, "dash", "ring");
    annotations.push({ xref: "paper", x: 1, y: threshold, text: "null: best of all heads in 95 % of permutations", showarrow: false, xanchor: "right", yanchor: "bottom", font: { color: colour("ring"), size: 12 } });
  }
  for (const k of data.sizes) {
    shapes.push({ type: "line", yref: "paper", x0: k + 0.5, x1: k + 0.5, y0: 0, y1: 1, line: { color: colour("soft"), width: 1.3 } });
    annotations.push({ yref: "paper", x: Math.log10(k + 0.5), y: 1.02, text: `K ${k}`, showarrow: false, font: { color: colour("soft"), size: 12 }, yanchor: "bottom" });
  }
  const above = threshold === null ? "" : ` ${order.filter((i) => accuracy("validation")[i] > threshold).length} are above the null.`;
  return {
    traces,
    layout: { height: 380, shapes, annotations, xaxis: axis({ type: "log", title: { text: literal(`rank by validation accuracy of ${now.label.said} (sets of K heads end at the lines)`) }, dtick: 1 }), yaxis: axis({ title: { text: "accuracy" } }) },
    words: `Accuracy of ${order.length} heads in the order of their rank, from ${told(accuracy("validation")[order[0]])} to ${told(accuracy("validation")[order[order.length - 1]])}.${above}`,
  };
}

const redraw = {};
function update(...names) { for (const name of names) if (redraw[name]) redraw[name](); }
function choose(i, scroll = true) {
  now.head = now.cursor = i;
  fillPanel();
  update("map", "kde", "clusters");
  tell(i);
  if (scroll) $("panel").scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}
function chooseLabel(label) {
  now.label = label;
  fillPanel();
  fillFirst();
  update("map", "kde", "used", "ranks");
  tell(now.cursor);
}
function fillFirst() {
  fillTable("first", ["head", "validation", "test", "p against the best", ...data.kinds.map((kind) => kind.said)], byRank().slice(0, 20).map((i) => {
    const open = make("button", called(i), { type: "button" });
    open.addEventListener("click", () => choose(i));
    return [open, told(accuracy("validation")[i], 3), told(accuracy("test")[i], 3), told(column(`${now.label.name}_p_family`)[i], 3), ...data.kinds.map((kind) => (kind.verdicts[now.label.name] || [])[i] || "not said")];
  }), now.label.said);
}

const splitsThere = SPLITS.filter((split) => accuracy(split).some((v) => v !== null));
fillSelect("measure", [...splitsThere.map((split) => [split, `${split} accuracy`]), ...data.kinds.map((kind) => [kind.name, `causal effect: ${kind.said}`])]);
now.measure = $("measure").value;
fillSelect("shown", Object.keys(samples.splits).filter((name) => samples.splits[name].some((s) => samples.split.includes(s))).map((name) => [name, name]), "held-out");
now.shown = $("shown").value;
data.labels.forEach((label, n) => {
  const input = make("input", null, { type: "radio", name: "label", value: label.name, id: `label-${n}` });
  input.checked = n === 0;
  input.addEventListener("change", () => chooseLabel(label));
  $("labels").append(make("label", null, {}, [input, ` ${label.said}`]));
});
$("measure").addEventListener("change", () => { now.measure = $("measure").value; update("map"); tell(now.cursor); });
$("shown").addEventListener("change", () => { now.shown = $("shown").value; fillPanel(); update("kde", "clusters"); });
$("best").addEventListener("click", () => choose(place.get(now.label.best.join())));
fillPanel();
fillFirst();
redraw.map = plot("map", drawMap);
redraw.kde = plot("kde", drawDensity);
if (data.points.cosine.length) redraw.clusters = plot("clusters", drawClusters);
else $("clusters").remove();
redraw.ranks = plot("ranks", drawRanks);
if (data.kinds.length) {
  fillSelect("kind", data.kinds.map((kind) => [kind.name, kind.said]));
  $("kind").addEventListener("change", () => { now.kind = kindOf($("kind").value); update("used"); });
  redraw.used = plot("used", drawUsed);
  $("used").on("plotly_click", (event) => choose(event.points[0].customdata));
} else {
  $("kind-controls").replaceChildren();
  $("used").replaceChildren(make("p", "Which heads are used was not asked; the command above asks it.", { class: "hint" }));
}
tell(now.cursor);
$("map").on("plotly_click", (event) => {
  const point = event.points[0], found = place.get(`${point.y},${point.x}`);
  if (event.points[0].data.type === "heatmap" && found !== undefined) choose(found);
});
$("ranks").on("plotly_click", (event) => choose(event.points[0].customdata));
$("map").addEventListener("keydown", (event) => {
  const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (event.target !== $("map") || (!move && event.key !== "Enter" && event.key !== " ")) return;
  event.preventDefault();
  if (!move) { choose(now.cursor); return; }
  const to = place.get(`${heads.layer[now.cursor] + move[0]},${heads.head[now.cursor] + move[1]}`);
  if (to === undefined) return;
  now.cursor = to;
  update("map");
  tell(to);
});
csvLink("heads", heads);
