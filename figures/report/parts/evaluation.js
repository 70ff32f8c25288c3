// The page of an evaluation: numbers with intervals, and replies by how they were read.
const SHADES = { TB: "true", FB: "false", Both: "blue", overall: "blue", invalid: "missing" };
const SPOKEN = { overall: "right", invalid: "invalid replies" };
const readers = [...new Set(data.measures.map((m) => m.reader))];
const now = { reader: data.reader };
const said = (m) => `${inPercent(m.value)} [${inPercent(m.low)}, ${inPercent(m.high)}] of ${m.n}`;

function dots(found, names) {
  return {
    type: "scatter", mode: "markers", x: found.map((m) => m.value), y: names, text: found.map(said), hovertemplate: "%{y}: %{text}<extra></extra>", showlegend: false,
    marker: { size: 12, color: found.map((m) => colour(SHADES[m.measure])), symbol: found.map((m) => (m.measure === "invalid" ? "x" : "circle")) },
    error_x: { type: "data", symmetric: false, array: found.map((m) => m.high - m.value), arrayminus: found.map((m) => m.value - m.low), thickness: 2, width: 5, color: colour("soft") },
  };
}
const share = { title: { text: "share (95 % intervals)" }, range: [-0.03, 1.03], tickformat: ".0%" };

function drawMeasures() {
  const found = data.measures.filter((m) => m.reader === now.reader && m.part === "");
  const names = found.map((m) => `${SPOKEN[m.measure] || m.measure}  ${inPercent(m.value)} %`);
  return {
    traces: [dots(found, names)],
    layout: { height: 120 + 46 * found.length, xaxis: axis(share), yaxis: axis({ autorange: "reversed" }) },
    words: `Read by ${now.reader}: ${found.map((m) => `${SPOKEN[m.measure] || m.measure} ${said(m)}`).join("; ")}.`,
  };
}

const partsOf = () => data.measures.filter((m) => m.reader === now.reader && m.part !== "" && m.measure !== "invalid");
function drawParts() {
  const found = partsOf(), several = new Set(found.map((m) => m.measure)).size > 1;
  const names = found.map((m) => literal(`${m.part}${several ? `, ${SPOKEN[m.measure] || m.measure}` : ""} (${m.n})`));
  return {
    traces: [dots(found, names)],
    layout: { height: 120 + 26 * found.length, xaxis: axis(share), yaxis: axis({ autorange: "reversed" }) },
    words: `Read by ${now.reader}, by part: ${found.map((m) => `${m.part} ${said(m)}`).join("; ")}.`,
  };
}

function fillReplies() {
  const wanted = $("reading").value, rows = data.replies.rows.filter((r) => r.reading === wanted);
  fillTable("replies", ["item", "belief", "answer", "reply"], rows.map((r) => [r.item, r.condition, r.answer, [r.reply || "(nothing)", r.reading === "right" ? "right" : "wrong"]]), `${rows.length} of ${data.replies.counts[wanted] || 0} replies that are ${wanted}, by ${data.reader || "nobody"}`);
}

fillSelect("reader", readers.map((r) => [r, r]), data.reader);
fillSelect("reading", [...new Set(data.replies.rows.map((r) => r.reading))].map((r) => [r, `${r} (${data.replies.counts[r]})`]));
$("reading").addEventListener("change", fillReplies);
fillReplies();
if (data.measures.length) {
  const draws = [plot("measures", drawMeasures)];
  if (partsOf().length) draws.push(plot("parts", drawParts));
  else $("parts-box").remove();
  $("reader").addEventListener("change", () => { now.reader = $("reader").value; draws.forEach((draw) => draw()); });
} else {
  $("parts-box").remove();
}
if (data.answers) csvLink("answers", data.answers);
