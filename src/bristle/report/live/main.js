// Puts the parts together, and keeps up with the run.
const given = JSON.parse(byId("data").textContent);
const POLL = 1000;
const STATES = {
  starting: ["…", "Starting"],
  running: ["▶", "Live"],
  ended: ["✓", "Ended"],
  interrupted: ["■", "Interrupted"],
  lost: ["!", "Connection lost: the run may have ended"],
  refused: ["!", "This address is no longer valid"],
};

let model = null;
let selected = null;
let opened = null;
let trouble = null;
let work = Promise.resolve();

const chart = new Chart(byId("chart"));
const graph = new Graph(byId("graph"), choose);
const matrix = new Matrix(byId("matrix"), open);
const peers = new Peers(byId("peers"), choose);

// A peer that decides is also the one whose weights the matrix shows.
const receiver = () => (selected !== null && model.judgements.has(selected) ? selected : null);

function choose(member) {
  selected = member === selected ? null : member;
  announce(selected === null ? "All peers" : `${model.name(selected)} chosen`);
  refresh();
}

function open(sender, column) {
  opened = sender === null ? null : { sender, column };
  refresh();
  if (opened) {
    const { title, weight, why } = reasonFor(model, receiver(), weights(), sender, column);
    announce(`${title}: ${weight} ${why}`);
  }
}

function weights() {
  return receiver() === null ? model.givenByAll() : model.givenBy(receiver());
}

// One after the other, so that no two renderings share the page.
function refresh(again = false) {
  work = work.then(() => render(again));
  return work;
}

async function render(again) {
  if (!model) return;
  const alone = !model.members.length;
  document.body.classList.toggle("alone", alone);
  setText(byId("alone"), alone ? "These results hold no decisions. Those of simulate --json FILE --decisions, and of the demo, do." : "");
  sliceBegan = performance.now();
  showHeader();
  showTiles();
  chart.show(model);
  if (alone) return void (document.body.dataset.drawn = 0);
  await breathe();
  const rows = weights();
  await breathe();
  await matrix.show(model, rows, receiver());
  matrix.mark(opened ? opened.sender : null, opened ? opened.column : null);
  showReason(rows);
  showDetail();
  await breathe();
  await peers.show(model, selected);
  await breathe();
  await graph.show(model, selected, again);
  document.body.dataset.drawn = model.snapshot.version ?? 0;
}

function showHeader() {
  const { snapshot } = model;
  const live = Boolean(given.live);
  const state = trouble || snapshot.state;
  let [sign, words] = STATES[state];
  if (!live && !trouble) [sign, words] = ["◷", snapshot.state === "interrupted" ? "Recorded, interrupted" : "Recorded"];
  if (!trouble && (snapshot.iteration || snapshot.state !== "starting")) {
    const done = `${snapshot.iteration.toLocaleString("en")}${snapshot.total ? ` of ${snapshot.total.toLocaleString("en")}` : ""}`;
    words += model.statements ? `: ${done} ${snapshot.unit}` : `: iteration ${done}`;
  }
  const pill = byId("state");
  if (pill.dataset.state !== state && (state === "ended" || state === "interrupted")) announce("The run has ended.");
  pill.dataset.state = state;
  setText(pill.querySelector(".sign"), sign);
  setText(pill.querySelector(".words"), words);
  setText(byId("title"), snapshot.title);
  setText(byId("subtitle"), snapshot.subtitle);
  if (document.title !== `${snapshot.title} · Bristle`) document.title = `${snapshot.title} · Bristle`;
  const progress = byId("progress");
  progress.hidden = !snapshot.total;
  progress.max = snapshot.total || 1;
  progress.value = snapshot.iteration;
  setText(byId("accuracy-note"), snapshot.band || "Measured on samples that no peer has seen.");
  setText(byId("peers-note"), snapshot.left_out
    ? `${counted(snapshot.left_out, "more member")} of this run are not shown. Choose a peer to see its decisions above.`
    : "Choose one to see its decisions above.");
  showReceivers();
}

function showReceivers() {
  const select = byId("receiver");
  const receivers = model.receivers();
  const key = JSON.stringify(receivers.map((member) => model.name(member)));
  if (select.dataset.key !== key) {
    select.dataset.key = key;
    select.replaceChildren(make("option", { value: "" }, "all peers, on average"), ...receivers.map((member) => make("option", { value: member }, model.name(member))));
  }
  const wanted = receiver() === null ? "" : String(receiver());
  if (select.value !== wanted) select.value = wanted;
  const who = receiver() === null ? `each peer's ${model.what}, on average over those who heard it` : `each ${model.what}, by ${model.name(receiver())}`;
  const part = model.statements ? "the mean of every class" : "every class's row";
  const more = model.snapshot.classes_left_out ? ` Classes not shown: ${model.snapshot.classes_left_out}.` : "";
  setText(byId("matrix-note"), `How much of ${part} came from ${who}. Choose a cell for the reason; arrow keys move.${more}`);
}

function worstAndBest(point) {
  if (!point || point[2] === null) return model.members[0]?.kind === "own" ? "of this peer" : "mean of the peers";
  return point[3] === null ? `worst ${percent(point[2])}` : `worst ${percent(point[2])}, best ${percent(point[3])}`;
}

function showTiles() {
  const { snapshot } = model;
  const tiles = [];
  const last = snapshot.history[snapshot.history.length - 1];
  tiles.push(["Accuracy", last ? percent(last[1]) : "–", worstAndBest(last)]);
  const own = model.members[0]?.kind === "own";
  if (!own) tiles.push(["Oracle", snapshot.oracle === null ? "–" : percent(snapshot.oracle), "all samples in one place"]);
  const theirs = model.attackersWeight();
  const heads = [...model.judgements.values()].reduce((sum, one) => sum + one.senders.length, 0);
  if (theirs === null) tiles.push([model.statements ? "Statements weighed" : "Heads judged", heads.toLocaleString("en"), "in the last decisions"]);
  else tiles.push(["Attackers’ weight", heads ? percent(theirs) : "–", "of all weight given to others"]);
  const sent = model.members.map((member) => member.bytes_out).filter((count) => count !== null);
  tiles.push([own ? "Sent" : "Sent by a peer", sent.length ? bytes(Math.round(sent.reduce((sum, count) => sum + count, 0) / sent.length)) : "–", own ? "since it first ran" : "on average, since the start"]);
  if (!model.members.length) tiles.splice(2);
  const refused = model.members.reduce((sum, member) => sum + Object.values(member.refused).reduce((all, count) => all + count, 0), 0);
  if (model.members.length) tiles.push(["Refused", refused.toLocaleString("en"), "messages not even looked into"]);
  const list = byId("tiles");
  if (list.children.length !== tiles.length) {
    list.replaceChildren(...tiles.map(() => make("div", {}, make("dt"), make("dd", { class: "value" }), make("dd", { class: "muted" }))));
  }
  tiles.forEach((texts, at) => texts.forEach((text, part) => setText(list.children[at].children[part], text)));
}

function showReason(rows) {
  const panel = byId("reason");
  panel.hidden = !opened;
  if (!opened) return;
  const { title, weight, why } = reasonFor(model, receiver(), rows, opened.sender, opened.column);
  const key = `${title}|${weight}|${why}`;
  if (panel.dataset.key === key) return;
  panel.dataset.key = key;
  panel.replaceChildren(make("h3", {}, title), make("p", { class: "why" }, why), make("p", { class: "muted" }, weight));
}

function showDetail() {
  const panel = byId("detail");
  const made = selected === null ? aboutAll(model) : aboutOne(model, selected);
  const title = selected === null ? "Why" : model.name(selected);
  setText(byId("detail-title"), title);
  const after = make("div", {}, ...made);
  if (after.innerHTML !== panel.firstChild?.innerHTML) panel.replaceChildren(after);
}

function take(snapshot) {
  const names = (one) => one.snapshot.members.map((member) => member.name).join("\n");
  const before = model;
  model = new Model(snapshot, given.reasons);
  if (before && names(before) !== names(model)) opened = null;
  // The page of one peer shows what that one does.
  if (!before || names(before) !== names(model)) selected = model.members[0]?.kind === "own" ? 0 : null;
  return refresh();
}

async function follow() {
  let after = -1;
  let failures = 0;
  for (;;) {
    try {
      const answer = await fetch(`state?after=${after}`, { cache: "no-store", signal: AbortSignal.timeout(10000) });
      if (answer.status === 403) return refuse();
      if (answer.status === 200) {
        const snapshot = await answer.json();
        after = snapshot.version;
        trouble = null;
        await take(snapshot);
        if (snapshot.state === "ended" || snapshot.state === "interrupted") return;
      } else if (trouble) {
        trouble = null;
        refresh();
      }
      failures = 0;
    } catch {
      failures += 1;
      if (failures > 1) {
        trouble = "lost";
        refresh();
      }
    }
    await sleep(Math.max(document.hidden ? 4 * POLL : POLL, Math.min(10000, (failures && 500) * 2 ** failures)));
  }
}

function refuse() {
  trouble = "refused";
  if (model) return refresh();
  setText(byId("state").querySelector(".words"), STATES.refused[1]);
}

function showTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const button = byId("theme");
  button.setAttribute("aria-pressed", String(dark));
  setText(button.querySelector(".words"), dark ? "Light" : "Dark");
  setAttribute(button, "aria-label", "Dark colours");
  return dark;
}

byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = showTheme() ? "light" : "dark";
  showTheme();
  refresh(true);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  showTheme();
  refresh(true);
});
byId("receiver").addEventListener("change", (event) => {
  selected = event.target.value === "" ? null : Number(event.target.value);
  refresh();
});
byId("graph-legend").replaceChildren(
  ...[["used", "used"], ["unused", "heard, given nothing"]].map(([kind, words]) => make("li", {}, make("span", { class: `line ${kind}` }), words)));

showTheme();
if (given.live) {
  follow();
} else {
  const runs = given.runs;
  const select = byId("run");
  byId("run-choice").hidden = runs.length < 2;
  select.replaceChildren(...runs.map((run, at) => make("option", { value: at }, `${run.title}: ${run.subtitle}`)));
  select.addEventListener("change", () => {
    selected = opened = null;
    take(runs[Number(select.value)]);
  });
  take(runs[0]);
}
