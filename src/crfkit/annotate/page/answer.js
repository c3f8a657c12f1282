// What a person says about the asked spans of a sentence, before it is sent. No DOM here.

import { joined, overlap, without, withSpan } from "./text.js";

const copy = (value) => JSON.parse(JSON.stringify(value));
const size = (range) => range.end - range.start;

/** An asked span: `span` is the question's (null for what a person left over of one), the rest is the answer to it. */
const item = (span) => ({
  span,
  asked: { start: span.start, end: span.end },
  start: span.start,
  end: span.end,
  label: span.guess.label,
  done: false, // answered
  absorbed: false, // part of another answer
  everywhere: false,
});

export class Answer {
  constructor(question) {
    this.length = question.tokens.length;
    this.state = {
      cur: 0,
      extras: [], // spans that were not asked
      chosen: null, // words that were not asked and have no label yet
      everywhere: false,
      items: question.spans.map((span) => item(span)),
    };
    this.past = [];
    this.future = [];
    if (question.said && !question.said.whole) this.restore(question.said.spans);
  }

  /** Says again what was said of this question before a reload, or before the answer was undone. */
  restore(said) {
    const asked = (span) => this.state.items.findIndex((x) => !x.done && overlap(x, span));
    this.state.extras = said.filter((span) => asked(span) < 0);
    for (const { start, end, label, everywhere } of said) {
      const k = asked({ start, end });
      if (k < 0) continue;
      this.state.cur = k;
      this.remember();
      Object.assign(this.item, { start, end });
      this.state.everywhere = Boolean(everywhere);
      if (!this.answer(label)) continue;
      const last = this.item; // it is asked again, with the answer that was given
      this.undo();
      this.future = [];
      Object.assign(this.item, { start, end, label });
      this.state.everywhere = last.everywhere;
    }
  }

  get item() {
    return this.state.items[this.state.cur];
  }

  /** The words that keys act on. */
  get range() {
    const { start, end } = this.state.chosen ?? this.item;
    return { start, end };
  }

  remember() {
    this.past.push(copy(this.state));
    this.future = [];
  }

  undo() {
    return this.travel(this.past, this.future);
  }

  redo() {
    return this.travel(this.future, this.past);
  }

  travel(from, to) {
    if (!from.length) return false;
    to.push(copy(this.state));
    this.state = from.pop();
    return true;
  }

  /** Chooses words: those of the asked span change its borders, others are a span that was not asked. */
  select(range, finished, tapped) {
    const { state } = this;
    if (!overlap(range, this.item)) state.chosen = range;
    else if (state.chosen) state.chosen = tapped ? null : range;
    else if (!tapped) {
      if (finished) this.remember();
      Object.assign(this.item, range);
    }
  }

  /** Moves a border by a word; whether it could be moved. */
  border(side, step) {
    const range = this.range;
    range[side] += step;
    if (range.start < 0 || range.end > this.length || size(range) < 1) return false;
    if (!this.state.chosen) this.remember();
    Object.assign(this.state.chosen ?? this.item, range);
    return true;
  }

  /** Labels the range; whether every asked span is answered now. */
  pick(label) {
    this.remember();
    return this.answer(label);
  }

  answer(label) {
    const { state } = this;
    const { everywhere } = state;
    state.everywhere = false;
    if (state.chosen) {
      const span = { ...state.chosen, label, everywhere };
      state.extras =
        label === null ? state.extras.filter((other) => !overlap(other, span)) : withSpan(state.extras, span);
      state.chosen = null;
      return false;
    }
    const { item: now } = this;
    Object.assign(now, { label, everywhere, done: true });
    for (const other of state.items) {
      if (other === now || other.absorbed || !overlap(other, now)) continue;
      const rest = other.done ? without(other, now) : null; // what is not answered yet is answered now
      Object.assign(other, rest ?? { done: true, absorbed: true });
    }
    state.extras = state.extras.filter((other) => !overlap(other, now));
    this.askForTheRest(now);
    const next = state.items.findIndex((other) => !other.done);
    if (next >= 0) state.cur = next;
    return next < 0;
  }

  /** A span that was made shorter leaves words that were asked and not answered: they are asked next. */
  askForTheRest(now) {
    const { items, extras, cur } = this.state;
    const ends = [
      { start: now.asked.start, end: Math.min(now.start, now.asked.end) },
      { start: Math.max(now.end, now.asked.start), end: now.asked.end },
    ];
    const free = ends.filter(
      (end) => size(end) > 0 && ![...items, ...extras].some((s) => !s.absorbed && overlap(s, end)),
    );
    items.splice(cur + 1, 0, ...free.map((end) => ({ ...item({ ...end, guess: { label: null } }), span: null })));
  }

  /** Goes to another asked span. */
  step(direction) {
    const next = this.state.cur + direction;
    if (next < 0 || next >= this.state.items.length) return false;
    this.state.cur = next;
    this.state.chosen = null;
    return true;
  }

  /** Every span so far, for the editor of whole sentences. */
  get spans() {
    const items = this.state.items.filter((x) => !x.absorbed);
    const said = items.map(({ start, end, label, done }) => ({ start, end, label, by: done ? "person" : "model" }));
    return [...said, ...this.state.extras];
  }

  /** What has been said so far, as the server takes it. */
  get draft() {
    const { items, extras } = this.state;
    const spans = [...items.filter((x) => x.done && !x.absorbed), ...extras].map((x) => ({
      start: x.start,
      end: x.end,
      label: x.label,
      everywhere: Boolean(x.everywhere),
    }));
    return { spans, judged: joined(spans.map((span) => [span.start, span.end])), whole: false };
  }

  /** The answer, as the server takes it. */
  get result() {
    const { items, extras } = this.state;
    const { spans, judged } = this.draft;
    const wrong = items.filter(
      (x) =>
        x.span && (x.absorbed || x.label !== x.span.guess.label || x.start !== x.span.start || x.end !== x.span.end),
    );
    const whole = judged.length === 1 && judged[0][1] - judged[0][0] === this.length;
    return { spans, judged, whole, corrections: wrong.length + extras.length };
  }
}
