// A label by its name, for projects with more labels than there are keys.

import { button, dialog, el } from "./dom.js";
import { colorOf, labelName, project } from "./state.js";

/** Asks for a label; onpick gets its name, null for outside. */
export function findLabel(onpick) {
  const names = project.labels.map((label) => label.name);
  if (project.task === "spans") names.push(null);
  const field = el("input", { type: "search", "aria-label": "Part of the label’s name", autocomplete: "off" });
  const list = el("div", { class: "labels", role: "group", "aria-label": "Labels that fit" });
  const pick = (name) => {
    box.close();
    onpick(name);
  };
  const fitting = () => {
    const part = field.value.trim().toLowerCase();
    const at = (name) => labelName(name).toLowerCase().indexOf(part);
    return names.filter((name) => at(name) >= 0).sort((a, b) => Math.sign(at(a)) - Math.sign(at(b)));
  };
  const show = () =>
    list.replaceChildren(
      ...fitting().map((name) => {
        const color = name === null ? "outside" : `c${colorOf(name)}`;
        return button([el("span", { class: "name" }, labelName(name))], () => pick(name), { class: `label ${color}` });
      }),
    );
  const first = (event) => {
    event.preventDefault();
    const [name] = fitting();
    if (name !== undefined) pick(name);
  };
  field.addEventListener("input", show);
  const box = dialog("Which label?", el("form", { on: { submit: first } }, field), list);
  show();
  field.focus();
}
