// Held pages over time, with a mark for each interval in which something was preempted.

const SVG = "http://www.w3.org/2000/svg";
const SECONDS = 120;
const LEFT = 34;
const BOTTOM = 18;
const MARKS = 12; // height of each of the two rows of marks, from the top

function add(parent, name, attributes, text = "") {
  const element = parent.appendChild(document.createElementNS(SVG, name));
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

function share(status, tier) {
  const total = status.workers.reduce((sum, worker) => sum + worker[tier].total, 0);
  const held = status.workers.reduce((sum, worker) => sum + worker[tier].held, 0);
  return total ? held / total : 0;
}

export function drawTimeline(chart, statuses) {
  const { width, height } = chart.getBoundingClientRect();
  if (!width || !statuses.length) return;
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  chart.replaceChildren();
  const now = statuses.at(-1).uptime_seconds;
  const top = 2 * MARKS + 12;
  const x = (status) => LEFT + (width - LEFT - 4) * (1 - (now - status.uptime_seconds) / SECONDS);
  const y = (value) => top + (height - BOTTOM - top) * (1 - value);
  for (const value of [0, 0.5, 1]) {
    add(chart, "line", { class: "grid", x1: LEFT, x2: width - 4, y1: y(value), y2: y(value) });
    add(chart, "text", { x: LEFT - 4, y: y(value) + 4, "text-anchor": "end" }, `${value * 100}%`);
  }
  for (const [ago, anchor] of [[120, "start"], [60, "middle"], [0, "end"]]) {
    const at = LEFT + (width - LEFT - 4) * (1 - ago / SECONDS);
    add(chart, "text", { x: at, y: height - 4, "text-anchor": anchor }, ago ? `${ago} s ago` : "now");
  }
  const line = (tier) => statuses.map((status) => `${x(status).toFixed(1)},${y(share(status, tier)).toFixed(1)}`).join(" ");
  const ends = [x(statuses[0]).toFixed(1), x(statuses.at(-1)).toFixed(1)];
  add(chart, "polygon", { class: "device", points: `${ends[0]},${y(0)} ${line("device")} ${ends[1]},${y(0)}` });
  if (statuses.some((status) => status.workers.some((worker) => worker.host.total))) {
    add(chart, "polyline", { class: "host", points: line("host") });
  }
  marks(chart, statuses, "swaps", "swap", x, 1);
  marks(chart, statuses, "drops", "drop", x, MARKS + 1);
}

function marks(chart, statuses, counter, kind, x, row) {
  add(chart, "text", { x: LEFT - 4, y: row + 9, "text-anchor": "end" }, kind);
  for (let i = 1; i < statuses.length; i++) {
    const count = statuses[i].counters[counter] - statuses[i - 1].counters[counter];
    if (count <= 0) continue;
    const mark = add(chart, "rect", { class: kind, x: x(statuses[i]) - 2, y: row, width: 4, height: MARKS - 3, rx: 1 });
    add(mark, "title", {}, `${count} × ${kind}`);
  }
}
