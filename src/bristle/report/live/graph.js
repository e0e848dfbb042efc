// Who hears whom: members on a circle, benign ones round, attackers three-cornered. A canvas, since a hundred peers that
// all hear each other are ten thousand lines.
const MANY = 40;
const MOST_LINES = 1500;

class Graph {
  constructor(canvas, choose) {
    this.canvas = canvas;
    this.places = [];
    canvas.addEventListener("click", (event) => {
      const found = this.nearest(event.offsetX, event.offsetY);
      if (found !== null) choose(found);
    });
    canvas.addEventListener("pointermove", (event) => {
      const found = this.nearest(event.offsetX, event.offsetY);
      canvas.title = found === null ? "" : this.model.name(found);
      canvas.classList.toggle("over", found !== null);
    });
    new ResizeObserver(() => {
      if (this.model && canvas.clientWidth !== this.width) this.show(this.model, this.selected, true);
    }).observe(canvas);
  }

  nearest(x, y) {
    let best = null;
    let distance = 16 ** 2;
    this.places.forEach((place, member) => {
      const away = (place.x - x) ** 2 + (place.y - y) ** 2;
      if (away < distance) [best, distance] = [member, away];
    });
    return best;
  }

  // Lines from senders to receivers: used (2), heard and given nothing (1), or merely connected (0).
  edges(model) {
    const found = [];
    model.members.forEach((member, receiver) => {
      const judgement = model.judgements.get(receiver);
      const seen = new Set();
      judgement?.senders.forEach((sender, place) => {
        seen.add(sender);
        const share = model.share(judgement, place);
        found.push({ sender, receiver, share, state: share > 0 ? 2 : 1 });
      });
      for (const other of member.hears || []) {
        if (!seen.has(other)) found.push({ sender: other, receiver, share: 0, state: 0 });
      }
    });
    return found;
  }

  async show(model, selected, again = false) {
    this.model = model;
    this.selected = selected;
    const edges = this.edges(model);
    const key = JSON.stringify([selected, model.members.map((member) => member.kind), edges.map((edge) =>
      [edge.sender, edge.receiver, selected === edge.receiver ? Math.round(edge.share * 200) : edge.state])]);
    if (key === this.key && !again) return;
    this.key = key;
    await breathe();
    const { canvas } = this;
    const side = this.width = canvas.clientWidth || 360;
    const height = canvas.clientHeight || 300;
    const scale = window.devicePixelRatio || 1;
    canvas.width = side * scale;
    canvas.height = height * scale;
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    this.place(model.members.length, side, height);
    if (selected === null) await this.overview(context, edges);
    else this.spokes(context, edges.filter((edge) => edge.receiver === selected));
    this.nodes(context, model, selected);
    this.describe(model, edges, selected);
  }

  place(count, width, height) {
    const named = count <= MANY;
    const [wide, high] = [width / 2 - (named ? 86 : 16), height / 2 - (named ? 28 : 14)];
    this.places = Array.from({ length: count }, (_, member) => {
      const angle = -Math.PI / 2 + (2 * Math.PI * member) / Math.max(1, count);
      return { x: width / 2 + wide * Math.cos(angle), y: height / 2 + high * Math.sin(angle), angle };
    });
  }

  async overview(context, edges) {
    const used = edges.filter((edge) => edge.state === 2);
    const malicious = used.filter((edge) => this.model.members[edge.sender].kind === "malicious");
    const benign = used.filter((edge) => this.model.members[edge.sender].kind !== "malicious");
    await this.lines(context, edges.filter((edge) => edge.state < 2), { colour: "--faint", width: 0.6, alpha: 0.55 });
    await this.lines(context, benign, { colour: "--benign", width: 0.9, alpha: Math.max(0.06, Math.min(0.5, 30 / used.length ** 0.85)) });
    await this.lines(context, malicious, { colour: "--malicious", width: 1.4, alpha: 0.8, dash: [5, 3] });
  }

  // Of very many lines some are left out: all of them would be one grey disc, and slow.
  async lines(context, all, { colour, width, alpha, dash = [] }) {
    const every = Math.ceil(all.length / MOST_LINES);
    const edges = every > 1 ? all.filter((_, at) => (at * 7919) % every === 0) : all;
    context.save();
    context.strokeStyle = variable(colour);
    context.lineWidth = width;
    context.globalAlpha = alpha;
    context.setLineDash(dash);
    for (let start = 0; start < edges.length; start += 500) {
      context.beginPath();
      for (const { sender, receiver } of edges.slice(start, start + 500)) {
        context.moveTo(this.places[sender].x, this.places[sender].y);
        context.lineTo(this.places[receiver].x, this.places[receiver].y);
      }
      context.stroke();
      await breathe();
    }
    context.restore();
  }

  spokes(context, edges) {
    const most = Math.max(1e-9, ...edges.map((edge) => edge.share));
    for (const edge of edges) {
      const kind = this.model.members[edge.sender].kind;
      context.save();
      context.strokeStyle = variable(edge.state === 2 ? (kind === "malicious" ? "--malicious" : "--benign") : "--muted");
      context.lineWidth = edge.state === 2 ? 1 + (3 * edge.share) / most : 1;
      context.globalAlpha = edge.state === 2 ? 0.9 : 0.55;
      context.setLineDash(edge.state === 2 ? [] : [2, 4]);
      context.beginPath();
      context.moveTo(this.places[edge.sender].x, this.places[edge.sender].y);
      context.lineTo(this.places[edge.receiver].x, this.places[edge.receiver].y);
      context.stroke();
      context.restore();
    }
  }

  nodes(context, model, selected) {
    const count = model.members.length;
    const size = count <= 20 ? 8 : count <= MANY ? 6 : 4.5;
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    model.members.forEach((member, at) => {
      const { x, y, angle } = this.places[at];
      context.fillStyle = variable(`--${member.kind === "malicious" ? "malicious" : member.kind === "benign" ? "benign" : "other"}`);
      context.strokeStyle = variable("--card");
      context.lineWidth = 1.5;
      context.beginPath();
      if (member.kind === "malicious") {
        context.moveTo(x, y - 1.25 * size);
        context.lineTo(x + 1.15 * size, y + 0.85 * size);
        context.lineTo(x - 1.15 * size, y + 0.85 * size);
        context.closePath();
      } else if (member.kind === "benign") {
        context.arc(x, y, size, 0, 2 * Math.PI);
      } else if (member.kind === "own") {
        context.rect(x - size, y - size, 2 * size, 2 * size);
      } else {
        context.moveTo(x, y - 1.2 * size);
        context.lineTo(x + 1.2 * size, y);
        context.lineTo(x, y + 1.2 * size);
        context.lineTo(x - 1.2 * size, y);
        context.closePath();
      }
      context.fill();
      context.stroke();
      if (at === selected) {
        context.strokeStyle = variable("--ink");
        context.lineWidth = 2;
        context.beginPath();
        context.arc(x, y, size + 5, 0, 2 * Math.PI);
        context.stroke();
      }
      if (count <= MANY || at === selected) this.label(context, member.name, x, y, angle, size, count <= MANY);
    });
  }

  label(context, name, x, y, angle, size, outside) {
    const text = name.length > 12 ? `${name.slice(0, 11)}…` : name;
    const sideways = outside ? Math.cos(angle) : x > this.width / 2 ? -1 : 1;
    context.fillStyle = variable("--ink");
    context.textAlign = Math.abs(sideways) < 0.2 ? "center" : sideways > 0 ? "left" : "right";
    const shift = Math.abs(sideways) < 0.2 ? 0 : Math.sign(sideways) * (size + 8);
    const lift = Math.abs(sideways) < 0.2 ? Math.sign(Math.sin(angle)) * (size + 9) : 0;
    context.fillText(text, x + shift, y + lift);
  }

  describe(model, edges, selected) {
    const there = edges.filter((edge) => selected === null || edge.receiver === selected);
    const used = there.filter((edge) => edge.state === 2).length;
    const who = selected === null ? "Together, the peers" : model.name(selected);
    const words = edges.length
      ? `${who} ${selected === null ? "have" : "has"} ${counted(there.length, "incoming line")} and used ${used} of them in the last ${model.statements ? "decision" : "iteration"}.`
      : "Nobody is connected yet.";
    setAttribute(this.canvas, "aria-label", words);
    setText(byId("graph-note"), words);
  }
}
