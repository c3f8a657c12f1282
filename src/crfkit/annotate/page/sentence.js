// A sentence as words that can be marked: by dragging, by tapping, by keys. Words are options of a list box, so that
// a screen reader can say which of them are chosen and how they are labelled.

import { el } from "./dom.js";
import { cutter, direction } from "./text.js";

let numbered = 0;

/** Characters that change the direction of text do so only within their word. */
const isolated = (word) => (/[\u202A-\u202E\u2066-\u2069]/.test(word) ? " isolated" : "");

export class Sentence {
  /** onselect(start, end, finished, tapped) is called while the pointer marks words. */
  constructor({ name = "Sentence", onselect = null, small = false } = {}) {
    this.onselect = onselect;
    this.id = `s${++numbered}`;
    const role = onselect ? "listbox" : "group";
    this.node = el("div", { class: `sentence${small ? " small" : ""}`, role, "aria-label": name, lang: "" });
    if (onselect) {
      this.node.tabIndex = 0;
      this.node.setAttribute("aria-multiselectable", "true");
      this.node.classList.add("live");
      this.node.addEventListener("pointerdown", (event) => this.press(event));
      // A finger that marks words must neither scroll nor fling: after a fling, the browser swallows the next tap.
      const hold = (event) => this.marks(event.touches[0]) && event.cancelable && event.preventDefault();
      this.node.addEventListener("touchmove", hold, { passive: false });
    }
    this.words = [];
    this.gaps = [];
  }

  /** New text; everything is unmarked. */
  show(text, tokens, { task = "spans", tagWidth = 0 } = {}) {
    const cut = cutter(text);
    this.node.dir = this.direction = direction(text);
    this.node.classList.toggle("interlinear", task === "tokens");
    this.node.style.setProperty("--tag", tagWidth);
    this.texts = tokens.map(([start, end]) => cut(start, end));
    const role = this.onselect ? "option" : null;
    this.words = this.texts.map((word, t) =>
      el("span", { class: `w${isolated(word)}`, role, id: role && `${this.id}-${t}`, data: { t } }, word),
    );
    this.gaps = tokens.slice(1).map(([start], t) => el("span", { class: "g" }, cut(tokens[t][1], start)));
    this.apart = this.texts.map(isolated);
    const parts = [];
    if (tokens.length && tokens[0][0] > 0) parts.push(cut(0, tokens[0][0]));
    this.words.forEach((word, t) => parts.push(word, ...(this.gaps[t] ? [this.gaps[t]] : [])));
    parts.push(tokens.length ? cut(tokens[tokens.length - 1][1]) : text);
    this.node.replaceChildren(...parts);
    this.node.scrollTop = 0;
    return this;
  }

  /**
   * Marks spans {start, end, label, kind, color, tag}; kinds are known, done, asked, later, guess and differ.
   * chosen is the range that keys and buttons act on.
   */
  paint(spans, chosen = null) {
    const words = this.words.map((_, t) => [`w${this.apart[t]}`]);
    const gaps = this.gaps.map(() => ["g"]);
    const tags = this.words.map(() => null);
    const inside = this.words.map(() => "");
    for (const span of spans) {
      const names = ["in", span.kind, span.label === null ? "outside" : `c${span.color ?? 0}`];
      for (let t = span.start; t < span.end; t++) {
        words[t].push(...names);
        if (t + 1 < span.end) gaps[t].push(...names);
      }
      words[span.start].push("first");
      words[span.end - 1].push("last");
      const text = span.tag ?? span.label ?? "";
      tags[span.start] = { text, alone: span.end - span.start === 1 };
      inside.fill(text, span.start + 1, span.end);
    }
    if (chosen) {
      for (let t = chosen.start; t < chosen.end; t++) {
        words[t].push("chosen");
        if (t + 1 < chosen.end) gaps[t].push("chosen");
      }
      words[chosen.start].push("chosen-first");
      words[chosen.end - 1].push("chosen-last");
    }
    this.words.forEach((node, t) => this.dress(node, words[t].join(" "), tags[t], inside[t], t));
    this.gaps.forEach((node, t) => (node.className = gaps[t].join(" ")));
    if (this.onselect) {
      if (chosen) this.node.setAttribute("aria-activedescendant", `${this.id}-${chosen.end - 1}`);
      else this.node.removeAttribute("aria-activedescendant");
    }
  }

  dress(node, name, tag, inside, t) {
    if (node.className !== name) node.className = name;
    if (tag?.text) node.dataset.tag = tag.text;
    else delete node.dataset.tag;
    // A tag that is wider than its word makes room for itself, so that neighbours' tags do not meet.
    const wide = tag?.alone && tag.text.length > 0.8 * this.texts[t].length;
    node.classList.toggle("widened", Boolean(wide));
    if (wide) node.style.setProperty("--n", tag.text.length);
    if (!this.onselect) return;
    node.setAttribute("aria-selected", node.classList.contains("chosen"));
    if (tag?.text) node.setAttribute("aria-label", `${this.texts[t]}, ${tag.text}`);
    else if (inside) node.setAttribute("aria-label", `${this.texts[t]}, ${inside}, continued`);
    else node.removeAttribute("aria-label");
  }

  /** Brings a word into view where the sentence is longer than its box. */
  reveal(t) {
    const box = this.node.getBoundingClientRect();
    const word = this.words[t]?.getBoundingClientRect();
    if (!word || (word.top >= box.top + 8 && word.bottom <= box.bottom - 24)) return;
    this.node.scrollTop += word.top - box.top - box.height / 2 + word.height;
  }

  wordAt(event) {
    const hit = document.elementFromPoint(event.clientX, event.clientY);
    const node = hit?.closest?.(".w");
    return node && this.node.contains(node) ? Number(node.dataset.t) : null;
  }

  /** Whether a touch marks words: it has reached another one, or goes sideways. */
  marks({ clientX, clientY }) {
    if (!this.from) return false;
    return this.dragging || Math.abs(clientX - this.from.clientX) >= Math.abs(clientY - this.from.clientY);
  }

  press(event) {
    if (event.button > 0) return;
    const first = this.wordAt(event);
    if (first === null) return;
    event.preventDefault(); // no selection of text; focus is set by hand
    this.from = event;
    let last = first;
    let moved = false;
    const range = () => [Math.min(first, last), Math.max(first, last) + 1];
    const move = (e) => {
      if (e.pointerId !== event.pointerId) return;
      const t = this.wordAt(e);
      if (t === null || (t === last && moved)) return;
      if (t !== last) {
        last = t;
        moved = this.dragging = true;
        this.onselect(...range(), false, false);
      }
    };
    const stop = (e) => {
      if (e.pointerId !== event.pointerId) return;
      this.dragging = false;
      this.from = null;
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", stop);
      removeEventListener("pointercancel", stop);
      this.node.focus({ preventScroll: true });
      if (e.type === "pointerup" || moved) this.onselect(...range(), true, !moved);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop);
    addEventListener("pointercancel", stop);
  }
}
