// The table of peers, and the details of one or of all.
class Peers {
  constructor(container, choose) {
    this.container = container;
    this.key = "";
    container.addEventListener("click", (event) => {
      const row = event.target.closest("[data-member]");
      if (row) choose(Number(row.dataset.member));
    });
  }

  async show(model, selected) {
    const key = JSON.stringify(model.members.map((member) => [member.name, member.kind]));
    if (key !== this.key) await this.build(model, key);
    for (const [member, { row, button, cells }] of this.rows.entries()) {
      const one = model.members[member];
      const refused = Object.values(one.refused).reduce((sum, count) => sum + count, 0);
      const told = [
        one.holds === null ? "not known" : one.holds.length === model.classes.length ? "all" : one.holds.map((at) => model.classes[at]).join(" "),
        one.iteration === null ? "–" : one.iteration.toLocaleString("en"),
        one.accuracy === null ? "–" : percent(one.accuracy),
        bytes(one.bytes_in),
        bytes(one.bytes_out),
        one.bytes_in === null && !refused ? "–" : refused.toLocaleString("en"),
        one.hears === null ? "–" : one.hears.length.toLocaleString("en"),
      ];
      told.forEach((text, at) => setText(cells[at].firstChild, text));
      cells[2].style.setProperty("--share", `${Math.round(100 * (one.accuracy ?? 0))}%`);
      row.classList.toggle("chosen", member === selected);
      setAttribute(button, "aria-pressed", String(member === selected));
      await breathe();
    }
  }

  async build(model, key) {
    this.key = key;
    this.rows = [];
    const heads = ["Peer", "Classes held", model.statements ? "Decisions" : "Iteration", "Accuracy", "In", "Out", "Refused", "Neighbours"];
    const table = make("div", { role: "table", class: "peers", "aria-label": "Every peer, with what it holds, sent and received" },
      make("div", { role: "row", class: "heading" }, ...heads.map((text, at) => make("span", { role: "columnheader", class: at > 1 ? "number" : "" }, text))));
    this.container.replaceChildren(table);
    for (const [member, { name, kind }] of model.members.entries()) {
      const button = make("button", { type: "button", class: "name", "aria-pressed": "false" },
        make("span", { class: `sign ${kind}`, "aria-hidden": "true" }, SIGNS[kind]), name, make("span", { class: "unseen" }, `, ${KINDS[kind]}`));
      const cells = heads.slice(1).map((_, at) => make("span", { role: "cell", class: at > 0 ? (at === 2 ? "number bar" : "number") : "" }, make("span")));
      const row = make("div", { role: "row", "data-member": member }, make("span", { role: "rowheader" }, button), ...cells);
      this.rows.push({ row, button, cells });
      table.append(row);
      await breathe();
    }
  }
}

function groups(model, tally, named) {
  const list = make("ul", { class: "groups" });
  const rank = { benign: 0, own: 1, unknown: 2, malicious: 3 };
  for (const [kind, found] of [...tally].sort((a, b) => rank[a[0]] - rank[b[0]])) {
    const whose = { benign: "of benign peers", malicious: "of attackers", unknown: "of neighbours", own: "of its own" }[kind];
    const item = make("li", {}, make("h3", {}, make("span", { class: `sign ${kind}`, "aria-hidden": "true" }, SIGNS[kind]), `${counted(found.heads, model.what)} ${whose}`));
    for (const [code, senders] of [...found.reasons].sort((a, b) => b[1].length - a[1].length)) {
      const who = named ? listed(senders.map((sender) => model.name(sender))) : `${senders.length} of ${found.heads}`;
      item.append(make("p", {}, make("strong", {}, model.reasons[code].words), make("span", { class: "muted" }, ` · ${who}`)));
    }
    list.append(item);
  }
  return list;
}

function aboutAll(model) {
  const tally = model.tally(model.judgements.keys());
  if (!tally.size) return [make("p", { class: "muted" }, "Nobody has heard anybody yet.")];
  return [make("p", { class: "muted" }, "The last decisions of all peers. Choose a peer or a cell for more."), groups(model, tally, false)];
}

function aboutOne(model, member) {
  const one = model.members[member];
  const facts = make("dl", { class: "facts" });
  const say = (name, ...value) => facts.append(make("dt", {}, name), make("dd", {}, ...value));
  if (one.holds !== null) {
    const all = one.holds.length === model.classes.length;
    say("Classes held", ...(all ? ["all"] : one.holds.length ? one.holds.map((at) => make("span", { class: "chip" }, model.classes[at])) : ["none"]));
  }
  if (one.accuracy !== null) say("Accuracy", percent(one.accuracy));
  if (one.iteration !== null) say(model.statements ? "Decisions" : "Iteration", one.iteration.toLocaleString("en"));
  if (one.bytes_in !== null || one.bytes_out !== null) say("Traffic", `${bytes(one.bytes_in)} in, ${bytes(one.bytes_out)} out`);
  const refused = Object.entries(one.refused).filter(([, count]) => count > 0).sort((a, b) => b[1] - a[1]);
  if (refused.length) say("Refused", refused.map(([kind, count]) => `${count} × ${kind}`).join(", "));
  else if (one.bytes_in !== null) say("Refused", "nothing");
  if (one.hears !== null) say("Connected to", one.hears.length ? listed(one.hears.map((other) => model.name(other))) : "nobody");
  const judgement = model.judgements.get(member);
  if (judgement) {
    const unseen = judgement.unseen ? ` ${counted(judgement.unseen, `more ${model.what}`)} came from peers that are not shown.` : "";
    return [facts, make("p", { class: "muted" }, `Its last decision, ${model.statements ? "number" : "in iteration"} ${judgement.iteration}.${unseen}`), groups(model, model.tally([member]), true)];
  }
  const others = make("ul", { class: "groups" });
  const reasons = new Map();
  for (const [receiver, { senders, reasons: codes }] of model.judgements) {
    const place = senders.indexOf(member);
    if (place < 0) continue;
    if (!reasons.has(codes[place])) reasons.set(codes[place], []);
    reasons.get(codes[place]).push(receiver);
  }
  for (const [code, receivers] of reasons) {
    others.append(make("li", {}, make("p", {}, make("strong", {}, model.reasons[code].words),
      make("span", { class: "muted" }, ` · says ${listed(receivers.map((receiver) => model.name(receiver)))}`))));
  }
  return [facts, make("p", { class: "muted" }, reasons.size ? `What others made of its last ${model.what}.` : "It has not decided about anything yet."), others];
}

// Why one cell is what it is, in words.
function reasonFor(model, receiver, given, sender, column) {
  const row = given[sender];
  const who = receiver === null ? "All peers together" : model.name(receiver);
  const about = column === null ? "" : `, class ${model.classes[column]}`;
  const title = receiver === sender ? `${who}, its own ${model.statements ? "samples" : "head"}${about}` : `${who} about ${model.name(sender)}${about}`;
  const whole = model.statements ? "all means, on average over the classes" : "the new head";
  let weight = `No weight: its ${model.what} was not there.`;
  if (row.cells && column !== null) weight = `${percent(row.cells[column], 2)} of ${model.statements ? "the mean of this class" : "this row of the new head"}.`;
  else if (row.cells) weight = `${percent(row.cells.reduce((sum, value) => sum + value, 0) / row.cells.length, 2)} of ${whole}.`;
  const why = (column !== null && row.words?.[column]) || row.why;
  return { title, weight, why: `${why[0].toUpperCase()}${why.slice(1)}.` };
}
