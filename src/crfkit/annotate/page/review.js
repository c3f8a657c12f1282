// Labels that the model finds most unlikely: probable mistakes.

import { get, post } from "./api.js";
import { toast } from "./announce.js";
import { button, chance, el } from "./dom.js";
import { edit, empty, frame, pager, status, still } from "./rows.js";
import { colorOf, labelName } from "./state.js";
import { tell } from "./tabs.js";
import { phrase, withSpan } from "./text.js";

const pill = (label, p) =>
  el(
    "span",
    { class: `pill ${label === null ? "outside" : `c${colorOf(label)}`}` },
    labelName(label),
    " ",
    el("b", {}, chance(p)),
  );

export class Review {
  constructor() {
    Object.assign(
      this,
      frame(
        "Review",
        "Labels that people gave and the model finds unlikely, the most unlikely first. Some are mistakes; some are what the model has yet to learn.",
      ),
    );
  }

  open() {
    return this.load(0);
  }

  async load(page) {
    this.page = page;
    const found = await get("/api/review", { page });
    const rows = found.rows.map((row) => this.row(row));
    this.body.replaceChildren(
      ...(rows.length
        ? [el("ul", { class: "rows" }, ...rows), pager(found, "doubt", (p) => this.load(p))]
        : [empty("Nothing to doubt: the model agrees with every label, or has too few of them.")]),
    );
    this.body.setAttribute("aria-busy", "false");
  }

  row(row) {
    const doubts = row.doubts.map((doubt) =>
      el(
        "div",
        { class: "doubt" },
        el("b", { dir: "auto" }, `“${phrase(row.text, row.tokens, doubt.start, doubt.end)}”`),
        " you said ",
        pill(doubt.said, doubt.p_said),
        " model ",
        pill(doubt.model, doubt.p_model),
        el("span", { class: "push" }),
        button("Keep", () => this.save(row, row.spans, true)),
        button(
          `Change to ${labelName(doubt.model)}`,
          () => this.save(row, withSpan(row.spans, { start: doubt.start, end: doubt.end, label: doubt.model }), false),
          { class: "primary" },
        ),
        button("Edit", () => this.edit(row)),
      ),
    );
    const marked = row.doubts.map((doubt) => [doubt.start, doubt.end]);
    return el(
      "li",
      { class: "entry tall" },
      status(row),
      still(
        row,
        row.spans.filter((s) => s.by !== "model"),
        marked,
      ),
      ...doubts,
    );
  }

  async save(row, spans, confirm) {
    const labels = spans
      .filter((s) => s.label !== null && s.by !== "model")
      .map(({ start, end, label }) => ({ start, end, label }));
    try {
      const reply = await post(`/api/sequence/${row.sequence}`, { labels, judged: row.judged, confirm });
      tell(reply.event);
      toast(confirm ? "Kept" : "Changed");
      await this.load(this.page);
    } catch (error) {
      toast(error.message, true);
    }
  }

  async edit(row) {
    if (await edit(row.sequence)) this.load(this.page);
  }
}
