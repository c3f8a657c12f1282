// Header, views, keys, and what is said when the connection is lost.

import { Agree } from "./agree.js";
import { announce, toast } from "./announce.js";
import { ApiError, belong, later, outbox } from "./api.js";
import { Ask } from "./ask.js";
import { Browse } from "./browse.js";
import { button, el, icon, leave, many, setText } from "./dom.js";
import { Export } from "./export.js";
import { openHelp } from "./help.js";
import { Labels } from "./labels.js";
import { Model } from "./model.js";
import { Review } from "./review.js";
import { loadState, onState, project } from "./state.js";
import { onOtherTab } from "./tabs.js";

const VIEWS = { ask: Ask, browse: Browse, review: Review, agree: Agree, model: Model, export: Export, labels: Labels };
const TITLES = { ask: "Ask", browse: "Browse", review: "Review", agree: "Agree", model: "Model", export: "Export" };

let view = null;
let place = ""; // the address of what is shown

function header() {
  const links = Object.entries(TITLES).map(([name, text]) => el("a", { href: `#${name}`, data: { view: name } }, text));
  const name = el("span", { class: "project" });
  const top = document.getElementById("top");
  top.replaceChildren(
    el("span", { class: "brand" }, el("b", {}, "crfkit"), name),
    el("nav", { "aria-label": "Views" }, ...links),
    el(
      "span",
      { class: "tools" },
      el(
        "a",
        {
          href: "#labels",
          data: { view: "labels" },
          class: "tool",
          "aria-label": "Labels and settings",
          title: "Labels and settings",
        },
        icon("tag"),
      ),
      button([icon("theme")], switchTheme, {
        class: "tool",
        "aria-label": "Switch between light and dark",
        title: "Light or dark",
      }),
      button([icon("help")], openHelp, { class: "tool", "aria-label": "Help", title: "Help (?)" }),
    ),
  );
  onState(() => setText(name, [project.project, project.annotator].filter(Boolean).join(" · ")));
}

function switchTheme() {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("crfkit-theme", root.dataset.theme);
  announce(root.dataset.theme === "light" ? "Light colours" : "Dark colours");
}

async function route() {
  const box = document.querySelector("dialog");
  if (box && !leave(box)) return history.replaceState(null, "", `#${place}`);
  place = location.hash.slice(1);
  const [name, part] = location.hash.slice(1).split("/");
  const known = VIEWS[name] ? name : "ask";
  view?.close?.();
  const sequence = /^\d{1,9}$/.test(part) && Number(part) < project.sentences ? Number(part) : undefined;
  if (part !== undefined && sequence === undefined) {
    toast(`There is no sentence “${part}”.`, true);
    history.replaceState(null, "", `#${known}`);
  }
  const next = new VIEWS[known](sequence);
  view = next;
  for (const link of document.querySelectorAll("#top [data-view]")) {
    if (link.dataset.view === known) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${TITLES[known] ?? "Labels"} – ${project.project ?? ""} – crfkit`;
  document.body.dataset.view = known;
  const main = document.getElementById("view");
  main.replaceChildren(next.node);
  scrollTo(0, 0);
  await open(next);
  if (view !== next || known === "ask" || next.node.contains(document.activeElement)) return;
  next.node.querySelector("h1")?.focus({ preventScroll: true });
}

async function open(next) {
  try {
    await next.open();
    trouble(null);
  } catch (error) {
    if (view !== next) return;
    if (!later(error)) return toast(error.message, true);
    trouble({ error });
    setTimeout(() => view === next && open(next), 1500);
  }
}

const waits = (n) => (n === 1 ? "waits" : "wait");
const SAID = {
  401: "This page is no longer signed in: open the address that the terminal shows.",
  other: "Another project is served at this address now. Reload the page to see it.",
};

function trouble(state) {
  const node = document.getElementById("trouble");
  if (!state?.error) {
    if (node.childNodes.length) announce("Connected again");
    return node.replaceChildren();
  }
  const { error, waiting = 0 } = state;
  const what = SAID[error.other ? "other" : error.status] ?? error.message;
  const when = error.other ? " when its project is served here again" : "";
  const safe = waiting ? ` ${many(waiting, "change")} ${waits(waiting)} here and will be sent${when}.` : "";
  const line = `${what}${safe} Trying again …`;
  if (node.firstChild?.textContent === line) return;
  node.replaceChildren(
    el("span", {}, line),
    button("Try now", () => outbox.wake()),
  );
}

function onKey(event) {
  if (event.defaultPrevented || event.isComposing || document.querySelector("dialog")) return;
  const target = event.target;
  if (target.closest("input, select, textarea")) return;
  if (target.closest("button, a, summary") && (event.key === "Enter" || event.key === " ")) return;
  const plain = event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey;
  if (plain && localStorage.getItem("crfkit-keys") === "off") return;
  if (event.repeat && !event.key.startsWith("Arrow")) {
    // A key that is held acts once: it would answer one question after another.
    if (plain || ["Enter", "Backspace"].includes(event.key)) event.preventDefault();
    return;
  }
  if (event.key === "?") openHelp();
  else if (!view?.key?.(event)) return;
  event.preventDefault();
}

async function load() {
  for (;;) {
    try {
      await loadState();
      return trouble(null);
    } catch (error) {
      trouble({ error, waiting: outbox.items.length });
      await new Promise((go) => setTimeout(go, 1500));
    }
  }
}

// What a request that nobody waited for came to is said, as any other.
function unattended(event) {
  if (!(event.reason instanceof ApiError)) return;
  event.preventDefault();
  toast(event.reason.message, true);
}

async function start() {
  addEventListener("unhandledrejection", unattended);
  header();
  outbox.onchange = trouble;
  outbox.onrefused = (error) => toast(error.message, true);
  await load();
  belong(project.project_id);
  if (outbox.ours.length) {
    await outbox.flush(); // what an earlier page could not send comes first
    await load();
  }
  const rest = outbox.items.length;
  if (rest) toast(`${many(rest, "change")} of another project ${waits(rest)} in this tab and will be sent when it is served here again.`);
  document.addEventListener("keydown", onKey);
  addEventListener("hashchange", route);
  onOtherTab(() => view?.changed?.().catch?.(() => {}));
  await route();
}

start();
