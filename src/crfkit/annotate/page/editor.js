// A whole sentence to be labelled: in Ask for whole sentences, in Browse, Review and Agree.

import { announce } from "./announce.js";
import { LabelBar } from "./labelbar.js";
import { Sentence } from "./sentence.js";
import { colorOf, labelName, project, tagWidth } from "./state.js";
import { overlap, withSpan } from "./text.js";

const copy = (value) => JSON.parse(JSON.stringify(value));

export class Editor {
  /** onchange() is called when the spans or the chosen words have changed, onedit() when the spans have. */
  constructor(onchange = () => {}, onedit = () => {}) {
    this.onchange = onchange;
    this.onedit = onedit;
    this.sentence = new Sentence({
      name: "Sentence: arrow keys choose words",
      onselect: (...args) => this.select(...args),
    });
    this.node = this.sentence.node;
  }

  load(text, tokens, spans) {
    this.length = tokens.length;
    this.spans = copy(spans.filter((span) => span.label !== null));
    this.first = copy(this.spans);
    this.past = [];
    this.future = [];
    this.anchor = this.head = 0;
    this.everywhere = false;
    this.sentence.show(text, tokens, { task: project.task, tagWidth: tagWidth() });
    this.paint();
  }

  get chosen() {
    return { start: Math.min(this.anchor, this.head), end: Math.max(this.anchor, this.head) + 1 };
  }

  set chosen({ start, end }) {
    this.anchor = start;
    this.head = end - 1;
  }

  words({ start, end } = this.chosen) {
    return this.sentence.texts.slice(start, end).join(" ");
  }

  /** The span that holds the chosen words, if any. */
  get current() {
    return this.spans.find((span) => overlap(span, this.chosen));
  }

  paint() {
    const spans = this.spans.map((span) => ({
      ...span,
      kind: span.by === "model" ? "guess" : "done",
      color: colorOf(span.label),
    }));
    this.sentence.paint(spans, this.length ? this.chosen : null);
    this.sentence.reveal(this.head);
    this.onchange();
  }

  select(start, end, finished, tapped) {
    const inside = tapped && this.spans.find((span) => span.start <= start && start < span.end);
    const again = inside && this.chosen.start === inside.start && this.chosen.end === inside.end;
    this.chosen = inside && !again ? inside : { start, end };
    this.paint();
    if (finished) this.say();
  }

  say() {
    const span = this.current;
    announce(`${this.words()}: ${span ? labelName(span.label) : "not labelled"}`);
  }

  change(spans) {
    this.past.push(this.spans);
    this.future = [];
    this.spans = spans;
    this.paint();
    this.onedit();
  }

  /** Labels the chosen words (null takes labels away) and goes on to the next word. */
  pick(label) {
    const { start, end } = this.chosen;
    if (label === null) this.change(this.spans.filter((span) => !overlap(span, { start, end })));
    else {
      const parts =
        project.task === "tokens"
          ? [...Array(end - start).keys()].map((k) => [start + k, start + k + 1])
          : [[start, end]];
      const added = parts.map(([a, b]) => ({ start: a, end: b, label, everywhere: this.everywhere }));
      this.change(added.reduce(withSpan, this.spans));
    }
    announce(`${this.words()}: ${labelName(label)}`);
    this.everywhere = false;
    this.anchor = this.head = Math.min(end, this.length - 1);
    this.paint();
  }

  undo() {
    return this.travel(this.past, this.future, "Undone");
  }

  redo() {
    return this.travel(this.future, this.past, "Done again");
  }

  travel(from, to, said) {
    if (!from.length) return false;
    to.push(this.spans);
    this.spans = from.pop();
    this.paint();
    this.onedit();
    announce(said);
    return true;
  }

  move(step, extend) {
    this.head = Math.min(Math.max(this.head + step, 0), this.length - 1);
    if (!extend) this.anchor = this.head;
    this.paint();
    this.say();
  }

  jump(step) {
    const others = this.spans.filter((s) => (step > 0 ? s.start > this.chosen.start : s.start < this.chosen.start));
    const span = step > 0 ? others[0] : others[others.length - 1];
    if (!span) return;
    this.chosen = span;
    this.paint();
    this.say();
  }

  /** Moves a border of the chosen words. */
  border(side, step) {
    const range = this.chosen;
    range[side] += step;
    if (range.start < 0 || range.end > this.length || range.start >= range.end) return;
    this.chosen = range;
    this.paint();
    this.say();
  }

  /** Handles a key; whether it was one of the editor's. */
  key(event) {
    const forward = this.sentence.direction === "rtl" ? "ArrowLeft" : "ArrowRight";
    const moves = {
      ArrowLeft: () => this.move(forward === "ArrowLeft" ? 1 : -1, event.shiftKey),
      ArrowRight: () => this.move(forward === "ArrowRight" ? 1 : -1, event.shiftKey),
      ArrowDown: () => this.jump(1),
      ArrowUp: () => this.jump(-1),
      Home: () => this.move(-this.length, event.shiftKey),
      End: () => this.move(this.length, event.shiftKey),
      Delete: () => this.pick(null),
      "=": () => this.toggleEverywhere(),
    };
    if (moves[event.key]) moves[event.key]();
    else {
      const label = LabelBar.of(event.key);
      if (label === undefined) return false;
      this.pick(label);
    }
    return true;
  }

  toggleEverywhere() {
    this.everywhere = !this.everywhere;
    announce(this.everywhere ? "The next label goes to every occurrence" : "Only here");
    this.onchange();
  }

  /** How many spans differ from those it was loaded with. */
  get corrections() {
    const same = (a, b) => a.start === b.start && a.end === b.end && a.label === b.label;
    const fresh = this.spans.filter((a) => !this.first.some((b) => same(a, b)));
    const gone = this.first.filter((a) => !this.spans.some((b) => overlap(a, b)));
    return fresh.length + gone.length;
  }

  /** In a task of tokens, the first word without a label, which is chosen then; -1 if there is none. */
  missing() {
    if (project.task !== "tokens") return -1;
    const t = this.sentence.texts.findIndex((_, k) => !this.spans.some((span) => span.start <= k && k < span.end));
    if (t >= 0) this.chosen = { start: t, end: t + 1 };
    this.paint();
    return t;
  }

  /** The spans as the server takes them. */
  get result() {
    return this.spans.map(({ start, end, label, everywhere }) => ({
      start,
      end,
      label,
      everywhere: Boolean(everywhere),
    }));
  }

  /** What has been said so far. */
  get draft() {
    return { spans: this.result, judged: [], whole: true };
  }

  /** The answer to a question about the whole sentence. */
  get answer() {
    return { spans: this.result, judged: [[0, this.length]], whole: true, corrections: this.corrections };
  }
}
