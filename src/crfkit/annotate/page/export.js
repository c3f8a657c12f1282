// Labels and model to take away.

import { el, icon } from "./dom.js";
import { frame } from "./rows.js";
import { project } from "./state.js";

export class Export {
  constructor() {
    Object.assign(
      this,
      frame(
        "Export",
        "What was imported and not touched comes out byte for byte. Nothing is changed here: export as often as you like.",
      ),
    );
  }

  open() {
    const radio = (value, text, checked) =>
      el(
        "label",
        {},
        el("input", { type: "radio", name: "what", value, checked, on: { change: () => this.link() } }),
        ` ${text}`,
      );
    this.what = el(
      "fieldset",
      {},
      el("legend", {}, "What"),
      radio("labels", "people’s labels only", true),
      radio("labels+guesses", "people’s labels, and the model’s where nobody has labelled"),
    );
    this.links = el("ul", { class: "downloads" });
    const model = el(
      "a",
      { class: "download", href: "/api/export/model", download: true },
      icon("down"),
      el("b", {}, "Model"),
      el("small", {}, "for crfkit tag and crfkit.load"),
    );
    this.body.replaceChildren(
      el("h2", {}, "Labels"),
      this.what,
      this.links,
      el("h2", {}, "Trained model"),
      el("ul", { class: "downloads" }, el("li", {}, model)),
    );
    this.body.setAttribute("aria-busy", "false");
    this.link();
  }

  link() {
    const what = this.what.querySelector("input:checked").value;
    const links = (project.formats ?? []).map((format) => {
      const href = `/api/export?${new URLSearchParams({ format: format.name, what })}`;
      return el(
        "li",
        {},
        el(
          "a",
          { class: "download", href, download: true },
          icon("down"),
          el("b", {}, format.title ?? format.name),
          el("small", {}, format.note),
        ),
      );
    });
    this.links.replaceChildren(...links);
  }
}
