// One sentence with its uncertain spans, asked one after another.

import { Answer } from "./answer.js";
import { announce, toast } from "./announce.js";
import { get, post } from "./api.js";
import { button, chance, count, el, icon, key, many, setText } from "./dom.js";
import { Editor } from "./editor.js";
import { findLabel } from "./find.js";
import { openHelp } from "./help.js";
import { LabelBar } from "./labelbar.js";
import { Panel } from "./panel.js";
import { Sentence } from "./sentence.js";
import { colorOf, labelName, loadState, note, onState, project, renamed, tagWidth } from "./state.js";
import { tell } from "./tabs.js";
import { watch } from "./watch.js";
import { joined, knownSpans, overlap, withSpan } from "./text.js";

const KINDS = {
  random: "Drawn at random, to measure accuracy",
  cover: "To get to know the text",
  agree: "Somebody else has answered this one too",
  chosen: "Chosen by you",
  uncertain: "The model is not sure",
};

export class Ask {
  /** With a number, the question is about that sentence. */
  constructor(sequence) {
    this.sequence = sequence;
    this.sentence = new Sentence({ name: "Sentence", onselect: (...args) => this.select(...args) });
    this.editor = new Editor(
      () => this.whole && this.refresh(),
      () => this.whole && this.keep(),
    );
    this.panel = new Panel(project);
    this.labels = new LabelBar((label) => this.click(() => this.pick(label)));
    this.build();
    this.stop = onState(() => {
      this.labels.build();
      if (this.question) this.paint();
    });
  }

  build() {
    this.kicker = el("p", { class: "kicker" });
    this.heading = el("h1", { id: "question", tabindex: "-1" });
    this.before = el("p", { class: "context", dir: "auto", lang: "" });
    this.after = el("p", { class: "context", dir: "auto", lang: "" });
    this.place = el("div", { class: "place" }, this.sentence.node);
    this.guess = el("p", { class: "guess" });
    const middle = el("div", { class: "middle" }, this.before, this.place, this.after);
    const stage = el("div", { class: "stage" }, this.kicker, this.heading, middle);
    this.desk = el("div", { class: "desk", hidden: true }, this.guess, this.labels.node, this.actions());
    this.node = el(
      "div",
      { class: "ask" },
      el("section", { class: "work", "aria-labelledby": "question" }, stage, this.desk),
      this.panel.node,
    );
  }

  actions() {
    const act = (text, keys, action, props = {}) =>
      button([...(Array.isArray(text) ? text : [text]), ...keys.map(key)], () => this.click(action), props);
    this.acceptName = el("span", {}, "Accept");
    this.accepts = act([this.acceptName], ["Enter"], () => this.accept(), {
      class: "primary",
      "aria-keyshortcuts": "Enter",
    });
    const border = (name, side, step, picture) =>
      button([icon(picture)], () => this.click(() => this.border(side, step)), { class: "round", "aria-label": name });
    this.borderKeys = [key("Shift ← →"), key("← →")];
    this.borders = el(
      "div",
      { class: "borders", role: "group", "aria-label": "Borders" },
      el(
        "span",
        { class: "pair" },
        border("Start one word earlier", "start", -1, "left"),
        el("span", {}, "Start"),
        border("Start one word later", "start", 1, "right"),
        this.borderKeys[0],
      ),
      el(
        "span",
        { class: "pair" },
        border("End one word earlier", "end", -1, "left"),
        el("span", {}, "End"),
        border("End one word later", "end", 1, "right"),
        this.borderKeys[1],
      ),
    );
    this.sameName = el("span", {}, "Every occurrence");
    this.same = act([this.sameName], ["="], () => this.toggleEverywhere(), {
      "aria-pressed": "false",
      "aria-keyshortcuts": "=",
    });
    this.all = act("Whole sentence", ["."], () => this.toggleWhole(), {
      "aria-pressed": "false",
      "aria-keyshortcuts": ".",
    });
    this.skips = act("Skip", ["Space"], () => this.skip(), { "aria-keyshortcuts": "Space" });
    this.undoes = act([icon("undo"), el("span", {}, "Undo")], ["Ctrl Z"], () => this.undo(), {
      "aria-keyshortcuts": "Control+Z Backspace",
    });
    this.redoes = act([icon("redo"), el("span", {}, "Redo")], ["Ctrl Y"], () => this.redo(), {
      "aria-keyshortcuts": "Control+Y",
    });
    const help = act("Help", ["?"], openHelp, { "aria-keyshortcuts": "?" });
    return el(
      "div",
      { class: "actions", role: "group", "aria-label": "Actions" },
      el("div", { class: "line" }, this.accepts, this.borders, el("span", { class: "push" }), this.skips),
      el("div", { class: "line" }, this.same, this.all, el("span", { class: "push" }), this.undoes, this.redoes, help),
    );
  }

  async open() {
    if (!project.labels.length) return this.showUnnamed();
    const [question, panel] = await Promise.all([get("/api/question", { sequence: this.sequence }), get("/api/panel")]);
    this.panel.update(panel);
    this.show(question);
  }

  close() {
    this.stop();
    this.panel.close();
  }

  /** Another tab has saved something: an answer, perhaps to the question shown here, or other labels. */
  async changed() {
    if (this.busy) return;
    const [question, panel] = await Promise.all([get("/api/question"), get("/api/panel")]);
    this.panel.update(panel);
    const same = question.id === this.question?.id;
    const others = renamed(panel);
    if (others) await loadState();
    if (same && !others) return;
    if (!same) toast("Answered in another tab. Here is the next question.");
    this.show(question);
  }

  // ---- the question ----

  show(question) {
    if (question.id !== this.question?.id) {
      this.pressed = 0;
      watch.start();
    }
    this.question = question;
    this.node.classList.toggle("finished", question.kind === "done");
    if (question.kind === "done") return this.showDone();
    this.desk.hidden = false;
    this.answer = new Answer(question);
    setText(this.before, (question.before ?? []).join("\n"));
    setText(this.after, (question.after ?? []).join("\n"));
    this.sentence.show(question.text, question.tokens, { task: project.task, tagWidth: tagWidth() });
    this.known = knownSpans(question.known, project.task);
    this.whole = false;
    this.wholeAsked =
      Boolean(question.whole) || (question.kind !== "uncertain" && this.covers(question)) || !question.spans.length;
    if (this.wholeAsked || question.said?.whole) this.enterWhole(question.said?.spans ?? this.suggestion());
    else {
      this.place.replaceChildren(this.sentence.node);
      this.paint();
    }
    this.read();
  }

  /** Whether every word is asked; then the sentence is labelled as a whole. */
  covers({ spans, tokens }) {
    const ranges = joined(spans.map((span) => [span.start, span.end]));
    return ranges.length === 1 && ranges[0][1] - ranges[0][0] === tokens.length;
  }

  /** The model's labels of the sentence, unless it knows nothing yet. */
  suggestion() {
    const { kind, spans, guesses = [] } = this.question;
    return kind === "cover" && spans.every((span) => span.guess.p < 0.3) ? [] : guesses;
  }

  showUnnamed() {
    const add = el("p", {}, el("a", { href: "#labels" }, "Add labels"), ", and the questions begin.");
    this.question = { kind: "done" };
    this.empty("No labels yet", add);
  }

  /** Shows words in place of a question. */
  empty(title, ...children) {
    this.whole = false;
    this.answer = null;
    this.place.replaceChildren(...children);
    this.node.classList.add("finished");
    this.desk.hidden = true;
    for (const node of [this.kicker, this.before, this.after]) setText(node, "");
    setText(this.heading, title);
    announce(title);
  }

  showDone() {
    const review = el("a", { href: "#review" }, "Look for mistakes in Review");
    this.empty(
      "Nothing left to ask",
      el("p", { class: "finish" }, "Every sentence is labelled or skipped."),
      el("p", {}, review, ", or ", el("a", { href: "#export" }, "export"), "."),
    );
  }

  /** Says the question, and puts the focus where Tab leads to its buttons. */
  read() {
    const at = document.activeElement;
    if (!at || at === document.body || this.node.contains(at)) this.heading.focus({ preventScroll: true });
    if (this.whole) return announce(`${this.heading.textContent} ${this.question.text}`);
    const { label, span } = this.answer.item;
    const rest = this.elsewhere(span);
    const second =
      (span?.runner_up ? `, runner-up ${labelName(span.runner_up.label)} ${chance(span.runner_up.p)}` : "") +
      (rest ? `, other borders ${chance(rest)}` : "");
    const guess = span
      ? `Guess ${labelName(label)} ${chance(span.guess.p)}${second}.`
      : `Left over. Enter for ${labelName(label)}.`;
    announce(`${this.heading.textContent} ${guess} ${this.question.text}`);
  }

  words({ start, end }) {
    const { text, tokens } = this.question;
    return [...text].slice(tokens[start][0], tokens[end - 1][1]).join("");
  }

  paint() {
    if (this.question.kind === "done") return;
    if (this.whole) return this.refresh();
    const { item: now, range } = this.answer;
    const { items, extras, chosen } = this.answer.state;
    const dress = (span, kind, tag) => ({ ...span, kind, tag, color: colorOf(span.label) });
    const others = items
      .filter((item) => item !== now && !item.absorbed)
      .map((item) =>
        item.done ? dress(item, "done", labelName(item.label)) : dress({ ...item, label: null }, "later", ""),
      );
    const spans = [...others, ...extras.map((span) => dress(span, "done"))].filter((span) => !overlap(span, now));
    const known = this.known.filter((span) => ![...spans, now].some((other) => overlap(other, span)));
    spans.push(...known.map((span) => dress(span, "known")));
    spans.push(dress(now, "asked", chosen ? "" : `${labelName(now.label)}?`));
    this.sentence.paint(spans, range);
    this.sentence.reveal(range.start);
    this.refresh();
  }

  refresh() {
    const { answer, question, whole } = this;
    const { items, cur, chosen } = answer.state;
    const place = !whole && items.length > 1 ? ` · ${cur + 1} of ${items.length}` : "";
    setText(this.kicker, `${KINDS[question.kind] ?? ""}${place}`);
    const noun = project.task === "tokens" ? "every word" : "every entity";
    const range = whole ? this.editor.chosen : answer.range;
    if (whole) setText(this.heading, `Label ${noun}, then save`);
    else this.heading.replaceChildren("What is “", el("bdi", {}, this.words(range)), "”?");
    this.refreshGuess(range);
    const everywhere = whole ? this.editor.everywhere : answer.state.everywhere;
    this.same.setAttribute("aria-pressed", everywhere);
    const times = whole || answer.state.chosen || this.moved ? 0 : answer.item.span?.occurrences;
    setText(this.sameName, times ? `Every occurrence (${count(times)})` : "Every occurrence");
    this.all.setAttribute("aria-pressed", whole);
    this.all.disabled = this.wholeAsked;
    setText(this.acceptName, whole ? "Save sentence" : chosen ? "Cancel" : `Accept ${labelName(answer.item.label)}`);
    this.borders.hidden = project.task === "tokens";
    for (const node of this.borderKeys) node.hidden = whole; // there they choose words
    const local = whole ? this.editor : answer;
    this.undoes.disabled = !local.past.length && !project.undo;
    this.redoes.disabled = !local.future.length && !project.redo;
  }

  /** Whether the borders of the span in question have been moved: its probabilities are those of other words then. */
  get moved() {
    const { span, start, end } = this.answer.item;
    return Boolean(span) && (start !== span.start || end !== span.end);
  }

  /** What the model gives to spans with other borders; 0 if that is next to nothing. */
  elsewhere(span) {
    const here = (span?.choices ?? []).reduce((sum, choice) => sum + choice.p, 0);
    return project.task === "spans" && here && here < 0.995 ? 1 - here : 0;
  }

  refreshGuess(range) {
    if (this.whole) {
      this.labels.update([], this.editor.current?.label);
      const words = this.editor.words().slice(0, 60);
      return this.guess.replaceChildren(
        "Chosen: ",
        el("b", { dir: "auto" }, words),
        " — label it",
        ...(project.task === "spans" ? [", or clear with ", key("0")] : []),
        el("span", { class: "keys" }, " · ", key("← →"), " other words, ", key("Shift ← →"), " more words"),
      );
    }
    if (this.answer.state.chosen) {
      this.labels.update([]);
      return this.guess.replaceChildren("Which label for ", el("b", { dir: "auto" }, this.words(range)), "?");
    }
    const { span, label } = this.answer.item;
    if (!span) {
      this.labels.update([], label);
      return this.guess.replaceChildren(
        "Left over: ",
        el("b", { dir: "auto" }, this.words(range)),
        " is not part of it. What is it?",
      );
    }
    this.labels.update(this.moved ? [] : (span.choices ?? [span.guess, span.runner_up].filter(Boolean)), label);
    const pill = (choice) =>
      el(
        "span",
        { class: `pill ${choice.label === null ? "outside" : `c${colorOf(choice.label)}`}` },
        labelName(choice.label),
        " ",
        el("b", {}, chance(choice.p)),
      );
    const lead = (text) => el("span", { class: "lead" }, text);
    if (this.moved) {
      const words = el("b", { dir: "auto" }, this.words(span));
      return this.guess.replaceChildren("Guess for “", words, "” ", pill(span.guess), " · borders moved");
    }
    const parts = [lead("Guess "), pill(span.guess)];
    if (span.runner_up) parts.push(lead(" runner-up "), pill(span.runner_up));
    const rest = this.elsewhere(span);
    if (rest) parts.push("other borders ", el("b", {}, chance(rest)));
    if (label !== span.guess.label) parts.push(` · you said ${labelName(label)}`);
    this.guess.replaceChildren(...parts);
  }

  // ---- what the person does ----

  click(action) {
    this.pressed += 1;
    const result = action();
    if (this.question.kind !== "done" && !document.querySelector("dialog")) this.heading.focus({ preventScroll: true });
    return result;
  }

  select(start, end, finished, tapped) {
    if (this.busy) return;
    if (finished) this.pressed += 1;
    this.answer.select({ start, end }, finished, tapped);
    this.paint();
    if (finished) announce(`Chosen: ${this.words(this.answer.range)}`);
  }

  pick(label) {
    if (this.busy) return;
    if (this.whole) return this.editor.pick(label);
    const { range } = this.answer;
    const extra = this.answer.state.chosen;
    if (this.answer.pick(label)) return this.submit();
    this.keep();
    this.paint();
    if (extra) announce(`${this.words(range)}: ${labelName(label)}`);
    else this.read();
  }

  accept() {
    if (this.busy) return;
    if (this.whole) return this.submit();
    if (!this.answer.state.chosen) return this.pick(this.answer.item.label);
    this.answer.state.chosen = null;
    this.paint();
  }

  border(side, step) {
    if (this.busy) return;
    if (this.whole) this.editor.border(side, step);
    else if (this.answer.border(side, step)) {
      this.paint();
      announce(`Chosen: ${this.words(this.answer.range)}`);
    }
  }

  toggleEverywhere() {
    if (this.whole) return this.editor.toggleEverywhere();
    const { state } = this.answer;
    state.everywhere = !state.everywhere;
    const times = this.moved ? 0 : (this.answer.item.span?.occurrences ?? 0);
    const where = times ? `every occurrence, ${many(times, "place")}` : "every occurrence";
    announce(state.everywhere ? `The answer goes to ${where}` : "Only here");
    this.refresh();
  }

  enterWhole(spans) {
    this.whole = true;
    this.editor.load(
      this.question.text,
      this.question.tokens,
      spans.map((span) => ({ by: "model", ...span })),
    );
    this.place.replaceChildren(this.editor.node);
    this.refresh();
  }

  toggleWhole() {
    if (this.wholeAsked || this.busy) return;
    if (this.whole) {
      this.whole = false;
      this.place.replaceChildren(this.sentence.node);
      if (this.question.said) this.keep();
      this.paint();
    } else {
      const layers = [...this.suggestion(), ...this.known, ...this.answer.spans];
      this.enterWhole(layers.reduce(withSpan, []));
    }
    this.read();
  }

  step(direction) {
    if (!this.answer.step(direction)) return;
    this.paint();
    this.read();
  }

  // ---- to the server and back ----

  /** Keeps what has been said of the sentence so far: a reload brings it back. */
  keep() {
    const { id, sequence } = this.question;
    const { draft } = this.whole ? this.editor : this.answer;
    this.question.said = draft;
    post("/api/draft", { question: id, sequence, ...draft }).catch(() => {}); // the answer itself will tell
  }

  about(skip) {
    const { id, sequence } = this.question;
    return { question: id, sequence, skip, seconds: watch.seconds, keys: this.pressed };
  }

  submit() {
    if (this.whole && this.editor.missing() >= 0) return toast("Every word needs a label; this one has none yet.", true);
    const said = this.whole ? this.editor.answer : this.answer.result;
    return this.exchange("/api/answer", { ...this.about(false), ...said }, "next");
  }

  skip() {
    if (this.busy || this.question.kind === "done") return;
    const nothing = { spans: [], judged: [], whole: false, corrections: 0 };
    return this.exchange("/api/answer", { ...this.about(true), ...nothing }, "next");
  }

  async exchange(path, body, field) {
    this.busy = true;
    this.node.classList.add("busy");
    try {
      const reply = await post(path, body);
      note(reply);
      if (renamed(reply.panel)) await loadState();
      this.show(reply[field]);
      this.panel.update(reply.panel);
      if (reply.of && reply.of.kind !== "answer") toast(`${path === "/api/undo" ? "Undone" : "Redone"}: the labels of sentence ${reply.of.sequence + 1}`);
      tell(reply.event);
    } catch (error) {
      toast(error.message, true);
      if (path === "/api/answer") this.show(await get("/api/question"));
    } finally {
      this.busy = false;
      this.node.classList.remove("busy");
    }
  }

  undo() {
    return this.travel("undo");
  }

  redo() {
    return this.travel("redo");
  }

  /** Back or forth: within the sentence as far as that goes, then from answer to answer. */
  travel(way) {
    if (this.busy) return;
    if (this.whole && this.editor[way]()) return;
    if (this.whole || !this.answer?.[way]()) return this.exchange(`/api/${way}`, {}, "question");
    this.keep();
    this.paint();
    this.read();
  }

  // ---- keys ----

  key(event) {
    if (this.busy) return true;
    const done = this.question?.kind === "done";
    const press = event.key;
    if ((event.ctrlKey || event.metaKey) && press.toLowerCase() === "z")
      return this.keyed(() => (event.shiftKey ? this.redo() : this.undo()));
    if ((event.ctrlKey || event.metaKey) && press.toLowerCase() === "y") return this.keyed(() => this.redo());
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    if (press === "Backspace") return this.keyed(() => this.undo());
    if (done || !this.question) return false;
    const keys = {
      Enter: () => this.accept(),
      " ": () => this.skip(),
      ".": () => this.toggleWhole(),
      "/": () => findLabel((label) => this.pick(label)),
      Escape: () => this.escape(),
    };
    if (keys[press]) return this.keyed(keys[press]);
    if (this.whole) {
      const used = this.editor.key(event);
      if (used) this.pressed += 1;
      return used;
    }
    return this.keyInSpan(event);
  }

  keyInSpan(event) {
    const press = event.key;
    if (press === "=") return this.keyed(() => this.toggleEverywhere());
    if (press === "ArrowUp" || press === "ArrowDown")
      return this.keyed(() => this.step(press === "ArrowDown" ? 1 : -1));
    if ((press === "ArrowLeft" || press === "ArrowRight") && project.task === "spans") {
      const forward = (press === "ArrowRight") === (this.sentence.direction === "ltr");
      return this.keyed(() => this.border(event.shiftKey ? "start" : "end", forward ? 1 : -1));
    }
    const label = LabelBar.of(press);
    return label === undefined ? false : this.keyed(() => this.pick(label));
  }

  escape() {
    if (this.answer.state.chosen) this.accept();
    else if (this.whole) this.toggleWhole();
  }

  keyed(action) {
    this.pressed += 1;
    action();
    return true;
  }
}
