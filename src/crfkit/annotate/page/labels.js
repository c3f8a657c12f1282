// Labels and settings of the project.

import { announce, toast } from "./announce.js";
import { get, post } from "./api.js";
import { button, count, dialog, el } from "./dom.js";
import { frame } from "./rows.js";
import { changeLabels, changeSettings, loadState, onState, project, RESERVED } from "./state.js";

const COLOURS = [
  "blue",
  "orange",
  "green",
  "pink",
  "teal",
  "violet",
  "red",
  "olive",
  "cyan",
  "purple",
  "brown",
  "grey",
];

export class Labels {
  constructor() {
    Object.assign(
      this,
      frame(
        "Labels and settings",
        "Changes apply at once, to all annotators. Answers keep their meaning: renamed and merged labels are renamed and merged in them too.",
      ),
    );
    this.people = el("div", { class: "card form" });
    this.stop = onState(() => this.show());
  }

  close() {
    this.stop();
  }

  async open() {
    this.show();
    await this.loadPeople();
  }

  show() {
    const focused = this.focused();
    this.build();
    focused();
  }

  /** Remembers what has the focus; gives a function that focuses it again, by its name or place. */
  focused() {
    const all = () => [...this.body.querySelectorAll("input, select, button")];
    const at = all().indexOf(document.activeElement);
    const name = document.activeElement?.getAttribute("aria-label");
    return () => {
      if (at >= 0) (all().find((node) => name && node.getAttribute("aria-label") === name) ?? all()[at])?.focus();
    };
  }

  build() {
    const add = el("input", { name: "name", required: true, autocomplete: "off", "aria-label": "Name of a new label" });
    const form = el(
      "form",
      { class: "filters", on: { submit: (event) => this.add(event, add) } },
      el("label", {}, el("span", {}, "New label"), add),
      el("button", { class: "primary" }, "Add"),
    );
    const head = ["Colour", "Name", "Key", "Used", "Merge"].map((text) => el("th", { scope: "col" }, text));
    this.body.replaceChildren(
      el(
        "div",
        { class: "scroll", role: "region", tabindex: "0", "aria-label": "Labels" },
        el(
          "table",
          { class: "settings" },
          el("thead", {}, el("tr", {}, ...head)),
          el("tbody", {}, ...project.labels.map((label) => this.row(label))),
        ),
      ),
      form,
      el("h2", {}, "Questions"),
      this.settings(),
      el("h2", {}, "Annotators"),
      this.people,
    );
    this.body.setAttribute("aria-busy", "false");
  }

  row(label) {
    const colour = el(
      "select",
      {
        "aria-label": `Colour of ${label.name}`,
        on: { change: (event) => this.change({ color: { name: label.name, color: Number(event.target.value) } }) },
      },
      ...COLOURS.map((name, k) => el("option", { value: k, ...(k === label.color ? { selected: true } : {}) }, name)),
    );
    const name = el("input", {
      value: label.name,
      "aria-label": `Name of ${label.name}`,
      on: { change: (event) => this.rename(label, event.target) },
    });
    const keys = el("input", {
      class: "one",
      value: label.key ?? "",
      maxlength: 1,
      "aria-label": `Key of ${label.name}`,
      on: { change: (event) => this.rekey(label, event.target) },
    });
    const merge =
      project.labels.length > 1 &&
      button("Merge …", () => this.merge(label), { "aria-label": `Merge ${label.name} into another label` });
    return el(
      "tr",
      { class: `c${label.color}` },
      el("td", {}, el("span", { class: "dot" }), colour),
      el("td", {}, name),
      el("td", {}, keys),
      el("td", { class: "num" }, count(label.count ?? 0)),
      el("td", {}, merge),
    );
  }

  settings() {
    const s = project.settings ?? {};
    const share = this.number(Number((100 * (s.random_share ?? 0.1)).toFixed(2)), [0, 100, 1], (percent) => ({
      random_share: percent / 100,
    }));
    const show = el("input", {
      type: "checkbox",
      checked: s.show_random !== false,
      on: { change: (event) => this.set({ show_random: event.target.checked }) },
    });
    const time = s.time ?? {};
    const seconds = ["sentence", "token", "correction"].map((name) => {
      const node = this.number(Number((time[name] ?? 0).toFixed(1)), [0, 3600, 0.1], (value) => ({
        time: { [name]: value },
      }));
      return el(
        "label",
        {},
        el(
          "span",
          {},
          {
            sentence: "Seconds to read a sentence",
            token: "Seconds to judge a word",
            correction: "Seconds to correct",
          }[name],
        ),
        node,
      );
    });
    return el(
      "div",
      { class: "card form" },
      el("label", {}, el("span", {}, "Random questions, in percent (they measure accuracy)"), share),
      el("label", { class: "check" }, show, " say which questions are random"),
      el("div", { class: "filters" }, ...seconds),
      el(
        "p",
        { class: "quiet" },
        time.fitted ? "Fitted to your own times." : "From a user study, until enough of your own times are known.",
      ),
    );
  }

  /** A field of a number; one that is empty or out of range is not saved, and the old value is shown again. */
  number(value, [min, max, step], setting) {
    const save = async ({ target }) => {
      const given = target.valueAsNumber; // NaN if it is empty
      const fits = given >= min && given <= max;
      if (!fits) toast(`Enter a number from ${min} to ${max}. The old value is kept.`, true);
      if (!fits || !(await this.set(setting(given)))) target.value = value;
    };
    return el("input", { type: "number", min, max, step, value, on: { change: save } });
  }

  /** Names and addresses; the page shows other people's to the first annotator only. */
  async loadPeople() {
    const { annotators } = await get("/api/annotators");
    const rows = annotators.map(({ name, address }) => {
      const field = el("input", { readonly: true, value: address ?? "", "aria-label": `Address of ${name}` });
      const copy = button("Copy", async () => {
        field.select();
        await navigator.clipboard?.writeText(address);
        toast(`Address of ${name} copied`);
      });
      return el("li", {}, el("b", {}, name), address ? field : el("span", {}), address ? copy : "");
    });
    const name = el("input", { required: true, autocomplete: "off", "aria-label": "Name of a new annotator" });
    const invite = async (event) => {
      event.preventDefault();
      try {
        await post("/api/annotators", { name: name.value.trim() });
        await Promise.all([loadState(), this.loadPeople()]);
      } catch (error) {
        toast(error.message, true);
      }
    };
    const field = el("label", {}, el("span", {}, "New annotator"), name);
    this.people.replaceChildren(
      el("p", { class: "quiet" }, "Send each person their own address. It is valid until the server is started again."),
      el("ul", { class: "people" }, ...rows),
      el("form", { class: "filters", on: { submit: invite } }, field, el("button", { class: "primary" }, "Invite")),
    );
  }

  async add(event, field) {
    event.preventDefault();
    const name = field.value.trim();
    if (name && (await this.change({ add: { name } }))) announce(`Added ${name}`);
  }

  async rename(label, field) {
    const to = field.value.trim();
    if (!to || !(await this.change({ rename: { from: label.name, to } }))) field.value = label.name;
  }

  async rekey(label, field) {
    const value = field.value.trim();
    const taken = project.labels.find((other) => other !== label && other.key === value);
    if (!value || RESERVED.includes(value) || taken) {
      toast(taken ? `“${value}” is the key of ${taken.name}.` : `“${value || " "}” cannot be a label’s key.`, true);
      field.value = label.key ?? "";
    } else await this.change({ key: { name: label.name, key: value } });
  }

  merge(label) {
    const others = project.labels.filter((other) => other.name !== label.name);
    const into = el(
      "select",
      { "aria-label": "Merge into" },
      ...others.map((other) => el("option", { value: other.name }, other.name)),
    );
    const go = button(
      `Merge ${label.name}`,
      async () => {
        if (await this.change({ merge: { from: label.name, to: into.value } })) box.close();
      },
      { class: "primary" },
    );
    const box = dialog(
      `Merge ${label.name}`,
      el("p", {}, `Every ${label.name} becomes the label chosen here, and ${label.name} is removed.`),
      el("div", { class: "filters" }, el("label", {}, el("span", {}, "Into"), into), go),
    );
  }

  async change(change) {
    try {
      await changeLabels(change);
      return true;
    } catch (error) {
      toast(error.message, true);
      return false;
    }
  }

  async set(change) {
    try {
      await changeSettings(change);
      toast("Saved");
      return true;
    } catch (error) {
      toast(error.message, true);
      return false;
    }
  }
}
