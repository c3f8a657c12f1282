// All sentences: search, filter, edit.

import { get } from "./api.js";
import { el, refocus } from "./dom.js";
import { edit, empty, frame, pager, Past, status, STATUS, still } from "./rows.js";
import { project } from "./state.js";

const CONFIDENCE = { low: "unsure (below 60%)", middle: "fairly sure (60 to 90%)", high: "sure (above 90%)" };

function select(name, title, options, onchange) {
  const list = Object.entries(options).map(([value, text]) => el("option", { value }, text));
  const node = el("select", { name, on: { change: onchange } }, el("option", { value: "" }, "any"), ...list);
  return el("label", {}, el("span", {}, title), node);
}

const named = (names) => Object.fromEntries(names.map((name) => [name, name]));

export class Browse {
  constructor(open) {
    this.asked = 0;
    this.first = open;
    const again = () => this.load(0);
    const search = el("input", {
      type: "search",
      name: "search",
      placeholder: "words of the sentence",
      on: { input: () => this.soon() },
    });
    this.form = el(
      "form",
      { class: "filters", role: "search", on: { submit: (event) => event.preventDefault() } },
      el("label", { class: "grow" }, el("span", {}, "Search"), search),
      select("label", "Label", named(project.labels.map((label) => label.name)), again),
      select("confidence", "Model", CONFIDENCE, again),
      select("status", "State", STATUS, again),
      select("by", "Annotator", named(project.annotators ?? []), again),
    );
    Object.assign(
      this,
      frame(
        "Browse",
        "Every sentence of the pool. Filled marks are people’s labels, underlined ones the model’s guesses.",
        this.form,
      ),
    );
    this.past = new Past(() => this.load(this.page));
    this.node.prepend(this.past.node);
  }

  key(event) {
    return this.past.key(event);
  }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(0), 200);
  }

  async open() {
    await this.load(0);
    if (this.first !== undefined) this.edit(this.first);
  }

  async load(page) {
    this.page = page;
    const ask = ++this.asked;
    const found = await get("/api/browse", { ...Object.fromEntries(new FormData(this.form)), page });
    if (ask !== this.asked) return; // a later search is under way
    const rows = found.rows.map((row) => this.row(row));
    this.body.replaceChildren(
      ...(rows.length
        ? [el("ul", { class: "rows" }, ...rows), pager(found, "sentence", (p) => this.load(p))]
        : [empty("No sentence fits.")]),
    );
    this.body.setAttribute("aria-busy", "false");
    if (page !== this.shown) scrollTo(0, 0);
    this.shown = page;
  }

  row(row) {
    const open = el(
      "button",
      {
        type: "button",
        class: "open",
        "aria-label": `Edit sentence ${row.sequence + 1}`,
        on: { click: () => this.edit(row.sequence) },
      },
      "Edit",
    );
    return el("li", { class: "entry" }, status(row), still(row), open);
  }

  async edit(i) {
    const reply = await edit(i);
    if (!reply) return;
    this.past.update(reply);
    await this.load(this.page);
    refocus(this.body.querySelector(`[aria-label="Edit sentence ${i + 1}"]`) ?? undefined);
  }
}
