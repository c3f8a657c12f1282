// What Browse, Review and Agree share: sentences in a list, pages, a sentence to edit.

import { get, post } from "./api.js";
import { announce, toast } from "./announce.js";
import { button, chance, count, dialog, el, icon, key, many, refocus } from "./dom.js";
import { Editor } from "./editor.js";
import { findLabel } from "./find.js";
import { LabelBar } from "./labelbar.js";
import { Sentence } from "./sentence.js";
import { colorOf, labelName, note, project, tagWidth } from "./state.js";
import { tell } from "./tabs.js";

/** A sentence to look at. */
export function still(row, spans = row.spans, differ = []) {
  const sentence = new Sentence({ small: true, name: `Sentence ${row.sequence + 1}` });
  sentence.show(row.text, row.tokens, { task: project.task, tagWidth: tagWidth() });
  sentence.paint(
    spans
      .filter((s) => s.label !== null)
      .map((s) => ({ ...s, kind: s.by === "model" ? "guess" : "known", color: colorOf(s.label) })),
  );
  for (const [start, end] of differ)
    for (const part of [...sentence.words.slice(start, end), ...sentence.gaps.slice(start, end - 1)])
      part.classList.add("differ");
  return sentence.node;
}

export const STATUS = { labelled: "labelled", partial: "partly labelled", open: "not labelled" };

/** Undo and redo of what was saved; again() shows the view anew. */
export class Past {
  constructor(again) {
    this.again = again;
    const act = (way, text, keys) => button([icon(way), text, key(keys)], () => this.go(way));
    this.buttons = { undo: act("undo", "Undo", "Ctrl Z"), redo: act("redo", "Redo", "Ctrl Y") };
    this.node = el("div", { class: "past", role: "group", "aria-label": "Undo and redo" }, ...Object.values(this.buttons));
    this.update();
  }

  update(reply = {}) {
    note(reply);
    for (const [way, node] of Object.entries(this.buttons)) node.disabled = !project[way];
  }

  async go(way) {
    try {
      const reply = await post(`/api/${way}`, {});
      tell(reply.event);
      this.update(reply);
      const what = reply.of.kind === "answer" ? "the answer to" : "the labels of";
      toast(`${way === "undo" ? "Undone" : "Redone"}: ${what} sentence ${reply.of.sequence + 1}`);
      await this.again();
      refocus();
    } catch (error) {
      toast(error.message, true);
    }
  }

  /** Handles a key; whether it was one of these. */
  key(event) {
    const pressed = event.key.toLowerCase();
    if (!(event.ctrlKey || event.metaKey) || !["z", "y"].includes(pressed)) return false;
    this.go(pressed === "y" || event.shiftKey ? "redo" : "undo");
    return true;
  }
}

/** Previous and next page. */
export function pager({ page, pages, total }, noun, go) {
  const to = (text, target) => button(text, () => go(target), { disabled: target < 0 || target >= pages });
  return el(
    "nav",
    { class: "pager", "aria-label": "Pages" },
    to("Previous", page - 1),
    el("span", {}, `${many(total, noun)} · page ${count(page + 1)} of ${count(Math.max(pages, 1))}`),
    to("Next", page + 1),
  );
}

/** Opens a sentence in a dialog; save(labels) sends it. Resolves with the reply, or null when nothing was saved. */
export async function edit(i, { spans = null, title = `Sentence ${i + 1}`, path = `/api/sequence/${i}` } = {}) {
  const row = await get(`/api/sequence/${i}`);
  return new Promise((resolve) => {
    const info = el("p", { class: "guess" });
    const bar = new LabelBar((label) => editor.pick(label));
    const editor = new Editor(() => describe());
    const describe = () => {
      const at = editor.chosen;
      const choices = at.end - at.start === 1 ? (row.choices?.[at.start] ?? []) : [];
      bar.update(choices, editor.current?.label);
      info.replaceChildren("Chosen: ", el("b", { dir: "auto" }, editor.words().slice(0, 60)));
    };
    const save = async () => {
      if (editor.missing() >= 0) return toast("Every word needs a label; this one has none yet.", true);
      try {
        const labels = editor.result.map(({ start, end, label }) => ({ start, end, label }));
        const reply = await post(path, { labels });
        tell(reply.event);
        note(reply);
        toast("Saved");
        resolve(reply);
        box.close();
      } catch (error) {
        toast(error.message, true);
      }
    };
    const undo = button("Undo", () => editor.undo());
    const saving = button(["Save ", key("Enter")], save, { class: "primary" });
    const box = dialog(
      title,
      el("p", { class: "context", dir: "auto", lang: "" }, (row.before ?? []).join(" ")),
      editor.node,
      el("p", { class: "context", dir: "auto", lang: "" }, (row.after ?? []).join(" ")),
      info,
      bar.node,
      el(
        "div",
        { class: "line" },
        saving,
        undo,
        el("span", { class: "push" }),
        el("small", { class: "quiet" }, "Arrow keys choose words, with Shift several"),
      ),
      history(row),
    );
    box.classList.add("wide");
    box.leave = () => !editor.corrections || confirm("Leave without saving this sentence?");
    box.addEventListener("keydown", (event) => {
      if (event.repeat && !event.key.startsWith("Arrow")) return event.preventDefault(); // a held key counts once
      if (event.target.closest("button, select, input") && ["Enter", " "].includes(event.key)) return;
      const ctrl = event.ctrlKey || event.metaKey;
      if (ctrl && event.key === "z") editor.undo();
      else if (ctrl && event.key === "y") editor.redo();
      else if (ctrl || event.altKey) return;
      else if (event.key === "Enter") save();
      else if (event.key === "/") findLabel((label) => editor.pick(label));
      else if (!editor.key(event)) return;
      event.preventDefault();
    });
    box.addEventListener("close", () => resolve(null));
    editor.load(row.text, row.tokens, spans ?? row.spans);
    editor.node.focus();
    announce(`${title}. ${row.text}`);
  });
}

function history(row) {
  const answers = row.answers ?? [];
  if (!answers.length)
    return el("p", { class: "quiet" }, "Nobody has labelled this sentence; the labels shown are the model's.");
  const items = answers.map((answer) => {
    const said = (answer.spans ?? []).map((s) => labelName(s.label)).join(", ") || "no entity";
    const time = answer.time ? new Date(answer.time).toLocaleString() : "";
    return el("li", {}, el("b", {}, answer.annotator), ` ${said} `, el("small", {}, time));
  });
  return el(
    "details",
    { class: "history" },
    el("summary", {}, `History: ${many(answers.length, "answer")}`),
    el("ol", {}, ...items),
  );
}

export function status(row) {
  const parts = [el("span", { class: `status ${row.status}` }, STATUS[row.status] ?? row.status)];
  if (row.confidence != null) parts.push(el("span", {}, `${chance(row.confidence)} sure`));
  if (row.people?.length) parts.push(el("span", {}, row.people.join(", ")));
  return el("div", { class: "meta" }, el("span", { class: "number" }, `#${row.sequence + 1}`), ...parts);
}

/** A view with a title, its lines of introduction, and a body that is filled later. */
export function frame(title, intro, ...children) {
  const body = el("div", { class: "body", "aria-busy": "true" });
  const node = el(
    "div",
    { class: "page" },
    el("h1", { tabindex: "-1" }, title),
    el("p", { class: "intro" }, intro),
    ...children,
    body,
  );
  return { node, body };
}

export const empty = (text) => el("p", { class: "empty" }, text);
