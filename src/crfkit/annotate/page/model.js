// What the model has learned, and why it says what it says.

import { get } from "./api.js";
import { announce, toast } from "./announce.js";
import { button, chance, count, el, percent } from "./dom.js";
import { empty, frame } from "./rows.js";
import { Sentence } from "./sentence.js";
import { colorOf, labelName, project, tagWidth } from "./state.js";

const title = (text) => el("h2", {}, text);

function table(head, rows, name) {
  const cells = (row, k) => (k ? el("td", { class: "num" }, row) : el("th", { scope: "row" }, row));
  return el(
    "div",
    { class: "scroll", role: "region", tabindex: "0", "aria-label": name },
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, ...head.map((x, k) => el("th", { scope: "col", class: k ? "num" : "" }, x)))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map(cells)))),
    ),
  );
}

/** A matrix as a table whose cells are shaded by their part of the row. */
function matrix({ labels, counts }) {
  const sum = (row) => row.reduce((a, b) => a + b, 0);
  const body = counts.map((row, i) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, labelName(labels[i])),
      ...row.map((n, j) =>
        el(
          "td",
          { class: `num shade ${i === j ? "right" : "wrong"}`, vars: { "--part": sum(row) ? n / sum(row) : 0 } },
          n ? count(n) : "·",
        ),
      ),
    ),
  );
  const head = el(
    "tr",
    {},
    el("td", {}, "said / guessed"),
    ...labels.map((label) => el("th", { scope: "col" }, labelName(label))),
  );
  return el(
    "div",
    { class: "scroll", role: "region", tabindex: "0", "aria-label": "Confusion" },
    el("table", { class: "matrix" }, el("thead", {}, head), el("tbody", {}, ...body)),
  );
}

/** Named numbers as bars to both sides of zero. */
function weights(list) {
  const most = Math.max(1e-9, ...list.map(([, w]) => Math.abs(w)));
  return el(
    "ul",
    { class: "weights" },
    ...list.map(([name, w]) =>
      el(
        "li",
        { class: w < 0 ? "minus" : "plus" },
        el("code", {}, name),
        el("span", { class: "bar", vars: { "--part": Math.abs(w) / most } }),
        el("b", {}, `${w < 0 ? "−" : "+"}${Math.abs(w).toFixed(2)}`),
      ),
    ),
  );
}

export class Model {
  constructor() {
    Object.assign(this, frame("Model", "The current model: how well it does, what it confuses, what it looks at."));
  }

  async open() {
    const model = await get("/api/model");
    this.body.setAttribute("aria-busy", "false");
    if (!model.trained)
      return this.body.replaceChildren(empty("No model yet. It starts to learn with the first answers."));
    const scores = (model.scores?.rows ?? []).map((r) => [
      labelName(r.label),
      ...[r.precision, r.recall, r.f1].map((v) => (v == null ? "–" : percent(v, 1))),
      count(r.support),
    ]);
    const known = [
      `${count(model.weights)} weights`,
      `${count(model.sentences)} sentences and ${count(model.tokens)} words learned from`,
    ];
    this.body.replaceChildren(
      el("p", { class: "quiet" }, known.join(" · ")),
      title("Scores"),
      scores.length
        ? table(["label", "precision", "recall", "F1", "support"], scores, "Scores")
        : empty("Shown once random questions are answered."),
      model.scores?.note ? el("p", { class: "quiet" }, model.scores.note) : "",
      ...(model.confusion?.counts?.length ? [title("Confusion"), matrix(model.confusion)] : []),
      title("Why this label?"),
      this.explainer(),
      title("Heaviest features"),
      el(
        "div",
        { class: "grid" },
        ...(model.features ?? []).map((f) =>
          el(
            "section",
            { class: `card c${f.label === null ? 11 : colorOf(f.label)}` },
            el("h3", { class: "named" }, el("span", { class: "dot" }), labelName(f.label)),
            weights([...(f.positive ?? []), ...(f.negative ?? [])]),
          ),
        ),
      ),
    );
    await this.pickSentence(this.number ?? 0);
  }

  explainer() {
    this.sentence = new Sentence({
      name: "Sentence: choose a word to explain",
      onselect: (start, end, finished) => finished && this.explain(start),
    });
    this.reasons = el("div", { class: "reasons", "aria-live": "polite" });
    this.field = el("input", {
      type: "number",
      min: 1,
      max: project.sentences ?? 1,
      value: 1,
      on: { change: () => this.pickSentence(this.field.value - 1) },
    });
    const walk = (step) => () => this.pickSentence(Number(this.field.value) - 1 + step);
    this.sentence.node.addEventListener("keydown", (event) => this.walk(event));
    return el(
      "div",
      { class: "card explainer" },
      el(
        "div",
        { class: "filters" },
        el("label", {}, el("span", {}, "Sentence"), this.field),
        button("Previous", walk(-1)),
        button("Next", walk(1)),
      ),
      this.sentence.node,
      this.reasons,
    );
  }

  async pickSentence(i) {
    if (i < 0 || i >= (project.sentences ?? Infinity)) return;
    try {
      this.row = await get(`/api/sequence/${i}`);
    } catch (error) {
      return toast(error.message, true);
    }
    this.field.value = i + 1;
    this.sentence.show(this.row.text, this.row.tokens, { task: project.task, tagWidth: tagWidth() });
    const first = this.row.spans.find((span) => span.label !== null);
    await this.explain(first ? first.start : 0);
  }

  walk(event) {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const forward = (event.key === "ArrowRight") === (this.sentence.direction === "ltr");
    const next = this.token + (forward ? 1 : -1);
    event.preventDefault();
    if (next >= 0 && next < this.row.tokens.length) this.explain(next);
  }

  async explain(token) {
    this.token = token;
    const spans = this.row.spans
      .filter((s) => s.label !== null)
      .map((s) => ({ ...s, kind: s.by === "model" ? "guess" : "known", color: colorOf(s.label) }));
    this.sentence.paint(spans, { start: token, end: token + 1 });
    const why = await get("/api/explain", { sequence: this.row.sequence, token });
    if (this.token !== token) return;
    const word = this.sentence.texts[token];
    const first = `“${word}”`;
    const line = `${first} is ${labelName(why.guess)} (${chance(why.p)}) rather than ${labelName(why.against)}, by ${why.score.toFixed(2)}:`;
    this.reasons.replaceChildren(
      el("p", {}, el("bdi", {}, first), line.slice(first.length)),
      weights(why.terms.map((term) => [term.name, term.value])),
    );
    announce(line);
  }
}
