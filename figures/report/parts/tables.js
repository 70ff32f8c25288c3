// The page of a run that is numbers and pictures: its tables, which sort.
const seen = (value) => (value === null ? "–" : typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(3))) : String(value));

Object.entries(data.tables).forEach(([name, { columns, rows }], n) => {
  const names = Object.keys(columns), count = columns[names[0]].length;
  const table = make("table", null, { id: `table-${n}` });
  $("tables").append(make("div", null, { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, [table]));
  const order = Array.from({ length: count }, (_, i) => i);
  const said = count < rows ? `${name}: the first ${count} of ${rows} rows` : name;
  sortedTable(`table-${n}`, names.map((column) => [column, (i) => columns[column][i]]), order, (i) => names.map((column) => seen(columns[column][i])), said);
  csvLink(name, columns);
});
