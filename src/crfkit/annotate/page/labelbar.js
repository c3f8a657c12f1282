// One button per label, always in the same place, with its key and what the model thinks of it.

import { chance, el, key, setText } from "./dom.js";
import { labelName, project } from "./state.js";

export class LabelBar {
  /** onpick(name) is called with a label's name, or null for outside. */
  constructor(onpick, { none = true } = {}) {
    this.onpick = onpick;
    this.none = none;
    this.node = el("div", { class: "labels", role: "group", "aria-label": "Labels" });
    this.build();
  }

  build() {
    const labels = project.labels.map(({ name, key: k, color }) => ({ name, key: k, color: `c${color}` }));
    if (this.none && project.task === "spans") labels.push({ name: null, key: "0", color: "outside" });
    this.parts = labels.map((label) => {
      const p = el("span", { class: "p" });
      const bar = el("span", { class: "bar" });
      const name = el("span", { class: "name" }, labelName(label.name));
      const node = el(
        "button",
        {
          type: "button",
          class: `label ${label.color}`,
          "aria-keyshortcuts": label.key ?? "/",
          on: { click: () => this.onpick(label.name) },
        },
        key(label.key ?? "/"),
        name,
        p,
        bar,
      );
      return { ...label, node, p, bar };
    });
    this.node.replaceChildren(...this.parts.map((part) => part.node));
  }

  /** Shows the model's probabilities; proposed is the label that Enter takes. */
  update(choices = [], proposed = undefined) {
    const known = new Map(choices.map((choice) => [choice.label, choice.p]));
    for (const part of this.parts) {
      const p = known.get(part.name);
      setText(part.p, p === undefined ? "" : chance(p));
      part.bar.style.setProperty("--part", p ?? 0);
      part.node.classList.toggle("proposed", part.name === proposed);
    }
  }

  /** The label of a key: its name, null for outside, undefined for none. */
  static of(pressed) {
    if (pressed === "0" && project.task === "spans") return null;
    return project.labels.find((label) => label.key && label.key.toLowerCase() === pressed.toLowerCase())?.name;
  }
}
