// Accuracy over iterations, or over what was heard: the mean, a band, the oracle and what else to compare with; labels stand at the lines' ends.
const CHART = { left: 44, right: 138, top: 12, bottom: 34, height: 318 };
const LINES = { oracle: "2 4", fedavg: "7 4", local: "1 5" };

class Chart {
  constructor(container) {
    this.container = container;
    this.svg = drawn("svg", { role: "img", "aria-label": "No accuracy has been measured yet." });
    container.append(this.svg);
    this.width = 0;
    new ResizeObserver(() => {
      const width = container.clientWidth;
      if (width && width !== this.width && this.model) this.show(this.model);
    }).observe(container);
  }

  show(model) {
    this.model = model;
    const { history, oracle, references, total, iteration } = model.snapshot;
    const width = Math.max(280, this.container.clientWidth || 600);
    const key = JSON.stringify([width, history, oracle, references, total, total ? 0 : iteration]);
    if (key === this.key) return;
    this.key = key;
    this.width = width;
    const last = Math.max(total || 0, history.length ? history[history.length - 1][0] : 0, total ? 0 : iteration, 1);
    const x = (at) => CHART.left + (at / last) * (width - CHART.left - CHART.right);
    const y = (share) => CHART.height - CHART.bottom - share * (CHART.height - CHART.top - CHART.bottom);
    const parts = [...this.axes(x, y, last, width), ...this.curves(model, x, y, width)];
    this.svg.setAttribute("viewBox", `0 0 ${width} ${CHART.height}`);
    this.svg.setAttribute("height", CHART.height);
    this.svg.replaceChildren(...parts);
    this.svg.setAttribute("aria-label", Chart.words(model));
  }

  axes(x, y, last, width) {
    const parts = [];
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      parts.push(drawn("line", { class: "grid", x1: CHART.left, x2: width - CHART.right, y1: y(share), y2: y(share) }));
      parts.push(drawn("text", { class: "tick", x: CHART.left - 8, y: y(share) + 4, "text-anchor": "end" }, percent(share, 0)));
    }
    const rough = last / 5;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(1, [1, 2, 5, 10].find((factor) => factor * power >= rough) * power);
    for (let at = 0; at <= last; at += step) {
      parts.push(drawn("text", { class: "tick", x: x(at), y: CHART.height - 14, "text-anchor": "middle" }, at.toLocaleString("en")));
    }
    parts.push(drawn("text", { class: "tick", x: x(last / 2), y: CHART.height - 1, "text-anchor": "middle" }, this.model.snapshot.unit));
    return parts;
  }

  curves(model, x, y, width) {
    const { history, oracle, references, rule } = model.snapshot;
    const parts = [];
    const labels = [];
    const banded = history.filter((point) => point[2] !== null);
    if (banded.length) {
      const upper = banded.map(([at, mean, , high]) => `${x(at).toFixed(1)},${y(high ?? mean).toFixed(1)}`);
      const lower = banded.map(([at, , low]) => `${x(at).toFixed(1)},${y(low).toFixed(1)}`).reverse();
      parts.push(drawn("polygon", { class: "band", points: [...upper, ...lower].join(" ") }));
    }
    if (oracle !== null) {
      const at = y(oracle);
      parts.push(drawn("line", { class: "oracle", x1: CHART.left, x2: width - CHART.right, y1: at, y2: at, "stroke-dasharray": LINES.oracle }));
      labels.push({ at, text: `oracle ${percent(oracle)}`, kind: "reference" });
    }
    for (const [name, points] of Object.entries(references)) {
      if (!points.length) continue;
      const line = points.map(([at, share]) => `${x(at).toFixed(1)},${y(share).toFixed(1)}`).join(" ");
      parts.push(drawn("polyline", { class: "reference", points: line, "stroke-dasharray": LINES[name] || "4 3" }));
      const share = points[points.length - 1][1];
      labels.push({ at: y(share), text: `${name} ${percent(share)}`, kind: "reference" });
    }
    if (history.length) {
      const line = history.map(([at, mean]) => `${x(at).toFixed(1)},${y(mean).toFixed(1)}`).join(" ");
      parts.push(drawn("polyline", { class: "mean", points: line }));
      const [at, mean] = history[history.length - 1];
      parts.push(drawn("circle", { class: "end", cx: x(at), cy: y(mean), r: 4 }));
      labels.push({ at: y(mean), text: `${rule} ${percent(mean)}`, kind: "own" });
    } else {
      parts.push(drawn("text", { class: "empty", x: (CHART.left + width - CHART.right) / 2, y: y(0.5), "text-anchor": "middle" }, "not measured yet"));
    }
    labels.sort((a, b) => a.at - b.at);
    let free = 0;
    for (const label of labels) {
      const at = Math.max(label.at + 4, free);
      free = at + 15;
      const text = label.text.length > 20 ? `${label.text.slice(0, 9)}… ${label.text.split(" ").pop()}` : label.text;
      parts.push(drawn("text", { class: `label ${label.kind}`, x: width - CHART.right + 8, y: at }, text));
    }
    return parts;
  }

  static words(model) {
    const { history, oracle, references, rule } = model.snapshot;
    if (!history.length) return "No accuracy has been measured yet.";
    const [at, mean, low, high] = history[history.length - 1];
    const after = model.statements ? `${at} ${model.snapshot.unit}` : counted(at, "iteration");
    const said = [`Accuracy after ${after}: ${rule} ${percent(mean)}`];
    if (low !== null) said.push(high === null ? `the worst peer ${percent(low)}` : `from ${percent(low)} to ${percent(high)}`);
    if (oracle !== null) said.push(`oracle ${percent(oracle)}`);
    for (const [name, points] of Object.entries(references)) {
      if (points.length) said.push(`${name} ${percent(points[points.length - 1][1])}`);
    }
    return `${said.join(", ")}.`;
  }
}
