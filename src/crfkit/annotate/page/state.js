// What the server says of the project; one copy for all views.

import { get, post } from "./api.js";
import { tell } from "./tabs.js";

export const project = { labels: [], task: "spans" };
const listeners = new Set();

export const onState = (f) => {
  listeners.add(f);
  return () => listeners.delete(f);
};

function take(state) {
  Object.assign(project, state);
  for (const f of listeners) f(project);
  return project;
}

export const loadState = async () => take(await get("/api/state"));
export const changeLabels = async (change) => {
  const state = take(await post("/api/labels", change, "uuid"));
  tell(state.event);
  return state;
};
export const changeSettings = async (change) => take(await post("/api/settings", change));

/** Notes what a reply says of undo and redo. */
export function note({ undo, redo }) {
  if (undo !== undefined) Object.assign(project, { undo, redo });
}

/** Whether labels have changed since they were loaded, going by a panel. */
export const renamed = (panel) =>
  panel?.labels.map((label) => label.name).join(" ") !== project.labels.map((label) => label.name).join(" ");

export const colorOf = (name) => project.labels.find((label) => label.name === name)?.color ?? 11;

/** What "no label" is called: outside of every span. */
export const OUTSIDE = "none";
export const labelName = (name) => name ?? OUTSIDE;

/** Width of the widest label, for sentences with a label below each word. */
export const tagWidth = () => Math.min(10, Math.max(2, ...project.labels.map((label) => label.name.length)));

/** Keys that labels cannot have. */
export const RESERVED = ["0", "=", ".", "/", "?", " "];
