// Members by classes: the weight that each member's head was given. A grid that keys move through; its cells stay and only
// what they say changes. Not a table element, whose rows a browser lays out even where nobody sees them.
const FEW = 30;

function cellText(weight) {
  if (weight === 0) return "0";
  const value = 100 * weight;
  if (value < 0.05) return "<.1";
  return value < 9.95 ? value.toFixed(1) : value.toFixed(0);
}

class Matrix {
  constructor(container, open) {
    this.container = container;
    this.open = open;
    this.at = [0, 0];
    this.key = "";
    container.addEventListener("click", (event) => {
      const cell = event.target.closest("[role=gridcell]");
      if (cell) this.enter(cell);
    });
    container.addEventListener("keydown", (event) => this.press(event));
    container.addEventListener("focusin", (event) => {
      const cell = event.target.closest("[role=gridcell]");
      if (cell) this.move(Number(cell.dataset.row), Number(cell.dataset.column), false);
    });
  }

  order(model) {
    const all = model.members.map((_, member) => member);
    if (all.length <= FEW) return all;
    const malicious = all.filter((member) => model.members[member].kind === "malicious");
    return [...malicious, ...all.filter((member) => model.members[member].kind !== "malicious")];
  }

  async build(model) {
    const key = JSON.stringify([model.classes, model.what, model.members.map((member) => [member.name, member.kind])]);
    if (key === this.key) return;
    this.key = key;
    this.rows = [];
    this.heads = [];
    const heading = make("div", { role: "row", class: "heading" }, make("span", { role: "columnheader", class: "from" }, model.statements ? "Statement of" : "Head of"));
    for (const name of model.classes) {
      const held = make("span", { class: "held" });
      this.heads.push(held);
      heading.append(make("span", { role: "columnheader", title: name }, make("span", { class: "unseen" }, "class "), name, held));
    }
    heading.append(make("span", { role: "columnheader", class: "why" }, "Why"));
    const table = make("div", { role: "grid", class: "matrix", "aria-labelledby": "matrix-title", "aria-describedby": "matrix-note",
      "aria-rowcount": model.members.length + 1, "aria-colcount": model.classes.length + 2 }, heading);
    table.style.setProperty("--classes", model.classes.length);
    this.container.replaceChildren(table);
    this.members = this.order(model);
    for (const [place, member] of this.members.entries()) {
      const { name, kind } = model.members[member];
      const row = make("div", { role: "row", "data-kind": kind }, make("span", { role: "rowheader" },
        make("span", { class: `sign ${kind}`, "aria-hidden": "true" }, SIGNS[kind]), name));
      const cells = [];
      for (let column = 0; column <= model.classes.length; column += 1) {
        const cell = make("span", { role: "gridcell", tabindex: "-1", "data-row": place, "data-column": column, class: column === model.classes.length ? "why" : "cell" });
        cells.push(cell);
        row.append(cell);
      }
      table.append(row);
      this.rows.push({ row, cells, shown: [] });
      await breathe();
    }
    this.move(0, 0, false);
  }

  async show(model, given, receiver) {
    await this.build(model);
    const holds = new Set(receiver === null ? [] : model.members[receiver].holds || []);
    this.heads.forEach((head, at) => setText(head, holds.has(at) ? "held" : ""));
    let most = 0;
    for (const row of given) {
      if (!row.own && row.cells) for (const weight of row.cells) if (weight > most) most = weight;
    }
    const scale = Math.max(most, 0.01);
    const width = model.classes.length;
    for (const [place, member] of this.members.entries()) {
      const { cells, why, own } = given[member];
      const { row, cells: nodes, shown } = this.rows[place];
      row.classList.toggle("own", Boolean(own));
      for (let at = 0; at < width; at += 1) {
        const text = cells ? cellText(cells[at]) : "–";
        // A step of a hundredth is all that an eye can tell.
        const depth = cells ? Math.round(100 * Math.min(1, cells[at] / scale) ** 0.7) : 0;
        const said = `${text} ${depth}`;
        if (shown[at] !== said) {
          shown[at] = said;
          nodes[at].textContent = text;
          nodes[at].style.setProperty("--depth", `${depth}%`);
          nodes[at].classList.toggle("none", depth === 0);
        }
      }
      setText(nodes[width], why);
      await breathe();
    }
    this.legend(model, scale);
  }

  legend(model, scale) {
    const legend = byId("matrix-legend");
    const key = `${percent(scale, scale < 0.1 ? 1 : 0)} ${model.knowsKinds} ${model.what}`;
    if (legend.dataset.key === key) return;
    legend.dataset.key = key;
    const parts = [model.statements ? "Numbers are percentages of the mean of a class. 0 " : "Numbers are percentages of a row of the new head. 0 ", make("span", { class: "scale", "aria-hidden": "true" }), ` ${percent(scale, scale < 0.1 ? 1 : 0)}`];
    if (model.knowsKinds) {
      parts.push(make("span", { class: "key" }, make("span", { class: "sign benign", "aria-hidden": "true" }, SIGNS.benign), "benign peer"));
      parts.push(make("span", { class: "key" }, make("span", { class: "sign malicious", "aria-hidden": "true" }, SIGNS.malicious), "attacker, hatched"));
    }
    parts.push(make("span", { class: "key" }, model.statements ? "– not known" : "– not heard"));
    legend.replaceChildren(...parts);
  }

  move(row, column, focus = true) {
    if (!this.rows?.length) return;
    const last = this.rows.length - 1;
    const [oldRow, oldColumn] = this.at;
    this.rows[Math.min(oldRow, last)]?.cells[oldColumn]?.setAttribute("tabindex", "-1");
    this.at = [Math.max(0, Math.min(last, row)), Math.max(0, Math.min(this.rows[0].cells.length - 1, column))];
    const cell = this.rows[this.at[0]].cells[this.at[1]];
    cell.setAttribute("tabindex", "0");
    if (focus) {
      cell.focus({ preventScroll: true });
      cell.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
  }

  press(event) {
    const cell = event.target.closest("[role=gridcell]");
    if (!cell || event.altKey || event.metaKey) return;
    const [row, column] = this.at;
    const end = this.rows[0].cells.length - 1;
    const moves = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      PageUp: [row - 10, column], PageDown: [row + 10, column],
      Home: [event.ctrlKey ? 0 : row, 0], End: [event.ctrlKey ? this.rows.length - 1 : row, end],
    };
    if (moves[event.key]) this.move(...moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") this.enter(cell);
    else if (event.key === "Escape") this.open(null, null);
    else return;
    event.preventDefault();
  }

  enter(cell) {
    const [row, column] = [Number(cell.dataset.row), Number(cell.dataset.column)];
    this.move(row, column);
    this.open(this.members[row], column < this.rows[0].cells.length - 1 ? column : null);
  }

  mark(member, column) {
    this.marked?.classList.remove("open");
    const place = member === null ? -1 : this.members.indexOf(member);
    this.marked = place < 0 ? null : this.rows[place].cells[column ?? this.rows[0].cells.length - 1];
    this.marked?.classList.add("open");
  }
}
