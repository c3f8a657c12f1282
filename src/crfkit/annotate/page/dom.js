// Elements without a framework. Text goes in as text nodes only: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, f] of Object.entries(value)) node.addEventListener(event, f);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "vars") for (const [key, v] of Object.entries(value)) node.style.setProperty(key, v);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "hidden") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** An HTML element; children are nodes or strings. */
export const el = (tag, props = {}, ...children) => fill(document.createElement(tag), props, children);

/** An SVG element. */
export const svg = (tag, props = {}, ...children) => fill(document.createElementNS(SVG, tag), props, children);

/** Changes a node's text only if it differs, so that nothing is announced or laid out twice. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const PATHS = {
  undo: "M9 7 4 12l5 5M4 12h10a6 6 0 0 1 6 6",
  redo: "M15 7l5 5-5 5M20 12H10a6 6 0 0 0-6 6",
  help: "M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4M12 18v.01",
  theme: "M12 4a8 8 0 1 0 8 8 6 6 0 0 1-8-8z",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  tag: "M4 12V5a1 1 0 0 1 1-1h7l8 8-8 8zM8.500 8.500v.01",
  close: "M6 6l12 12M18 6 6 18",
  down: "M12 4v12M7 11l5 5 5-5M5 20h14",
};

/** A line drawing; what it means is said by the text beside it or by the label of its button. */
export const icon = (name) =>
  svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, svg("path", { d: PATHS[name] }));

/** The picture of a key. */
export const key = (text) => el("kbd", {}, text);

/** A button that counts once, however often it is clicked while its work is under way. */
export function button(text, action, props = {}) {
  let busy = false;
  const { class: name = "", ...rest } = props;
  const parts = Array.isArray(text) ? text : [text];
  const node = el("button", { type: "button", class: name, ...rest }, ...parts);
  node.addEventListener("click", async (event) => {
    if (busy) return;
    busy = true;
    try {
      await action(event);
    } finally {
      busy = false;
    }
  });
  return node;
}

/**
 * A dialog above the page, closed by Escape, its button or a click beside it; focus returns to where it was.
 * Its property `leave`, if set, tells whether it may be closed without saving.
 */
export function dialog(title, ...children) {
  const back = document.activeElement;
  const close = button([icon("close")], () => leave(node), { class: "plain round", "aria-label": "Close" });
  const heading = el("h2", { id: "dialog-title" }, title);
  const node = el("dialog", { "aria-labelledby": "dialog-title" }, el("header", {}, heading, close), ...children);
  node.addEventListener("click", (event) => event.target === node && leave(node));
  node.addEventListener("cancel", (event) => node.leave?.() === false && event.preventDefault());
  node.addEventListener("close", () => {
    node.remove();
    if (back?.isConnected) back.focus();
    else refocus();
  });
  document.body.append(node);
  node.showModal();
  return node;
}

/** Closes a dialog, unless it has something to save; whether it is closed. */
export function leave(node) {
  if (node.leave?.() === false) return false;
  node.close();
  return true;
}

/** Focuses a node, or the view's title, if what had the focus is gone. */
export function refocus(node = document.querySelector("h1")) {
  const at = document.activeElement;
  if (!at || at === document.body) node?.focus();
}

export const percent = (p, digits = 0) => `${(100 * p).toFixed(digits)}%`;

/** A probability for people: never 0% or 100%, which no model can mean. */
export const chance = (p) => (p > 0.995 ? ">99%" : p < 0.005 ? "<1%" : percent(p));

export const count = (n) => Math.round(n).toLocaleString("en");

/** "1 word", "2 words". */
export const many = (n, noun, plural = `${noun}s`) => `${count(n)} ${n === 1 ? noun : plural}`;
