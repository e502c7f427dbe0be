const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const charts = [...document.querySelectorAll(".chart")];

function theme() {
  const style = getComputedStyle(root), ink = style.getPropertyValue("--ink").trim(), edge = style.getPropertyValue("--edge").trim();
  const axis = { gridcolor: edge, linecolor: edge, tickcolor: edge };
  return { ink, axis, card: style.getPropertyValue("--card").trim() };
}

function dressed(layout) {
  const { ink, axis, card } = theme(), narrow = innerWidth < 760;
  const legend = { ...layout.legend, font: { size: narrow ? 10 : 12 } };
  const hoverlabel = { bgcolor: card, bordercolor: ink, font: { color: ink } };
  return { ...layout, legend, hoverlabel, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink, size: narrow ? 11 : 12 }, xaxis: { ...layout.xaxis, ...axis }, yaxis: { ...layout.yaxis, ...axis } };
}

function redress() {
  for (const chart of charts) if (chart.layout) Plotly.relayout(chart, dressed(FIGURES[chart.dataset.figure].layout));
}

async function draw() {
  let drawn = 0;
  for (const chart of charts) {
    const { data, layout } = FIGURES[chart.dataset.figure];
    await Plotly.newPlot(chart, data, dressed(layout), { responsive: true, displayModeBar: false });
    root.dataset.drawn = ++drawn;
    await new Promise(next => setTimeout(next));
  }
  root.dataset.ready = "yes";
}

function filter() {
  const wanted = document.getElementById("filter").value.trim().toLowerCase();
  for (const row of document.querySelectorAll("tr[data-arm]"))
    row.classList.toggle("hidden", !row.dataset.arm.toLowerCase().includes(wanted));
  for (const chart of charts) {
    if (!chart.data || !chart.data.some(trace => trace.meta && trace.meta.arm)) continue;
    const visible = chart.data.map(trace => !(trace.meta && trace.meta.arm) || trace.meta.arm.toLowerCase().includes(wanted));
    Plotly.restyle(chart, { visible });
  }
}

function sort(header) {
  const table = header.closest("table"), column = [...header.parentNode.children].indexOf(header);
  const down = header.dataset.order !== "down";
  header.dataset.order = down ? "down" : "up";
  const value = row => row.children[column].dataset.value;
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === "" || y === "") return (x === "") - (y === "");
    const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
    return down ? order : -order;
  });
  table.tBodies[0].append(...rows);
}

document.getElementById("theme").addEventListener("click", () => {
  const now = root.dataset.theme || (dark.matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  redress();
});
dark.addEventListener("change", redress);
document.getElementById("filter").addEventListener("input", filter);
for (const header of document.querySelectorAll(".sortable th")) header.addEventListener("click", () => sort(header));
draw();
