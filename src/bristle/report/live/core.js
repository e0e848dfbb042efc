// Small things that all parts of the page use. Text from outside goes through textContent alone.
const byId = (id) => document.getElementById(id);

const SIGNS = { benign: "●", malicious: "▲", unknown: "◆", own: "■" };
const KINDS = { benign: "benign peer", malicious: "attacker", unknown: "not known", own: "this peer" };

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function drawn(tag, attributes = {}, text = null) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== null) node.textContent = text;
  return node;
}

// What has not changed is not touched: a browser would lay it out again.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setAttribute(node, name, value) {
  if (value === null) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== value) {
    node.setAttribute(name, value);
  }
}

const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)}%`;

function bytes(count) {
  if (count === null) return "–";
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (count >= size) return `${(count / size).toFixed(1)} ${unit}`;
  }
  return `${count} B`;
}

const counted = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;

function listed(names, most = 12) {
  if (names.length <= most) return names.join(", ");
  return `${names.slice(0, most).join(", ")} and ${names.length - most} more`;
}

function variable(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Long work is done in slices, so that the page answers to keys and clicks meanwhile.
const SLICE = 12;
let sliceBegan = 0;

async function breathe() {
  if (performance.now() - sliceBegan < SLICE) return;
  await new Promise((go) => setTimeout(go));
  sliceBegan = performance.now();
}

const sleep = (milliseconds) => new Promise((go) => setTimeout(go, milliseconds));

function announce(text) {
  setText(byId("announce"), text);
}
