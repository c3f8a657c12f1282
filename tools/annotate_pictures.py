"""Makes the pictures of docs/annotate.md and the recording of the front page, with the page itself in Chromium.

``python tools/annotate_pictures.py`` writes docs/images/annotate-*.png and annotate.gif. A person who knows the labels
of the embedded sample answers by the JSON interface until the model is worth a picture, and then by the page's keys.
"""

from __future__ import annotations

import io
import runpy
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont
from playwright.sync_api import Page, sync_playwright

from crfkit.annotate.documents import Document
from crfkit.annotate.project import Project
from crfkit.annotate.server import Server
from crfkit.annotate.session import Session
from crfkit.data import load_corpus

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
LABELS = ["QTY", "UNIT", "NAME", "STATE", "PREP", "SIZE", "NOTE"]
WIDE = {"width": 1200, "height": 800}
Span = tuple[int, int, str]


def corpus() -> tuple[list[Document], list[list[Span]]]:
    """The embedded sample as raw sentences, and the spans in each."""
    documents, gold = [], []
    for row, labels in zip(*load_corpus("ingredients", "train"), strict=True):
        words = [x if isinstance(x, str) else x[0] for x in row]
        ends = [sum(len(w) + 1 for w in words[: k + 1]) - 1 for k in range(len(words))]
        documents.append(Document(" ".join(words), [(b - len(w), b) for w, b in zip(words, ends, strict=True)]))
        spans: list[list[Any]] = []
        for t, label in enumerate(labels):
            if label.startswith("B-"):
                spans.append([t, t + 1, label[2:]])
            elif label.startswith("I-"):
                spans[-1][1] = t + 1
        gold.append([(a, b, x) for a, b, x in spans])
    return documents, gold


def reply(question: dict[str, Any], spans: list[Span], wrong: bool) -> dict[str, Any]:
    """What a person says who knows the spans; a wrong one takes the quantity for a size."""
    whole = question["whole"]
    ranges = [(0, len(question["tokens"]))] if whole else [(s["start"], s["end"]) for s in question["spans"]]
    said = [
        {"start": a, "end": b, "label": "SIZE" if wrong and label == "QTY" else label}
        for a, b, label in spans
        if any(a < end and start < b for start, end in ranges)
    ]
    return {
        "key": str(uuid.uuid4()),
        "question": question["id"],
        "sequence": question["sequence"],
        "spans": said,
        "judged": [list(r) for r in ranges],
        "whole": whole,
        "seconds": 7.0 + len(question["tokens"]) / 4,
        "keys": 2,
        "corrections": 1,
    }


def campaign(session: Session, gold: list[list[Span]]) -> None:
    """Two people answer until there is something to see."""
    for who, answers in (("ben", 25), ("anna", 90)):
        session.add_annotator(who)
        for k in range(answers):
            question = session.question(who)
            if question["kind"] == "done":
                break
            session.answer(
                who, reply(question, gold[question["sequence"]], wrong=k % 9 == 8 or question["kind"] == "agree")
            )


@contextmanager
def served(session: Session) -> Iterator[str]:
    """The address of the page."""
    server = Server(session, port=0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.address("anna")
    server.stop()
    thread.join()


def save(page: Page, name: str) -> None:
    """A picture of what is on the screen, in few colours, which suffice for a page."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    small = picture.quantize(160, dither=Image.Dither.NONE)
    small.save(IMAGES / f"annotate-{name}.png", optimize=True)


def show(page: Page, view: str) -> None:
    """Goes to a view and waits for what it shows."""
    page.evaluate(f"location.hash = '{view}'")
    page.wait_for_selector(".place .w" if view == "ask" else f"body[data-view={view}] .body[aria-busy=false]")
    page.wait_for_timeout(600)


def pictures(page: Page) -> None:
    """One picture per view."""
    find(page, spans=True)
    save(page, "ask")
    page.keyboard.press(".")
    save(page, "whole")
    page.keyboard.press("Escape")
    for view in ("browse", "review", "agree", "export", "labels"):
        show(page, view)
        save(page, view)
    show(page, "model")
    page.locator(".explainer").scroll_into_view_if_needed()
    page.wait_for_timeout(600)
    save(page, "model")


def find(page: Page, spans: bool) -> None:
    """Skips to a question about spans."""
    show(page, "ask")
    while spans and page.locator("h1").inner_text().startswith("Label"):
        with page.expect_response("**/api/answer"):
            page.keyboard.press("Space")
        page.wait_for_selector(".ask:not(.busy)")


class Film:
    """Frames with the key that was pressed."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[Image.Image] = []
        self.times: list[int] = []

    def frame(self, milliseconds: int, pressed: str = "") -> None:
        """A picture of the page now."""
        picture = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        if pressed:
            draw = ImageDraw.Draw(picture)
            font = ImageFont.load_default(24)
            width = draw.textlength(pressed, font)
            x, y = picture.width / 2 - width / 2, picture.height - 56
            draw.rounded_rectangle((x - 20, y - 10, x + width + 20, y + 38), 12, fill="#22211f")
            draw.text((x, y), pressed, font=font, fill="#ffffff")
        self.frames.append(picture)
        self.times.append(milliseconds)

    def press(self, key: str, name: str) -> None:
        """Presses a key, and shows it with what it does."""
        self.frame(350, name)
        self.page.keyboard.press(key)
        self.page.wait_for_selector(".ask:not(.busy)")
        self.page.wait_for_timeout(150)
        self.frame(700, name)

    def save(self, path: Path) -> None:
        """Writes the animation; all frames share the colours of one."""
        colours = self.frames[len(self.frames) // 2].quantize(96, dither=Image.Dither.NONE)
        few = [f.quantize(palette=colours, dither=Image.Dither.NONE) for f in self.frames]
        few[0].save(path, save_all=True, append_images=few[1:], duration=self.times, loop=0, optimize=True)


def record(page: Page, gold: list[list[Span]]) -> None:
    """A minute of work in a few seconds."""
    find(page, spans=True)
    film = Film(page)
    film.frame(1200)
    keys = {
        label["name"]: label["key"] for label in page.evaluate("fetch('/api/state').then((r) => r.json())")["labels"]
    }
    for _ in range(7):
        question = page.evaluate("fetch('/api/question').then((r) => r.json())")
        if page.locator("h1").inner_text().startswith("Label"):
            film.press("Enter", "Enter")
            continue
        done = 0
        for asked in question["spans"]:
            if asked["start"] < done:
                continue
            true = next((s for s in gold[question["sequence"]] if s[0] < asked["end"] and asked["start"] < s[1]), None)
            start, end, label = true or (asked["start"], asked["end"], None)
            for k in range(asked["end"], end):
                film.press("ArrowRight", "right arrow")
                done = k + 1
            for _ in range(start, asked["start"]):
                film.press("Shift+ArrowLeft", "Shift, left arrow")
            key = "Enter" if label == asked["guess"]["label"] else keys[label] if label else "0"
            film.press(key, key if key == "Enter" else f"{key}  {label or 'none'}")
            if start > asked["start"] or end < asked["end"]:
                break  # the rest is another story
    film.frame(1500)
    film.save(IMAGES / "annotate.gif")


def main() -> None:
    """Makes all of them."""
    chromium = runpy.run_path(str(ROOT / "tools" / "find_chromium.py"))["find"]()
    documents, gold = corpus()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        project = Project.create(Path(folder) / "recipes.crfkit-project", documents, task="spans", labels=LABELS)
        session = Session(project, n_jobs=1)
        campaign(session, gold)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        with served(session) as address:
            for scheme in ("light", "dark"):
                context = browser.new_context(viewport=WIDE, color_scheme=scheme, reduced_motion="reduce")
                page = context.new_page()
                page.set_default_timeout(60000)
                page.goto(address)
                if scheme == "light":
                    pictures(page)
                    page.set_viewport_size({"width": 1200, "height": 780})
                    record(page, gold)
                else:
                    find(page, spans=True)
                    save(page, "dark")
                context.close()
            context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
            page = context.new_page()
            page.goto(address)
            find(page, spans=True)
            save(page, "phone")
        browser.close()
        session.close()
    for path in sorted(IMAGES.glob("annotate*")):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} kB", file=sys.stderr)


if __name__ == "__main__":
    main()
