// Labels that the model finds most unlikely: probable mistakes.

import { get, post } from "./api.js";
import { toast } from "./announce.js";
import { button, chance, el, refocus } from "./dom.js";
import { edit, empty, frame, pager, Past, status, still } from "./rows.js";
import { colorOf, labelName } from "./state.js";
import { tell } from "./tabs.js";
import { overlap, phrase, withSpan } from "./text.js";

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
    this.past = new Past(() => this.load(this.page));
    this.node.prepend(this.past.node);
  }

  key(event) {
    return this.past.key(event);
  }

  open() {
    return this.load(0);
  }

  async load(page) {
    this.page = page;
    const ask = (this.asked = (this.asked ?? 0) + 1);
    const found = await get("/api/review", { page });
    if (ask !== this.asked) return; // a later state is under way
    const rows = found.rows.map((row) => this.row(row));
    this.body.replaceChildren(
      ...(rows.length
        ? [el("ul", { class: "rows" }, ...rows), pager(found, "doubt", (p) => this.load(p))]
        : [empty("Nothing to review: the model agrees with every label, or has too few of them.")]),
    );
    this.body.setAttribute("aria-busy", "false");
  }

  row(row) {
    const entry = el("li", { class: "entry tall" });
    const people = () => row.spans.filter((span) => span.by !== "model");
    // What is settled goes at once; the model's own opinion follows later.
    const settle = async (doubt, spans, confirm) => {
      this.at = entry;
      const labels = spans.filter((s) => s.label !== null).map(({ start, end, label }) => ({ start, end, label }));
      if (!(await this.save(row, labels, confirm))) return;
      row.spans = spans;
      const settled = confirm ? [] : doubt.model;
      row.doubts = row.doubts.filter((other) => other !== doubt && !settled.some((span) => overlap(span, other)));
      if (row.doubts.length) draw();
      else await this.leave(entry);
      refocus(this.at?.querySelector(".doubt button"));
    };
    const line = (doubt) => {
      const { start, end, said, model, p_model: p } = doubt;
      const change = () => {
        const rest = people().filter((span) => !overlap(span, doubt));
        return settle(doubt, model.reduce(withSpan, rest), false);
      };
      const words = (span) => `“${phrase(row.text, row.tokens, span.start, span.end)}”`;
      // the same words with another label, or other borders
      const same = model.every((span) => span.start === start && span.end === end);
      const label = model[0]?.label ?? null;
      const guess = same
        ? [pill(label, p)]
        : model.flatMap((span) => [el("b", { dir: "auto" }, words(span)), " ", pill(span.label, span.p)]);
      return el(
        "div",
        { class: "doubt" },
        el("b", { dir: "auto" }, words(doubt)),
        " said ",
        pill(said, doubt.p_said),
        " model ",
        ...guess,
        el(
          "span",
          { class: "settle" },
          button("Keep", () => settle(doubt, people(), true)),
          button(same ? `Change to ${labelName(label)}` : "Take the model’s", change, { class: "primary" }),
          button("Edit", () => this.edit(row, entry)),
        ),
      );
    };
    const draw = () => {
      const marked = row.doubts.map((doubt) => [doubt.start, doubt.end]);
      entry.replaceChildren(status(row), still(row, people(), marked), ...row.doubts.map(line));
    };
    draw();
    return entry;
  }

  /** Takes away what has been settled; what follows it is the next place. */
  async leave(entry) {
    this.at = entry.nextElementSibling ?? entry.previousElementSibling;
    entry.remove();
    if (!this.body.querySelector(".entry")) await this.load(0);
  }

  async save(row, labels, confirm) {
    try {
      const reply = await post(`/api/sequence/${row.sequence}`, { labels, judged: row.judged, confirm });
      tell(reply.event);
      this.past.update(reply);
      toast(confirm ? "Kept" : "Changed");
      return true;
    } catch (error) {
      toast(error.message, true);
      return false;
    }
  }

  async edit(row, entry) {
    const reply = await edit(row.sequence);
    if (!reply) return;
    this.past.update(reply);
    await this.leave(entry);
    refocus(this.at?.querySelector(".doubt button"));
  }
}
