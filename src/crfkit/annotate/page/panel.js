// Where things stand.

import { get } from "./api.js";
import { bar, curve, interval } from "./charts.js";
import { chance, count, el, many, percent } from "./dom.js";
import { colorOf } from "./state.js";

const signed = (v, digits = 1) => `${v > 0 ? "+" : v < 0 ? "−" : "±"}${Math.abs(v).toFixed(digits)}`;

function card(title, ...children) {
  return el("section", { class: "card" }, el("h2", {}, title), ...children);
}

function figure(value, unit, note) {
  return el(
    "div",
    { class: "figure" },
    el("strong", {}, value),
    unit && el("span", {}, unit),
    note && el("small", {}, note),
  );
}

const WIDE = 0.3; // an interval that says too little for a number of its own

function accuracyCard({ accuracy }) {
  const { f1, token, questions } = accuracy ?? {};
  const main = f1?.value != null ? f1 : token;
  const name = main === f1 ? "Span F1" : "Token accuracy";
  if (main?.value == null) {
    const seen = questions ? `${questions} so far.` : "None so far.";
    return card("Accuracy", el("p", { class: "quiet" }, `Shown once a few random questions are answered. ${seen}`));
  }
  const range = ({ low, high }) => `${percent(low)} to ${percent(high)}`;
  const sure = ({ low, high }) => high - low <= WIDE;
  const value = sure(main) ? main.value : null;
  const shown = value === null ? "" : ` ${percent(value, 1)}`;
  const parts = [
    value !== null
      ? figure(percent(main.value, 1), name, `90% interval ${range(main)}`)
      : figure("not known yet", name, `90% interval ${range(main)}, narrower with more random questions`),
    interval({ ...main, value }, `${name}${shown}, 90% interval ${range(main)}`),
  ];
  if (main === f1 && token?.value != null && sure(token)) {
    parts.push(row("Token accuracy", percent(token.value, 1), range(token)));
  }
  const points = accuracy.curve ?? [];
  if (value !== null && points.length > 1)
    parts.push(curve(points, { name: `${name} over answers, now${shown}`, to: 1 }));
  parts.push(el("p", { class: "quiet" }, `On the whole pool, from ${many(questions, "random question")}.`));
  return card("Accuracy", ...parts);
}

const row = (name, value, note = "") =>
  el("div", { class: "row" }, el("span", {}, name), el("b", {}, value), note && el("small", {}, note));

function progressCard({ labelled, remaining, questions, seconds_per_question: seconds }) {
  const all = labelled.tokens + remaining.tokens;
  return card(
    "Progress",
    figure(count(questions), questions === 1 ? "question" : "questions", seconds ? `${seconds.toFixed(1)} s each` : ""),
    bar(all ? labelled.tokens / all : 0, "thick"),
    row("Words", count(labelled.tokens), `${count(remaining.tokens)} left`),
    row("Sentences", count(labelled.sentences), `${count(remaining.sentences)} left`),
    labelled.partial > 0 && row("Partly labelled", count(labelled.partial), "of these"),
  );
}

function entropyCard({ entropy }) {
  if (entropy?.pool == null) return null;
  const parts = [figure(count(entropy.pool), "nats", "uncertainty left in the pool")];
  if ((entropy.curve ?? []).length > 1) {
    parts.push(curve(entropy.curve, { name: "Entropy of the pool over answers", from: 0, format: count }));
  }
  return card("Entropy left", ...parts);
}

function gainCard({ expected_gain: gain }) {
  if (!gain || (gain.f1 == null && gain.entropy == null)) return null;
  return card(
    `Next ${many(gain.answers, "answer")}`,
    gain.f1 != null &&
      row("Expected F1", Math.abs(gain.f1) < 5e-4 ? "about the same" : `${signed(100 * gain.f1)} points`),
    gain.entropy != null && row("Expected entropy", `${signed(gain.entropy, 0)} nats`),
  );
}

function labelsCard({ labels }, state) {
  if (!labels?.length) return null;
  const most = Math.max(1, ...labels.map((l) => l.count));
  const rows = labels.map((label) =>
    el(
      "li",
      { class: `c${colorOf(label.name)}` },
      el("span", { class: "dot" }),
      el("span", { class: "name" }, label.name),
      bar(label.count / most),
      el("b", {}, count(label.count)),
    ),
  );
  return card(state.task === "tokens" ? "Labelled words" : "Labelled spans", el("ul", { class: "counts" }, ...rows));
}

const STATES = {
  idle: "Model is up to date",
  learning: "Learning from your answer",
  training: "Training in the background",
};

function freshness(panel) {
  const fresh = panel.fresh ?? 1;
  const text = fresh < 0.999 ? `${chance(fresh)} of the pool rescored` : (STATES[panel.learning] ?? STATES.idle);
  return el("p", { class: `fresh ${panel.learning ?? "idle"}` }, el("span", { class: "pulse" }), text);
}

export class Panel {
  constructor(state) {
    this.state = state;
    this.body = el("div", { class: "cards" });
    this.node = el("aside", { class: "panel", "aria-label": "Progress" }, this.body);
  }

  update(panel) {
    if (!panel) return;
    this.body.replaceChildren(
      ...[
        freshness(panel),
        accuracyCard(panel),
        progressCard(panel),
        entropyCard(panel),
        gainCard(panel),
        labelsCard(panel, this.state),
      ].filter(Boolean),
    );
    clearTimeout(this.timer);
    if (panel.learning !== "idle" || (panel.fresh ?? 1) < 0.999) this.timer = setTimeout(() => this.refresh(), 1500);
  }

  async refresh() {
    if (!this.node.isConnected) return;
    try {
      if (!document.hidden) this.update(await get("/api/panel"));
      else this.timer = setTimeout(() => this.refresh(), 3000);
    } catch {
      this.timer = setTimeout(() => this.refresh(), 5000);
    }
  }

  close() {
    clearTimeout(this.timer);
  }
}
