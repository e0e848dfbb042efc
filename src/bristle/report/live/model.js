// A snapshot as the parts of the page want it: who gave what to whom, and why.
const USED = new Set(["kept", "clipped"]);

function unpacked(text, whole = 65535) {
  const raw = atob(text);
  const values = new Float32Array(raw.length >> 1);
  for (let at = 0; at < values.length; at += 1) {
    values[at] = (raw.charCodeAt(2 * at) | (raw.charCodeAt(2 * at + 1) << 8)) / whole;
  }
  return values;
}

class Model {
  constructor(snapshot, reasons) {
    this.snapshot = snapshot;
    this.reasons = reasons;
    this.members = snapshot.members;
    this.classes = snapshot.classes;
    this.judgements = new Map();
    for (const one of snapshot.judgements) {
      const words = one.class_words ? unpacked(one.class_words, 1) : null;
      this.judgements.set(one.receiver, { ...one, weights: unpacked(one.weights), words });
    }
    // Peers that exchange evidence state means of classes; others send heads.
    this.statements = snapshot.unit !== "iteration";
    this.what = this.statements ? "statement" : "head";
    const kinds = new Set(this.members.map((member) => member.kind));
    this.knowsKinds = kinds.has("benign") || kinds.has("malicious");
  }

  name(member) {
    return this.members[member].name;
  }

  // The share of a whole head, on average over its rows.
  share(judgement, place) {
    const width = this.classes.length;
    let sum = 0;
    for (let at = place * width; at < (place + 1) * width; at += 1) sum += judgement.weights[at];
    return sum / width;
  }

  why(judgement, place) {
    const reason = this.reasons[judgement.reasons[place]];
    if (!USED.has(reason.name)) return reason.words;
    const width = this.classes.length;
    const row = judgement.weights.subarray(place * width, (place + 1) * width);
    let best = 0;
    for (let at = 1; at < width; at += 1) if (row[at] > row[best]) best = at;
    if (this.statements) return `${reason.words}: ${this.counted(judgement, place)}`;
    const share = this.share(judgement, place);
    return `${reason.words}: ${percent(share)} of the head, at most ${percent(row[best])} (class ${this.classes[best]})`;
  }

  // Of a statement: the classes whose mean it has a part in, and those that it states without one.
  counted(judgement, place) {
    const width = this.classes.length;
    const named = (wanted) => this.classes.filter((_, at) => wanted(judgement.weights[place * width + at], this.classWords(judgement, place, at)));
    const used = named((weight) => weight > 0);
    const unused = named((weight, words) => weight === 0 && words !== null && !words.startsWith("says nothing"));
    const told = used.length ? `has a part in the mean of ${listed(used)}` : "has no part in any mean";
    return unused.length ? `${told}; not in that of ${listed(unused)}` : told;
  }

  // Why a mean counts for what it does, where that is known for every class.
  classWords(judgement, place, column) {
    if (!judgement.words) return null;
    return this.snapshot.phrases[judgement.words[place * this.classes.length + column]] ?? null;
  }

  // A row for every member: what `receiver` gave it, class by class (null: it was not heard).
  givenBy(receiver) {
    const width = this.classes.length;
    const missing = this.statements ? "it knows no statement of it" : "not heard in its last iteration";
    const rows = this.members.map(() => ({ cells: null, why: missing }));
    const judgement = this.judgements.get(receiver);
    const own = new Float32Array(width).fill(1);
    if (judgement) {
      judgement.senders.forEach((sender, place) => {
        const cells = judgement.weights.subarray(place * width, (place + 1) * width);
        for (let at = 0; at < width; at += 1) own[at] -= cells[at];
        const words = judgement.words && this.classes.map((_, at) => this.classWords(judgement, place, at));
        rows[sender] = { cells, why: this.why(judgement, place), words };
      });
      const holds = this.statements ? this.members[receiver].holds : null;
      for (let at = 0; at < width; at += 1) own[at] = holds && !holds.includes(at) ? 0 : Math.max(0, own[at]);
      const why = this.statements ? "its own samples" : "its own head: what no other was given";
      rows[receiver] = { cells: own, why, own: true };
    } else {
      for (const row of rows) row.why = "it has not decided about anything yet";
    }
    return rows;
  }

  // The same for all receivers together: means over those who heard a member.
  givenByAll() {
    const width = this.classes.length;
    const sums = this.members.map(() => ({ cells: new Float32Array(width), heard: 0, used: 0, reasons: new Map() }));
    for (const judgement of this.judgements.values()) {
      judgement.senders.forEach((sender, place) => {
        const into = sums[sender];
        let whole = 0;
        for (let at = 0; at < width; at += 1) {
          const weight = judgement.weights[place * width + at];
          into.cells[at] += weight;
          whole += weight;
        }
        into.heard += 1;
        into.used += whole > 0;
        const code = judgement.reasons[place];
        into.reasons.set(code, (into.reasons.get(code) || 0) + 1);
      });
    }
    return sums.map(({ cells, heard, used, reasons }) => {
      if (!heard) return { cells: null, why: "nobody has heard it lately" };
      for (let at = 0; at < width; at += 1) cells[at] /= heard;
      const told = [...reasons].sort((a, b) => b[1] - a[1]);
      const words = told.map(([code, count]) => `${this.reasons[code].words} (${count} of ${heard})`);
      return { cells, why: words.join("; "), used, heard };
    });
  }

  // How the heads of benign peers and of attackers fared: for each kind, how often each reason was given.
  tally(receivers) {
    const kinds = new Map();
    for (const receiver of receivers) {
      const judgement = this.judgements.get(receiver);
      if (!judgement) continue;
      judgement.senders.forEach((sender, place) => {
        const kind = this.members[sender].kind;
        if (!kinds.has(kind)) kinds.set(kind, { heads: 0, weight: 0, reasons: new Map() });
        const into = kinds.get(kind);
        into.heads += 1;
        into.weight += this.share(judgement, place);
        const code = judgement.reasons[place];
        if (!into.reasons.has(code)) into.reasons.set(code, []);
        into.reasons.get(code).push(sender);
      });
    }
    return kinds;
  }

  receivers() {
    return [...this.judgements.keys()].sort((a, b) => a - b);
  }

  // Attackers' part of all weight that received heads were given; null where nobody is known to be one.
  attackersWeight() {
    if (!this.members.some((member) => member.kind === "malicious")) return null;
    const kinds = this.tally(this.judgements.keys());
    const malicious = kinds.get("malicious")?.weight ?? 0;
    const benign = kinds.get("benign")?.weight ?? 0;
    return malicious + benign > 0 ? malicious / (malicious + benign) : 0;
  }
}
