// What can be done, and by which key.

import { dialog, el, key } from "./dom.js";
import { labelName, project } from "./state.js";

const KEYS = [
  [["Enter"], "Accept the guess; save a whole sentence"],
  [["← →"], "Move the end of the span; in a whole sentence, move from word to word"],
  [["Shift ← →"], "Move the start of the span; in a whole sentence, choose more words"],
  [["↑ ↓"], "Previous and next span of the sentence"],
  [["="], "Give the answer to every occurrence in the pool"],
  [["."], "Label the whole sentence, and back"],
  [["Space"], "Skip the sentence"],
  [["Ctrl Z", "Backspace"], "Undo, even answers that are already saved"],
  [["Ctrl Y"], "Redo"],
  [["Esc"], "Leave a selection or the whole sentence"],
  [["/"], "Find a label by its name"],
  [["?"], "This help"],
];

function table(rows) {
  return el(
    "table",
    { class: "keys" },
    el("tbody", {}, ...rows.map(([keys, text]) => el("tr", {}, el("td", {}, ...keys.map(key)), el("td", {}, text)))),
  );
}

export function openHelp() {
  if (document.querySelector("dialog")) return;
  const labels = project.labels.map((label) => [[label.key ?? "/"], label.name]);
  if (project.task === "spans") labels.push([["0"], `${labelName(null)}: not an entity`]);
  const keysOn = el("input", {
    type: "checkbox",
    checked: localStorage.getItem("crfkit-keys") !== "off",
    on: { change: (event) => localStorage.setItem("crfkit-keys", event.target.checked ? "on" : "off") },
  });
  dialog(
    "Help",
    el(
      "p",
      {},
      "A question is one sentence. It asks only about the marked words; nothing is assumed about the rest, unless you label the whole sentence. Each answer is saved before the next question appears, so you can stop at any time.",
    ),
    el("p", {}, "With mouse or finger: tap a label, or drag over words to mark an entity that was not asked about."),
    el(
      "div",
      { class: "columns" },
      el("section", {}, el("h3", {}, "Keys"), table(KEYS)),
      el("section", {}, el("h3", {}, "Labels"), table(labels)),
    ),
    el("p", {}, el("label", {}, keysOn, " Single-key shortcuts (turn off if they get in the way of other software)")),
  );
}
