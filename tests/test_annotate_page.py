"""The annotation page in a real Chromium: keyboard, mouse, touch, lost connections, scripts of the world, axe."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import annotating
import pytest
from annotating import Site, document, sample, site

from crfkit.active.questions import AskedSpan, Choice, Question

pytest.importorskip("uvicorn")
playwright = pytest.importorskip("playwright.sync_api")
Page = Any
Open = Callable[..., Page]

NEWS = [
    ["Angela", "Osei", "moved", "from", "Leeds", "to", "Accra", "."],
    ["Northfield", "Trust", "hired", "Angela", "Osei", "in", "Leeds", "."],
    ["The", "Trust", "met", "Peter", "Lang", "."],
    ["Peter", "Lang", "left", "Accra", "."],
    ["Nothing", "happened", "."],
    ["Leeds", "is", "large", "."],
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = annotating.chromium()
    with playwright.sync_playwright() as p:
        found = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Open]:
    """Opens the page as an annotator; a script error or a breach of the security policy fails the test."""
    faults: list[str] = []
    contexts = []

    def note(message: Any) -> None:
        expected = re.search("Failed to load resource|ERR_CONNECTION|ERR_EMPTY_RESPONSE", message.text)
        if message.type == "error" and not expected:
            faults.append(message.text)

    def visit(served: Site, name: str = "anna", view: str = "ask", **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(60000)
        context.on("console", note)
        context.on("weberror", lambda e: faults.append(str(e.error)))
        page = context.new_page()
        page.goto(served.server.address(name))
        page.wait_for_selector("#top nav")
        if view != "ask":
            page.goto(f"{served.server.base}/#{view}")
        ready(page, view)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert not faults, faults


def ready(page: Page, view: str = "ask") -> None:
    page.wait_for_selector("h1:not(:empty)" if view.startswith("ask") else ".body[aria-busy=false]")


def until(condition: Callable[[], bool]) -> None:
    """Waits; Playwright's wait_for_function would need eval, which the page's policy forbids."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def question(page: Page) -> Any:
    return page.evaluate("fetch('/api/question').then((r) => r.json())")


def heading(page: Page) -> str:
    return str(page.locator("h1").inner_text())


def answered(page: Page, action: Callable[[], None]) -> Any:
    """Does what sends an answer; the reply, once the page shows it."""
    with page.expect_response("**/api/answer") as reply:
        action()
    page.wait_for_selector(".ask:not(.busy)")
    return reply.value.json()


def word(page: Page, t: int) -> Any:
    return page.locator(f".place .w[data-t='{t}']")


def chosen(page: Page) -> str:
    return " ".join(page.locator(".place .w.chosen").all_inner_texts())


def tags(page: Page) -> list[str]:
    """The labels that stand below words."""
    return [str(node.get_attribute("data-tag")) for node in page.locator(".place .w[data-tag]").all()]


def pose(page: Page, served: Site, i: int, *spans: tuple[int, int, str | None], **more: Any) -> None:
    """Shows a question of our own about sentence i; its answer goes to the real server."""
    doc = served.session.project.documents[i]
    labels = [label.name for label in served.session.project.labels]

    def span(start: int, end: int, guess: str | None) -> dict[str, Any]:
        rest = [name for name in [*labels, None] if name != guess]
        choices = [{"label": guess, "p": 0.6}, *({"label": name, "p": 0.4 / len(rest)} for name in rest)]
        return {"start": start, "end": end, "guess": choices[0], "runner_up": choices[1], "choices": choices}

    asked = {
        "id": f"posed-{i}",
        "kind": "uncertain",
        "sequence": i,
        "text": doc.text,
        "tokens": doc.tokens,
        "known": [None] * len(doc.tokens),
        "before": [],
        "after": [],
        "spans": [span(*s) for s in spans],
        "guesses": [],
        **more,
    }
    page.route("**/api/question*", lambda route: route.fulfill(json=asked))
    page.evaluate("location.hash = 'export'")
    ready(page, "export")
    page.evaluate("location.hash = 'ask'")
    page.wait_for_selector(".place .w")
    page.unroute("**/api/question*")


def ask(page: Page, served: Site, i: int, *spans: tuple[int, int, str | None], who: str = "anna") -> None:
    """The same by the server, so that drafts and undo know the question."""
    names = served.session.project.names
    asked = [
        AskedSpan(a, b, [Choice(guess, 0.6), *(Choice(x, 0.1) for x in [*names, None] if x != guess)])
        for a, b, guess in spans
    ]
    served.session._open.pop(who, None)
    served.session._pose(who, Question(i, "uncertain", asked, [], 10.0, 1.0))
    page.reload()
    ready(page)


def drafted(page: Page, action: Callable[[], None]) -> None:
    """Does what keeps a draft, until it is on disk."""
    with page.expect_response("**/api/draft") as reply:
        action()
    assert reply.value.ok, reply.value.text()


@pytest.fixture(scope="module")
def news(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Any]:
    """Projects of the news, each in a folder of its own."""
    return lambda: site(tmp_path_factory.mktemp("news"), [document(row) for row in NEWS])


# ---- campaigns ----


class Person(ABC):
    """Knows what is in each sentence and answers by what the page shows."""

    def __init__(self, page: Page, gold: list[list[annotating.Span]]) -> None:
        self.page, self.gold = page, gold
        labels = page.evaluate("fetch('/api/state').then((r) => r.json())")["labels"]
        self.keys = {label["name"]: label["key"] for label in labels}

    def answer(self) -> str:
        q = question(self.page)
        if q["kind"] == "done":
            return "done"
        gold = self.gold[q["sequence"]]
        whole = heading(self.page).startswith("Label")
        answered(self.page, lambda: self.whole(q, gold) if whole else self.spans(q, gold))
        return str(q["kind"])

    def true(self, asked: dict[str, Any], gold: list[annotating.Span]) -> annotating.Span | None:
        return next((s for s in gold if s[0] < asked["end"] and asked["start"] < s[1]), None)

    def spans(self, q: Any, gold: list[annotating.Span]) -> None:
        queue = list(q["spans"])
        done: list[tuple[int, int]] = []
        while queue:
            asked = queue.pop(0)
            start, end = asked["start"], asked["end"]
            if any(a < end and start < b for a, b in done):  # was part of an earlier answer
                continue
            true = self.true(asked, gold)
            a, b = true[:2] if true else (start, end)
            done.append((a, b))
            self.span(asked, true)
            # of a span that was too long, the page asks for the rest
            rests = [(start, min(a, end)), (max(b, start), end)]
            free = [r for r in rests if r[0] < r[1] and not any(x < r[1] and r[0] < y for x, y in done)]
            free = [r for r in free if not any(s["start"] < r[1] and r[0] < s["end"] for s in queue)]
            queue[:0] = [{"start": x, "end": y, "guess": {"label": None}} for x, y in free]

    @abstractmethod
    def span(self, asked: dict[str, Any], true: annotating.Span | None) -> None:
        """Answers what is asked of a span."""

    @abstractmethod
    def whole(self, q: Any, gold: list[annotating.Span]) -> None:
        """Answers for the whole sentence."""


class Typist(Person):
    def span(self, asked: dict[str, Any], true: annotating.Span | None) -> None:
        press = self.page.keyboard.press
        if true is None:
            press("0")
            return
        start, end, label = true
        for _ in range(abs(end - asked["end"])):
            press("ArrowRight" if end > asked["end"] else "ArrowLeft")
        for _ in range(abs(start - asked["start"])):
            press("Shift+ArrowRight" if start > asked["start"] else "Shift+ArrowLeft")
        press("Enter" if label == asked["guess"]["label"] else self.keys[label])

    def whole(self, q: Any, gold: list[annotating.Span]) -> None:
        press = self.page.keyboard.press
        for _ in q["tokens"]:
            press("0")
        press("Home")
        at = 0
        for start, end, label in gold:
            for _ in range(start - at):
                press("ArrowRight")
            for _ in range(end - start - 1):
                press("Shift+ArrowRight")
            press(self.keys[label])
            at = end
        press("Enter")


class Pointer(Person):
    """With the mouse."""

    def drag(self, start: int, end: int) -> None:
        boxes = [word(self.page, t).bounding_box() for t in (start, end - 1)]
        places = [(b["x"] + b["width"] / 2, b["y"] + b["height"] / 2) for b in boxes]
        self.page.mouse.move(*places[0])
        self.page.mouse.down()
        self.page.mouse.move(*places[1], steps=3)
        self.page.mouse.up()

    def press(self, place: Any) -> None:
        place.click()

    def label(self, name: str) -> Any:
        return self.page.locator(".desk .label", has=self.page.get_by_text(name, exact=True))

    def span(self, asked: dict[str, Any], true: annotating.Span | None) -> None:
        if true is None:
            return self.press(self.label("none"))
        start, end, name = true
        if (start, end) != (asked["start"], asked["end"]):
            if end - start > 1:
                self.drag(start, end)
            else:
                for side, steps in (("Start", start - asked["start"]), ("End", end - asked["end"])):
                    way = "later" if steps > 0 else "earlier"
                    for _ in range(abs(steps)):
                        self.press(self.page.get_by_role("button", name=f"{side} one word {way}"))
        self.press(self.label(name))

    def whole(self, q: Any, gold: list[annotating.Span]) -> None:
        for t in range(len(q["tokens"])):  # away with the guesses
            if " guess " in word(self.page, t).get_attribute("class"):
                self.press(word(self.page, t))
                self.press(self.label("none"))
        for start, end, name in gold:
            self.drag(start, end) if end - start > 1 else self.press(word(self.page, start))
            self.press(self.label(name))
        self.press(self.page.get_by_role("button", name="Save sentence"))


class Finger(Pointer):
    """On a touch screen."""

    def drag(self, start: int, end: int) -> None:
        boxes = [word(self.page, t).bounding_box() for t in range(start, end)]
        places = [{"x": b["x"] + b["width"] / 2, "y": b["y"] + b["height"] / 2} for b in boxes]
        wire = self.page.context.new_cdp_session(self.page)
        wire.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [places[0]]})
        for place in places:
            wire.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [place]})
        wire.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        wire.detach()
        self.page.wait_for_timeout(350)  # a tap that follows at once is taken for part of the gesture

    def press(self, place: Any) -> None:
        place.tap()


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.mark.parametrize(
    ("kind", "options"), [(Typist, {}), (Pointer, {}), (Finger, PHONE)], ids=["keyboard", "mouse", "touch"]
)
def test_a_campaign(visit: Open, tmp_path: Path, kind: type[Person], options: dict[str, Any]) -> None:
    """Every answer is what the person meant, and the panel counts it."""
    documents, gold = sample(24)
    labels = sorted({label for row in gold for *_, label in row})
    with site(tmp_path, documents, labels) as served:
        page = visit(served, **options)
        person = kind(page, gold)
        kinds = [person.answer() for _ in range(14)]
        assert {"cover", "uncertain"} <= set(kinds)
        answers = served.answers()
        assert len(answers) == 14
        for answer in answers:
            i = answer["sequence"]
            said = {(s["start"], s["end"], s["label"]) for s in answer["spans"] if s["label"]}
            true = set(gold[i])
            assert said <= true, f"{documents[i].text} {true} {answer}"
            judged = {t for a, b in answer["judged"] for t in range(a, b)}
            assert {s for s in true if judged >= set(range(s[0], s[1]))} <= said
        assert page.locator(".panel .figure strong", has_text="14").count() == 1


def test_the_next_question_needs_no_second_request(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served)
        asked: list[str] = []
        page.on("request", lambda r: asked.append(r.url.rsplit("/api/", 1)[-1]))
        before = question(page)["id"]
        asked.clear()
        reply = answered(page, lambda: page.keyboard.press("Enter"))
        shown = page.locator(".place .sentence").inner_text()
        assert reply["next"]["id"] != before
        assert shown.split() == reply["next"]["text"].split()
        assert [a for a in asked if a != "panel"] == ["answer"]


# ---- one question ----


def test_keys_of_one_question(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served)
        pose(page, served, 1, (0, 1, "ORG"), (3, 5, "PER"), (6, 7, None))
        assert heading(page) == "What is “Northfield”?"
        assert [x.split() for x in page.locator(".guess .pill").all_inner_texts()] == [["ORG", "60%"], ["PER", "13%"]]
        page.keyboard.press("ArrowRight")
        assert chosen(page) == "Northfield Trust"
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")  # a span keeps one word
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        assert heading(page) == "What is “Angela Osei”?"
        page.keyboard.press("Shift+ArrowRight")
        assert chosen(page) == "Osei"
        page.keyboard.press("Shift+ArrowLeft")
        page.keyboard.press("ArrowUp")  # back to the first
        assert chosen(page) == "Northfield Trust"
        page.keyboard.press("ArrowDown")
        page.keyboard.press("=")
        assert page.get_by_role("button", name="Every occurrence").get_attribute("aria-pressed") == "true"
        page.keyboard.press("1")
        answered(page, lambda: page.keyboard.press("3"))
        answer = served.answers()[0]
        assert answer["spans"] == [
            {"start": 0, "end": 2, "label": "ORG", "everywhere": False},
            {"start": 3, "end": 5, "label": "PER", "everywhere": True},
            {"start": 6, "end": 7, "label": "LOC", "everywhere": False},
        ]
        assert (answer["whole"], answer["judged"]) == (False, [[0, 2], [3, 5], [6, 7]])
        assert answer["corrections"] == 2  # a border and a label
        assert served.said(0) == {(0, 2, "PER")}  # the other sentence with these words


def test_the_rest_is_not_asked_but_can_be_marked(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served)
        pose(page, served, 1, (0, 2, "ORG"))
        word(page, 6).click()
        assert "Leeds" in page.locator("p.guess").inner_text()
        page.locator(".desk .label", has_text="LOC").click()
        answered(page, lambda: page.keyboard.press("Enter"))
        answer = served.answers()[0]
        assert answer["judged"] == [[0, 2], [6, 7]]
        assert served.said(1) == {(0, 2, "ORG"), (6, 7, "LOC")}


def test_whole_sentence_and_skip(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served)
        pose(page, served, 2, (1, 2, "ORG"))
        page.keyboard.press(".")
        assert heading(page).startswith("Label every entity")
        for key in ("End", "ArrowLeft", "ArrowLeft", "Shift+ArrowRight", "1"):
            page.keyboard.press(key)
        answered(page, lambda: page.keyboard.press("Enter"))
        answer = served.answers()[0]
        assert (answer["whole"], answer["judged"]) == (True, [[0, 6]])
        assert served.said(2) == {(1, 2, "ORG"), (3, 5, "PER")}
        pose(page, served, 3, (0, 1, "PER"))
        answered(page, lambda: page.keyboard.press("Space"))
        assert served.answers()[1]["skip"]
        assert served.said(3) == set()


def test_undo_and_redo(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served)
        pose(page, served, 0, (0, 2, "PER"), (4, 5, "LOC"))
        page.keyboard.press("Enter")
        assert "Leeds" in heading(page)
        page.keyboard.press("Control+z")  # within the sentence
        assert "Angela Osei" in heading(page)
        page.keyboard.press("Control+y")
        assert "Leeds" in heading(page)
        answered(page, lambda: page.keyboard.press("Enter"))
        assert served.said(0) == {(0, 2, "PER"), (4, 5, "LOC")}
        with page.expect_response("**/api/undo"):
            page.get_by_role("button", name="Undo").click()
        page.wait_for_selector(".ask:not(.busy)")
        assert served.said(0) == set()
        assert page.locator(".place .sentence").inner_text().split()[:2] == ["Angela", "Osei"]
        with page.expect_response("**/api/redo"):
            page.keyboard.press("Control+y")
        page.wait_for_selector(".ask:not(.busy)")
        assert served.said(0) == {(0, 2, "PER"), (4, 5, "LOC")}


def test_undo_of_a_saved_answer_asks_the_same_again(visit: Open, news: Any) -> None:
    """Enter vouches for the spans that were asked, not for the whole sentence."""
    with news() as served:
        page = visit(served)
        ask(page, served, 0, (0, 2, "PER"), (4, 5, "PER"), (6, 7, None))
        page.keyboard.press("Enter")
        page.keyboard.press("3")
        page.keyboard.press("ArrowLeft")  # no effect on one word
        answered(page, lambda: page.keyboard.press("3"))
        said = served.said(0)
        assert said == {(0, 2, "PER"), (4, 5, "LOC"), (6, 7, "LOC")}
        with page.expect_response("**/api/undo"):
            page.keyboard.press("Control+z")
        page.wait_for_selector(".ask:not(.busy)")
        assert heading(page) == "What is “Accra”?"
        assert "3 of 3" in page.locator(".kicker").inner_text()
        assert tags(page) == ["PER", "LOC", "LOC?"]
        page.keyboard.press("Control+z")  # one span further back
        assert heading(page) == "What is “Leeds”?"
        page.keyboard.press("2")
        answered(page, lambda: page.keyboard.press("3"))
        assert served.said(0) == {(0, 2, "PER"), (4, 5, "ORG"), (6, 7, "LOC")}
        assert [a["whole"] for a in served.answers()] == [False]
        assert served.answers()[0]["kind"] == "uncertain"


def test_a_reload_keeps_the_answers_to_a_sentence(visit: Open, news: Any) -> None:
    """To each of its spans, to what a span left over, and to words that were not asked; also after a restart."""
    with news() as served:
        page = visit(served)
        ask(page, served, 1, (0, 1, "ORG"), (3, 5, "PER"), (6, 7, None))
        page.keyboard.press("ArrowRight")
        drafted(page, lambda: page.keyboard.press("Enter"))  # Northfield Trust
        word(page, 2).click()
        drafted(page, lambda: page.keyboard.press("3"))
        page.keyboard.press("ArrowLeft")
        drafted(page, lambda: page.keyboard.press("Enter"))  # Angela; Osei is left over
        assert heading(page) == "What is “Osei”?"
        assert served.answers() == []
        for turn in range(2):
            if turn:
                served.stop()
                served.start()
                page.goto(served.server.address("anna"))
            else:
                page.reload()
            ready(page)
            assert heading(page) == "What is “Osei”?"
            assert tags(page) == ["ORG", "LOC", "PER", "none?"]
        drafted(page, lambda: page.keyboard.press("1"))
        drafted(page, lambda: page.keyboard.press("Control+z"))
        page.reload()
        ready(page)
        assert heading(page) == "What is “Osei”?"
        drafted(page, lambda: page.keyboard.press("1"))
        answered(page, lambda: page.keyboard.press("0"))
        assert served.said(1) == {(0, 2, "ORG"), (2, 3, "LOC"), (3, 4, "PER"), (4, 5, "PER")}
        assert served.answers()[0]["judged"] == [[0, 5], [6, 7]]


def test_a_reload_keeps_a_whole_sentence(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served)
        ask(page, served, 2, (1, 2, "ORG"))
        page.keyboard.press(".")
        page.keyboard.press("End")
        page.keyboard.press("ArrowLeft")
        drafted(page, lambda: page.keyboard.press("1"))
        page.reload()
        ready(page)
        assert heading(page).startswith("Label every entity")
        answered(page, lambda: page.keyboard.press("Enter"))
        assert served.said(2) == {(1, 2, "ORG"), (4, 5, "PER")}
        with page.expect_response("**/api/undo"):
            page.keyboard.press("Control+z")
        page.wait_for_selector(".ask:not(.busy)")
        answered(page, lambda: page.keyboard.press("Enter"))
        assert served.said(2) == {(1, 2, "ORG"), (4, 5, "PER")}


def test_labels_are_renamed_elsewhere(visit: Open, news: Any) -> None:
    """In another tab: the question and its answers stay. By somebody else: the answers are understood."""
    with news() as served:
        page = visit(served)
        ask(page, served, 1, (0, 2, "ORG"), (3, 5, "PER"), (6, 7, None))
        drafted(page, lambda: page.keyboard.press("Enter"))
        drafted(page, lambda: page.keyboard.press("1"))
        other = page.context.new_page()
        other.goto(f"{served.server.base}/#labels")
        ready(other, "labels")
        other.get_by_label("Name of PER").fill("HUMAN")
        other.keyboard.press("Tab")
        page.locator(".desk .label", has_text="HUMAN").wait_for()
        page.locator(".place .w[data-tag=HUMAN]").wait_for()
        assert heading(page) == "What is “Leeds”?"
        served.session.change_labels("anna", {"uuid": "rename-key-1", "merge": {"from": "LOC", "to": "ORG"}})
        answered(page, lambda: page.keyboard.press("3"))
        assert served.said(1) == {(0, 2, "ORG"), (3, 5, "HUMAN"), (6, 7, "ORG")}
        page.locator(".desk .label", has_text="LOC").wait_for(state="detached")
        page.goto(f"{served.server.base}/#browse")
        ready(page, "browse")
        page.get_by_role("button", name="Edit sentence 2").click()
        page.locator("dialog .sentence").wait_for()
        served.session.change_labels("anna", {"uuid": "rename-key-2", "rename": {"from": "HUMAN", "to": "PERSON"}})
        with page.expect_response("**/api/sequence/1") as reply:
            page.keyboard.press("Enter")
        assert reply.value.ok
        assert (3, 5, "PERSON") in served.said(1)


def test_buttons_leave_room_for_the_field_above(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served)
        page.keyboard.press("/")
        field, buttons = (page.locator(f"dialog {name}").bounding_box() for name in ("input", ".label >> nth=0"))
        assert buttons["y"] - field["y"] - field["height"] >= 6


def test_many_labels(visit: Open, tmp_path: Path) -> None:
    """0 is for no entity; a label without a key of its own is found by its name."""
    names = [f"L{k}" for k in range(40)]
    with site(tmp_path, [document(row) for row in NEWS], names) as served:
        page = visit(served)
        keys = {label["name"]: label["key"] for label in served.session.state("anna")["labels"]}
        assert "0" not in keys.values()
        assert keys["L39"] is None
        pose(page, served, 0, (0, 2, "L1"), (4, 5, "L1"))
        page.keyboard.press("0")
        assert "Leeds" in heading(page)
        assert page.locator(".desk .label", has_text="L39").locator("kbd").inner_text() == "/"
        page.keyboard.press("/")
        page.get_by_role("dialog", name="Which label?").wait_for()
        page.keyboard.type("39")
        answered(page, lambda: page.keyboard.press("Enter"))
        assert served.said(0) == {(4, 5, "L39")}


def test_a_double_click_counts_once(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served)
        pose(page, served, 0, (0, 2, "PER"))
        answered(page, lambda: page.locator(".desk .label", has_text="PER").dblclick())
        page.wait_for_timeout(200)
        assert [a["sequence"] for a in served.answers()] == [0]


# ---- connections ----


def test_a_key_that_is_held_counts_once(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served)
        pose(page, served, 0, (0, 2, "PER"), (4, 5, "LOC"), (6, 7, "LOC"))
        for press in ("1", "Backspace"):
            for _ in range(3):
                page.keyboard.down(press)  # repeats, since it is not let go
            page.keyboard.up(press)
            assert "2 of 3" in page.locator(".kicker").inner_text() if press == "1" else chosen(page) == "Angela Osei"
        for _ in range(2):
            page.keyboard.down("ArrowRight")
        page.keyboard.up("ArrowRight")
        assert chosen(page) == "Angela Osei moved from"
        assert not served.answers()


def test_reload_shows_the_same_question(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served)
        answered(page, lambda: page.keyboard.press("Enter"))
        before = question(page)["id"]
        page.reload()
        ready(page)
        assert question(page)["id"] == before


def test_an_answer_waits_for_the_server(visit: Open, news: Any) -> None:
    """The server goes away and comes back at the same port with other tokens; the answer arrives once."""
    with news() as served:
        page = visit(served)
        pose(page, served, 0, (0, 2, "PER"))
        served.stop()
        page.keyboard.press("Enter")
        page.wait_for_selector("#trouble:not(:empty)")
        assert "1 change waits here" in page.locator("#trouble").inner_text()
        page.keyboard.press("Enter")  # does nothing while the answer is under way
        served.start()
        page.get_by_text("open the address that the terminal shows").wait_for()
        other = page.context.new_page()
        other.goto(served.server.address("anna"))
        page.wait_for_selector("#trouble:empty", state="attached")
        page.wait_for_selector(".ask:not(.busy)")
        assert [a["sequence"] for a in served.answers()] == [0]


def test_a_lost_reply_does_not_count_twice(visit: Open, news: Any) -> None:
    """The answer reaches the server, its reply is lost, and the page is reloaded before it can ask again."""
    with news() as served:
        page = visit(served)
        pose(page, served, 0, (0, 2, "PER"))

        def lose(route: Any) -> None:
            route.fetch()
            route.abort()

        page.route("**/api/answer", lose)
        page.keyboard.press("Enter")
        page.wait_for_selector("#trouble:not(:empty)")
        page.unroute("**/api/answer")
        page.on("dialog", lambda d: d.accept())
        page.reload()
        ready(page)
        until(lambda: page.evaluate("sessionStorage.getItem('crfkit-outbox')") == "[]")
        assert [a["sequence"] for a in served.answers()] == [0]


def test_two_browsers(visit: Open, news: Any) -> None:
    """The first answer to a question counts; the other page says so and goes on."""
    with news() as served:
        pages = [visit(served), visit(served)]
        assert len({question(page)["id"] for page in pages}) == 1
        pages[0].keyboard.press("ArrowRight")
        answered(pages[0], lambda: pages[0].keyboard.press("Enter"))
        pages[1].keyboard.press("Enter")
        pages[1].get_by_text("this question has already been answered").wait_for()
        until(lambda: heading(pages[1]) != "" and not pages[1].locator(".ask.busy").count())
        assert len(served.answers()) == 1
        answered(pages[1], lambda: pages[1].keyboard.press("Enter"))
        assert len({a["sequence"] for a in served.answers()}) == 2


def test_another_project_at_the_same_address(visit: Open, news: Any) -> None:
    """An answer in an old tab waits for its own project, also over a reload."""
    with news() as served, news() as other:
        page = visit(served)
        pose(page, served, 0, (0, 2, "PER"))
        for one in (served, other):
            one.stop()
        other.port = served.port
        other.start()
        tab = page.context.new_page()
        tab.goto(other.server.address("anna"))
        ready(tab)
        page.keyboard.press("Enter")
        page.get_by_text("Another project is served at this address now").wait_for()
        assert "1 change waits here and will be sent when its project" in page.locator("#trouble").inner_text()
        page.on("dialog", lambda d: d.accept())
        page.reload()
        ready(page)
        page.get_by_text("1 change of another project waits").wait_for()
        for _ in range(2):
            answered(page, lambda: page.keyboard.press("Enter"))
        assert len(other.answers()) == 2
        other.stop()
        served.start()
        page.goto(served.server.address("anna"))
        ready(page)
        until(lambda: page.evaluate("sessionStorage.getItem('crfkit-outbox')") == "[]")
        assert [(a["sequence"], a["spans"][0]["label"]) for a in served.answers()] == [(0, "PER")]
        assert len(other.session.project.said()) == 2


def test_two_tabs(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served)
        other = page.context.new_page()
        other.goto(served.server.base)
        ready(other)
        assert heading(other) == heading(page)
        first = question(page)["id"]
        answered(page, lambda: page.keyboard.press("Enter"))
        other.get_by_text("Answered in another tab").wait_for()
        assert question(other)["id"] != first
        answered(other, lambda: other.keyboard.press("Enter"))
        assert len({a["sequence"] for a in served.answers()}) == 2


# ---- scripts of the world ----


def test_right_to_left(visit: Open, tmp_path: Path) -> None:
    words = ["وصلت", "فاطمة", "الزهراء", "إلى", "القاهرة", "."]
    with site(tmp_path, [document(words), document(["x"])]) as served:
        page = visit(served)
        pose(page, served, 0, (1, 2, "PER"))
        assert page.locator(".place .sentence").get_attribute("dir") == "rtl"
        page.keyboard.press("ArrowLeft")  # onwards
        assert chosen(page) == "فاطمة الزهراء"
        boxes = [word(page, t).bounding_box() for t in (0, 1)]
        assert boxes[0]["x"] > boxes[1]["x"]
        answered(page, lambda: page.keyboard.press("Enter"))
        assert served.said(0) == {(1, 3, "PER")}


def test_marks_of_direction_stay_in_their_word(visit: Open, tmp_path: Path) -> None:
    """A right-to-left override reorders neither its neighbours nor the heading."""
    with site(tmp_path, [document(["before", "\u202eevil", "after"]), document(["x"])]) as served:
        page = visit(served)
        pose(page, served, 0, (0, 3, "PER"), kind="uncertain")
        boxes = [word(page, t).bounding_box()["x"] for t in range(3)]
        assert boxes == sorted(boxes)
        ends = page.evaluate(
            """() => { const h = document.querySelector('h1'); const at = (node) => { const r = document.createRange();
            r.selectNodeContents(node); return r.getBoundingClientRect(); };
            return [at(h.firstChild).left, at(h.lastChild).left]; }"""
        )
        assert ends[0] < ends[1]


def test_chinese_and_emoji_offsets(visit: Open, tmp_path: Path) -> None:
    """Offsets count code points, JavaScript counts UTF-16 units."""
    rows = [
        document(["東京", "の", "山田", "太郎", "さん"], ""),
        document(["🚀", "𝔘nicode", "👩‍👩‍👧", "🇫🇷", "Zoë", "!"]),
    ]
    with site(tmp_path, rows) as served:
        page = visit(served)
        pose(page, served, 0, (2, 4, "PER"))
        assert page.locator(".place .w").all_inner_texts() == rows[0].words
        assert heading(page) == "What is “山田太郎”?"
        answered(page, lambda: page.keyboard.press("1"))
        pose(page, served, 1, (4, 5, "PER"))
        assert page.locator(".place .w").all_inner_texts() == rows[1].words
        assert heading(page) == "What is “Zoë”?"
        answered(page, lambda: page.keyboard.press("1"))
        assert (served.said(0), served.said(1)) == ({(2, 4, "PER")}, {(4, 5, "PER")})


def test_a_thousand_words(visit: Open, tmp_path: Path) -> None:
    words = [f"word{i}" for i in range(1000)]
    with site(tmp_path, [document(words), document(["x"])]) as served:
        page = visit(served)
        pose(page, served, 0, (900, 902, "PER"), (10, 11, "LOC"))
        box, outer = word(page, 900).bounding_box(), page.locator(".place .sentence").bounding_box()
        assert outer["y"] <= box["y"] <= outer["y"] + outer["height"]
        desk = page.locator(".desk").bounding_box()
        assert desk["y"] + desk["height"] <= 900  # labels and buttons are on the screen
        page.keyboard.press("Enter")
        answered(page, lambda: page.keyboard.press("Enter"))
        assert served.said(0) == {(900, 902, "PER"), (10, 11, "LOC")}


@pytest.mark.parametrize("size", ["1280x800", "1280x600", "800x600", "360x640", "320x480"])
def test_a_long_sentence_leaves_room(visit: Open, tmp_path: Path, size: str) -> None:
    """For the heading, the context and three lines of the sentence; shadows say that it scrolls."""
    width, height = map(int, size.split("x"))
    words = ["In", "all", "of", "these", "long", "words", "someone", "lives"] * 125
    with site(tmp_path, [document(words), document(["x"])]) as served:
        page = visit(served, viewport={"width": width, "height": height}, has_touch=width < 400, is_mobile=width < 400)
        pose(page, served, 0, (500, 502, "PER"), (10, 11, "LOC"), before=["What was said before. " * 20])
        for name, most in (("h1", 40.0), (".kicker", 40.0), (".context:not(:empty)", 30.0)):
            node = page.locator(f".stage {name}")
            box = node.bounding_box()
            line = float(node.evaluate("(e) => parseFloat(getComputedStyle(e).lineHeight)") or 0)
            assert line - 1 <= box["height"] <= most, name  # whole lines, and no line that is cut
        sentence = page.locator(".place .sentence").bounding_box()
        assert sentence["height"] >= 95
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        nav = page.locator("#top nav a").last.bounding_box()
        assert nav["x"] + nav["width"] <= width
        if height >= 600:  # labels and buttons are on the screen
            last = page.get_by_role("button", name="Help").last.bounding_box()
            assert last["y"] + last["height"] <= height


def test_markup_shows_itself(visit: Open, tmp_path: Path) -> None:
    """A corpus, labels and names full of markup are text everywhere; a breach of the policy would fail too."""
    evil = ["<script>window.hit=1</script>", "<img", "src=x", "onerror=window.hit=1>", "&amp;", "</div>", "{{7*7}}"]
    with site(tmp_path, [document(evil), document(["x"])], ["<b>PER</b>", '"onclick=']) as served:
        page = visit(served)
        pose(page, served, 0, (0, 1, "<b>PER</b>"))
        assert page.locator(".place .w").all_inner_texts() == [w for w in evil if w]
        answered(page, lambda: page.keyboard.press("Enter"))
        for view in ("browse", "review", "model", "labels", "export"):
            page.goto(f"{served.server.base}/#{view}")
            ready(page, view)
        page.goto(f"{served.server.base}/#browse")
        ready(page, "browse")
        assert "<script>window.hit=1</script>" in page.locator(".rows .sentence").first.inner_text()
        assert page.evaluate("window.hit") is None
        assert page.locator("main img, main script, main b b").count() == 0


# ---- other views ----


def test_token_task(visit: Open, tmp_path: Path) -> None:
    with site(tmp_path, [document(row) for row in NEWS], ["NOUN", "VERB", "X"], task="tokens") as served:
        page = visit(served)
        pose(page, served, 4, (1, 2, "VERB"))
        answered(page, lambda: page.keyboard.press("Enter"))
        assert served.said(4) == {(1, 2, "VERB")}
        pose(page, served, 5, (0, 1, "NOUN"))
        page.keyboard.press(".")
        assert "clear" not in page.locator("p.guess").inner_text()
        page.keyboard.press("Enter")  # no word has a label yet
        page.get_by_text("Every word needs a label").wait_for()
        assert chosen(page) == NEWS[5][1]
        assert len(served.answers()) == 1
        page.keyboard.press("Home")
        for key in "1233":
            page.keyboard.press(key)
        answered(page, lambda: page.keyboard.press("Enter"))
        assert served.said(5) == {(0, 1, "NOUN"), (1, 2, "VERB"), (2, 3, "X"), (3, 4, "X")}


def test_browse_search_and_edit(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served, view="browse")
        assert page.locator(".entry").count() == len(NEWS)
        page.get_by_label("Search").fill("Peter")
        until(lambda: page.locator(".entry").count() == 2)
        page.get_by_role("button", name="Edit sentence 4").click()
        page.locator("dialog .sentence").wait_for()
        for _ in range(4):
            page.keyboard.press("0")
        page.keyboard.press("Home")
        page.keyboard.press("Shift+ArrowRight")
        page.keyboard.press("1")
        with page.expect_response("**/api/sequence/3"):
            page.keyboard.press("Enter")
        page.locator("dialog").wait_for(state="detached")
        assert served.said(3) == {(0, 2, "PER")}
        page.get_by_label("State").select_option("labelled")
        until(lambda: page.locator(".entry").count() == 1)


def test_without_labels_and_at_the_end(visit: Open, tmp_path: Path) -> None:
    with site(tmp_path, [document(["Leeds", "."])], []) as served:
        page = visit(served)
        assert heading(page) == "No labels yet"
        page.get_by_role("link", name="Add labels").click()
        ready(page, "labels")
        page.get_by_label("Name of a new label").fill("LOC")
        page.get_by_role("button", name="Add").click()
        page.get_by_label("Name of LOC").wait_for()
        page.evaluate("location.hash = 'ask'")
        page.wait_for_selector(".place .w")
        page.keyboard.press("1")
        answered(page, lambda: page.keyboard.press("Enter"))
        assert served.said(0) == {(0, 1, "LOC")}
        assert heading(page) == "Nothing left to ask"
        with page.expect_response("**/api/undo"):
            page.keyboard.press("Backspace")
        page.wait_for_selector(".place .w")


def test_labels_change_in_the_middle(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served)
        pose(page, served, 0, (0, 2, "PER"))
        answered(page, lambda: page.keyboard.press("Enter"))
        page.goto(f"{served.server.base}/#labels")
        ready(page, "labels")
        for name in ("DATE", "HUMAN"):
            with page.expect_response("**/api/labels"):
                if name == "DATE":
                    page.get_by_label("Name of a new label").fill(name)
                    page.get_by_role("button", name="Add").click()
                else:
                    page.get_by_label("Name of PER").fill(name)
                    page.keyboard.press("Tab")
            page.get_by_label(f"Name of {name}").wait_for()
        assert served.said(0) == {(0, 2, "HUMAN")}
        with page.expect_response("**/api/labels"):
            page.get_by_label("Colour of HUMAN").select_option("violet")
        page.wait_for_selector("tr.c5")
        with page.expect_response("**/api/labels"):
            page.get_by_label("Key of HUMAN").fill("h")
            page.keyboard.press("Tab")
        until(lambda: page.get_by_label("Key of HUMAN").input_value() == "h")
        page.wait_for_timeout(300)  # the rows are made anew
        page.get_by_label("Key of ORG").fill("h")  # taken
        page.keyboard.press("Tab")
        page.get_by_text("is the key of HUMAN").wait_for()
        page.get_by_role("button", name="Merge HUMAN into another label").click()
        page.get_by_label("Merge into").select_option("ORG")
        with page.expect_response("**/api/labels"):
            page.get_by_role("button", name="Merge HUMAN", exact=True).click()
        page.locator("dialog").wait_for(state="detached")
        assert served.said(0) == {(0, 2, "ORG")}


def test_a_sentence_that_is_not_there_is_not_asked(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served)
        for part in ("abc", "999999", "-1", ""):
            page.goto("about:blank")
            page.goto(f"{served.server.base}/#ask/{part}")
            ready(page)
            page.get_by_text(f"There is no sentence “{part}”").wait_for()
            assert page.url.endswith("/#ask")
            answered(page, lambda: page.keyboard.press("Enter"))
        page.route("**/api/question*", lambda route: route.fulfill(status=404, json={"error": "gone"}))
        page.reload()
        page.get_by_text("gone").wait_for()
        assert not page.get_by_role("button", name="Accept").count()
        for press in ("Enter", "1", ".", "ArrowRight"):
            page.keyboard.press(press)


def test_a_number_that_cannot_be_is_not_saved(visit: Open, news: Any) -> None:
    """The field shows its old value again, and a line says why."""
    with news() as served:
        page = visit(served, view="labels")
        names = ("Random questions", "Seconds to read a sentence", "Seconds to judge a word")
        share, sentence, word_ = (page.get_by_label(name) for name in names)
        for field, value, old in (
            (sentence, "", "12.6"),
            (word_, "-1", "3.8"),
            (share, "", "10"),
            (share, "150", "10"),
        ):
            field.fill(value)
            page.keyboard.press("Tab")
            page.get_by_text("The old value is kept").wait_for()
            assert field.input_value() == old
            page.locator("#toast").evaluate("node => (node.textContent = '')")
        assert not served.session.project.settings.get("time")
        for field, value in ((share, "7.5"), (sentence, "0")):
            with page.expect_response("**/api/settings") as reply:
                field.fill(value)
                page.keyboard.press("Tab")
            assert reply.value.ok
            until(lambda field=field, value=value: field.input_value() == value)  # type: ignore[misc]
        assert served.session.project.settings["random_share"] == 0.075
        word_.fill("0")
        page.keyboard.press("Tab")
        page.get_by_text("must not both be 0").wait_for()
        until(lambda: word_.input_value() == "3.8")
        page.goto(f"{served.server.base}/#ask")
        ready(page)
        answered(page, lambda: page.keyboard.press("Enter"))


def test_review_agree_model_export(visit: Open, tmp_path: Path) -> None:
    """Two annotators, one of whom errs: shown, settled, and taken home."""
    documents, gold = sample(30)
    labels = sorted({label for row in gold for *_, label in row})
    with site(tmp_path, documents, labels, names=("anna", "ben")) as served:
        page = visit(served)

        def edit(who: str, i: int, spans: list[annotating.Span]) -> None:
            rows = [{"start": a, "end": b, "label": label} for a, b, label in spans]
            served.session.edit(who, i, rows, f"{who}-{i}-first")

        for i in range(24):
            edit("anna", i, gold[i])
        wrong = [(a, b, "NOTE" if label == "QTY" else label) for a, b, label in gold[3]]
        edit("ben", 3, wrong)
        edit("ben", 4, gold[4])
        page.goto(f"{served.server.base}/#agree")
        ready(page, "agree")
        assert page.locator(".stat").count() == 4
        assert page.locator(".entry").count() == 1
        with page.expect_response("**/api/settle/3"):
            page.get_by_role("button", name="Take anna’s").click()
        page.get_by_text("None left to settle").wait_for()
        assert served.said(3) == set(gold[3])

        edit("anna", 25, [(a, b, "NOTE" if label == "QTY" else label) for a, b, label in gold[25]])
        served.session.learner.wait(len(served.session.project.store.events), 60)
        page.goto(f"{served.server.base}/#review")
        ready(page, "review")
        page.locator(".doubt").first.wait_for()
        before = page.locator(".doubt").count()
        with page.expect_response("**/api/sequence/*") as reply:
            page.locator(".doubt button.primary").first.click()
        assert reply.value.ok, reply.value.text()
        until(lambda: page.locator(".doubt").count() < before)

        page.goto(f"{served.server.base}/#model")
        ready(page, "model")
        page.locator(".reasons .weights li").first.wait_for()
        line = page.locator(".reasons p").inner_text()
        page.locator(".explainer .sentence").focus()
        page.keyboard.press("ArrowRight")
        until(lambda: page.locator(".reasons p").inner_text() != line)

        page.goto(f"{served.server.base}/#export")
        ready(page, "export")
        for name in ("JSONL (doccano)", "Columns", "for crfkit tag"):
            with page.expect_download() as download:
                page.locator(".download", has_text=name).click()
            assert Path(download.value.path()).stat().st_size > 100


def test_focus_stays_in_the_view(visit: Open, news: Any) -> None:
    """After what rebuilds a view, the keyboard goes on where it was."""
    focus = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.tagName"
    with news() as served:
        page = visit(served, view="browse")
        page.get_by_role("button", name="Edit sentence 4").focus()
        page.keyboard.press("Enter")
        page.locator("dialog .sentence").wait_for()
        with page.expect_response("**/api/sequence/3"):
            page.keyboard.press("Enter")
        page.locator("dialog").wait_for(state="detached")
        until(lambda: page.evaluate(focus) == "Edit sentence 4")
        page.goto(f"{served.server.base}/#labels")
        ready(page, "labels")
        page.keyboard.press("x")  # not in a field
        page.get_by_label("Name of PER").fill("HUMAN")
        page.keyboard.press("Tab")
        until(lambda: page.evaluate(focus) == "Key of HUMAN")


def test_focus_goes_on_in_review(visit: Open, tmp_path: Path) -> None:
    documents, gold = sample(24)
    labels = sorted({label for row in gold for *_, label in row})
    with site(tmp_path, documents, labels) as served:
        for i in range(24):
            wrong = "NOTE" if i in (4, 9) else "QTY"
            rows = [{"start": a, "end": b, "label": wrong if x == "QTY" else x} for a, b, x in gold[i]]
            served.session.edit("anna", i, rows, f"anna-{i}-first")
        served.session.learner.idle(60)
        page = visit(served, view="review")
        while page.locator(".doubt").count():
            before = page.locator(".doubt").count()
            page.locator(".doubt button").first.focus()
            with page.expect_response("**/api/sequence/*"):
                page.keyboard.press("Enter")
            deadline = time.monotonic() + 60
            while page.locator(".doubt").count() >= before and time.monotonic() < deadline:
                page.wait_for_timeout(20)
            until(lambda: page.evaluate("document.activeElement.tagName") != "BODY")
        with page.expect_response("**/api/undo"):
            page.keyboard.press("Control+z")
        page.get_by_text("Undone: the labels of sentence").wait_for()


def test_undo_in_browse(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served)
        ask(page, served, 0, (0, 2, "PER"))
        before = question(page)["id"]
        page.evaluate("location.hash = 'browse'")
        ready(page, "browse")
        assert page.get_by_role("button", name="Undo").is_disabled()
        page.get_by_role("button", name="Edit sentence 4").click()
        page.locator("dialog .sentence").wait_for()
        page.keyboard.press("1")
        with page.expect_response("**/api/sequence/3"):
            page.keyboard.press("Enter")
        page.locator("dialog").wait_for(state="detached")
        assert served.said(3)
        with page.expect_response("**/api/undo"):
            page.keyboard.press("Control+z")
        page.get_by_text("Undone: the labels of sentence 4").wait_for()
        assert served.said(3) == set()
        with page.expect_response("**/api/redo"):
            page.get_by_role("button", name="Redo").click()
        page.get_by_text("Redone: the labels of sentence 4").wait_for()
        assert served.said(3)
        page.evaluate("location.hash = 'ask'")
        page.wait_for_selector(".place .w")
        assert question(page)["id"] == before  # an edit is not a question


def test_an_edit_is_not_lost_unasked(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served, view="browse")
        asked: list[str] = []
        answers = [False, False, True]

        def decide(box: Any) -> None:
            asked.append(box.message)
            box.accept() if answers.pop(0) else box.dismiss()

        page.on("dialog", decide)
        page.get_by_role("button", name="Edit sentence 4").click()
        page.locator("dialog .sentence").wait_for()
        page.keyboard.press("2")
        page.keyboard.press("Escape")
        page.wait_for_timeout(200)
        assert (len(asked), page.locator("dialog").count()) == (1, 1)
        page.evaluate("location.hash = 'model'")
        page.wait_for_timeout(200)
        assert len(asked) == 2
        assert page.evaluate("location.hash") == "#browse"
        page.evaluate("location.hash = 'export'")
        ready(page, "export")
        page.locator("dialog").wait_for(state="detached")
        assert not served.said(3)


def test_a_second_annotator_is_invited(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served, view="labels")
        page.get_by_label("Name of a new annotator").fill("ben")
        with page.expect_response("**/api/annotators"):
            page.get_by_role("button", name="Invite").click()
        address = page.get_by_label("Address of ben").input_value()
        other = visit(served, "ben")
        assert address == served.server.address("ben")
        assert "ben" in other.locator(".project").inner_text()


def test_what_is_shown_of_a_question(visit: Open, news: Any) -> None:
    """How often the words occur; no probabilities of other borders; which keys do what; whether there is an undo."""
    with news() as served:
        page = visit(served)
        ask(page, served, 1, (3, 5, "PER"))
        same = page.locator(".desk button[aria-keyshortcuts='=']")
        assert "(2)" in same.inner_text()
        assert page.get_by_role("button", name="Undo").is_disabled()
        numbers = page.locator(".desk .label .p")
        assert any(numbers.all_inner_texts())
        page.keyboard.press("ArrowRight")
        assert not any(numbers.all_inner_texts())
        assert "Guess for “Angela Osei” PER 60%" in " ".join(page.locator("p.guess").inner_text().split())
        assert "(" not in same.inner_text()
        page.keyboard.press("ArrowLeft")
        assert any(numbers.all_inner_texts())
        page.keyboard.press(".")
        assert "← → other words" in page.locator("p.guess").inner_text()
        assert page.locator(".borders kbd:visible").count() == 0


def test_an_accuracy_that_is_not_known_is_an_interval_only(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served)
        panel = served.session.panel("anna")
        page.route("**/api/panel", lambda route: route.fulfill(json=panel))
        for low, value in ((0.03, None), (0.9, "97.0%")):
            f1 = {"value": 0.97, "low": low, "high": 1.0}
            curve = [[n, 0.97, low, 1.0] for n in range(5)]
            panel["accuracy"] = {"token": f1, "f1": f1, "questions": 5, "curve": curve}
            page.reload()
            ready(page)
            card = page.locator(".card", has=page.get_by_role("heading", name="Accuracy"))
            name = card.locator("svg.interval").get_attribute("aria-label")
            assert name == f"Span F1{f' {value}' if value else ''}, 90% interval {100 * low:.0f}% to 100%"
            assert card.locator(".point, .curve").count() == (2 if value else 0)
            assert ("97.0%" in card.inner_text()) is bool(value)


def test_the_extent_of_an_entity_is_said(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served)
        pose(page, served, 1, (0, 2, "ORG"), (3, 5, "PER"))
        names = [word(page, t).get_attribute("aria-label") for t in range(3)]
        assert names == ["Northfield, ORG?", "Trust, ORG?, continued", None]


def test_help_and_keys_can_be_turned_off(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served)
        page.keyboard.press("?")
        page.get_by_role("dialog", name="Help").wait_for()
        page.get_by_label("Single-key shortcuts").uncheck()
        page.keyboard.press("Escape")
        pose(page, served, 0, (0, 2, "PER"))
        page.keyboard.press("3")
        page.wait_for_timeout(100)
        assert not served.answers()
        assert page.locator("h1").inner_text() == "What is “Angela Osei”?"


def test_everything_is_said(visit: Open, news: Any) -> None:
    """A screen reader hears the question, and what keys do to it."""
    with news() as served:
        page = visit(served)
        pose(page, served, 0, (0, 2, "PER"), (4, 5, "LOC"))
        polite = page.locator("#polite")
        assert "What is “Angela Osei”? Guess PER 60%, runner-up ORG 13%" in polite.inner_text()
        page.keyboard.press("ArrowLeft")
        assert polite.inner_text().strip() == "Chosen: Angela"
        page.keyboard.press("=")
        assert "every occurrence" in polite.inner_text()
        assert page.evaluate("document.activeElement.id") == "question"
        for _ in range(3):
            page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className").startswith("label")
        page.keyboard.press("Enter")  # the focused label's, not the guess
        assert "What is “Osei”? Left over" in polite.inner_text()  # the span was made shorter
        page.keyboard.press("0")
        assert "Leeds" in heading(page)
        options = page.locator(".place [role=option][aria-selected=true]")
        assert options.all_inner_texts() == ["Leeds"]


AXE = """(rules) => axe.run(document, {runOnly: rules})
    .then((r) => r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.html.slice(0, 160) + ' ' +
        (n.any[0] ? n.any[0].message : '')).slice(0, 3).join(' | ')))"""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def test_axe_finds_nothing(visit: Open, tmp_path: Path) -> None:
    """Every view in light, and what depends on colours in dark."""
    axe = Path(pytest.importorskip("axe_playwright_python").__file__).with_name("axe.min.js").read_text("utf-8")
    documents, gold = sample(12)
    labels = sorted({label for row in gold for *_, label in row})
    with site(tmp_path, documents, labels, names=("anna", "ben")) as served:
        for i in range(9):
            rows = [{"start": a, "end": b, "label": label} for a, b, label in gold[i]]
            served.session.edit("anna", i, rows, f"anna-{i}-first")
        rows = [{"start": 0, "end": 1, "label": "PREP"}]
        served.session.edit("ben", 0, rows, "ben-0-first")
        served.session.edit("anna", 10, rows, "anna-10-first")
        page = visit(served, bypass_csp=True)  # axe comes from outside of the page
        page.evaluate(axe)
        found: dict[str, list[str]] = {}

        def judge(name: str) -> None:
            for scheme, rules in (("light", RULES), ("dark", ["color-contrast"])):
                page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
                found[f"{name}, {scheme}"] = page.evaluate(AXE, rules)

        pose(page, served, 11, (0, 1, "QTY"), (1, 2, "UNIT"))
        judge("ask")
        page.keyboard.press(".")
        judge("whole")
        page.keyboard.press("?")
        judge("help")
        page.keyboard.press("Escape")
        for view in ("browse", "review", "agree", "model", "export", "labels"):
            page.evaluate(f"location.hash = '{view}'")
            page.wait_for_selector(f"body[data-view={view}] .body[aria-busy=false]")
            if view == "model":
                page.locator(".reasons .weights li").first.wait_for()
            judge(view)
        page.evaluate("location.hash = 'browse'")
        page.locator(".entry .open").first.click()
        page.locator("dialog .label").first.wait_for()
        judge("edit")
        assert {view: faults for view, faults in found.items() if faults} == {}


def test_theme_switch(visit: Open, news: Any) -> None:
    with news() as served:
        page = visit(served, color_scheme="light")
        ground = "getComputedStyle(document.documentElement).backgroundColor"
        light = page.evaluate(ground)
        page.get_by_role("button", name="Switch between light and dark").click()
        assert page.evaluate(ground) != light
        page.reload()
        ready(page)
        assert page.evaluate(ground) != light
