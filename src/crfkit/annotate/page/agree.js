// Several annotators: how far they agree, and where they do not.

import { get, post } from "./api.js";
import { toast } from "./announce.js";
import { button, count, el, percent, refocus } from "./dom.js";
import { edit, empty, frame, pager, Past, status, still } from "./rows.js";
import { tell } from "./tabs.js";

const number = (v, digits = 2) => (v == null ? "–" : v.toFixed(digits));
const share = (v) => (v == null ? "–" : percent(v, 1));

const big = (value, name, note) =>
  el("div", { class: "card stat" }, el("strong", {}, value), el("span", {}, name), el("small", {}, note));

export class Agree {
  constructor() {
    Object.assign(
      this,
      frame(
        "Agree",
        "Sentences that two or more people have labelled. Cohen’s kappa is 1 for full agreement and 0 for what chance alone would give.",
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
    const found = await get("/api/agree", { page });
    if (ask !== this.asked) return; // a later state is under way
    this.body.setAttribute("aria-busy", "false");
    if ((found.annotators ?? []).length < 2 || !found.tokens) {
      return this.body.replaceChildren(
        empty(
          "No sentence has been labelled by two people yet. Start the server with a second annotator and send that address to a colleague.",
        ),
      );
    }
    const rows = found.rows.map((row) => this.row(row));
    this.body.replaceChildren(
      el(
        "div",
        { class: "stats" },
        big(
          share(found.token.agreement),
          "words alike",
          `${count(found.tokens)} words, ${count(found.sentences)} sentences`,
        ),
        big(number(found.token.kappa), "kappa, by word", "Cohen’s kappa"),
        big(share(found.span.agreement), "spans alike", "F1 of one person against another"),
        big(number(found.span.kappa), "kappa, by span", "Cohen’s kappa"),
      ),
      pairs(found.pairs ?? []),
      el("h2", {}, "Disagreements"),
      ...(rows.length
        ? [el("ul", { class: "rows" }, ...rows), pager(found, "sentence", (p) => this.load(p))]
        : [empty("None left to settle.")]),
    );
  }

  row(row) {
    const versions = row.versions.map((version) =>
      el(
        "div",
        { class: "version" },
        el("b", { class: "who" }, version.annotator),
        still(row, version.spans, row.differ),
        button(`Take ${version.annotator}’s`, () => this.settle(row, version.spans)),
      ),
    );
    const other = button("Neither: edit", () => this.edit(row));
    return el("li", { class: "entry tall" }, status(row), el("div", { class: "versions" }, ...versions), other);
  }

  async settle(row, spans) {
    const labels = spans.filter((s) => s.label !== null).map(({ start, end, label }) => ({ start, end, label }));
    try {
      const reply = await post(`/api/settle/${row.sequence}`, { labels });
      tell(reply.event);
      toast("Settled");
      this.past.update(reply);
      await this.load(this.page);
      refocus();
    } catch (error) {
      toast(error.message, true);
    }
  }

  async edit(row) {
    const saved = await edit(row.sequence, {
      spans: row.versions[0].spans,
      path: `/api/settle/${row.sequence}`,
      title: `Settle sentence ${row.sequence + 1}`,
    });
    if (!saved) return;
    this.past.update(saved);
    await this.load(this.page);
    refocus();
  }
}

function pairs(list) {
  if (list.length < 2) return "";
  const head = ["one", "other", "words", "alike", "kappa", "span F1"].map((name, k) =>
    el("th", { scope: "col", class: k > 1 ? "num" : "" }, name),
  );
  const body = list.map((p) =>
    el(
      "tr",
      {},
      el("td", {}, p.a),
      el("td", {}, p.b),
      ...[count(p.tokens), share(p.agreement), number(p.kappa), share(p.f1)].map((x) => el("td", { class: "num" }, x)),
    ),
  );
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Agreement of pairs" },
    el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body)),
  );
}
