"""``crfkit annotate``: the annotation page, or a campaign with a simulated person."""

from __future__ import annotations

import getpass
import importlib.util
import tempfile
import threading
import uuid
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from crfkit import metrics
from crfkit.base.messages import counted
from crfkit.base.threads import resolve_threads
from crfkit.cli import options as o
from crfkit.cli.files import busy, emit, require_file, say, warnings_said
from crfkit.data import DataError
from crfkit.loading import load

Option = typer.Option
#: What a label is given to.
Task = StrEnum("Task", "spans tokens")
#: Formats of files; a test holds it against crfkit.annotate.formats, which takes longer to import.
FileFormat = StrEnum(
    "FileFormat",
    {
        "auto": "auto",
        "text": "text",
        "columns": "columns",
        "conllu": "conllu",
        "csv": "csv",
        "csv_text": "csv-text",
        "jsonl": "jsonl",
        "doccano": "doccano",
        "prodigy": "prodigy",
        "labelstudio": "labelstudio",
        "brat": "brat",
    },
)
_SUFFIX = ".crfkit-project"

FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE",
        help="Text to label, with or without labels: files, folders of .txt files, or a project to continue.",
    ),
]
LabelsOption = Annotated[
    str | None,
    Option("--labels", help="Labels, separated by commas, besides those in the files and on the page."),
]
TaskOption = Annotated[Task, Option("--task", help="Label spans (entities, chunks) or every token (parts of speech).")]
ProjectOption = Annotated[
    Path | None, Option("--project", help="The project file; FILE.crfkit-project in this folder by default.")
]
FileFormatOption = Annotated[
    FileFormat, Option("--format", "-f", help="Format of the files; detected from name and content by default.")
]
LabelOption = Annotated[
    str | None,
    Option("--label", help="Column of the labels: number or name, found by its values by default; 'none' ignores it."),
]
HostOption = Annotated[str, Option(help="Address to listen at; 0.0.0.0 for all.")]
PortOption = Annotated[int, Option(help="Port; by default 8765, or the next one that is free.")]
AllowOption = Annotated[
    list[str] | None,
    Option("--allow-host", metavar="HOST[:PORT]", help="Also accept this Host header, for use behind a proxy."),
]
AnnotatorsOption = Annotated[
    str | None, Option(help="Names, separated by commas; each annotator gets a personal link.")
]
ShareOption = Annotated[
    float | None,
    Option("--random-share", help="Fraction of random questions, which measure accuracy; 0.1 by default."),
]
HideOption = Annotated[bool, Option("--hide-random", help="Do not say which questions are random.")]
BrowserOption = Annotated[bool, Option("--browser", help="Open the page in the browser.")]
SimulateOption = Annotated[
    str | None,
    Option(
        "--simulate",
        metavar="GOLD",
        help="No page: a simulated person, who knows the labels in this file, answers through the JSON interface.",
    ),
]
AnswersOption = Annotated[int, Option("--answers", help="Answers of the simulated person.")]


def annotate(
    context: typer.Context,
    files: FilesArgument = None,
    labels: LabelsOption = None,
    task: TaskOption = Task.spans,
    project: ProjectOption = None,
    format: FileFormatOption = FileFormat.auto,
    label: LabelOption = None,
    comment: o.CommentOption = "",
    encoding: o.EncodingOption = "utf-8",
    lines: o.LinesOption = False,
    template: o.TemplateOption = None,
    dialect: o.DialectOption = o.Dialect.auto,
    padding: o.PaddingOption = True,
    c2: Annotated[float | None, Option(help="Coefficient of L2 regularisation (sum of w^2).")] = None,
    random_share: ShareOption = None,
    hide_random: HideOption = False,
    annotators: AnnotatorsOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8765,
    allow_host: AllowOption = None,
    browser: BrowserOption = False,
    simulate: SimulateOption = None,
    answers: AnswersOption = 150,
    random_state: o.SeedOption = 0,
    n_jobs: o.JobsOption = -1,
    json: o.JsonOption = False,
) -> None:
    """Label text on a page that asks only what the model needs to know.

    Every answer is saved before the next question appears, and the model learns from it at once. Ctrl-C ends the
    server; the same command continues. The page exports labels and the trained model. --template and --c2 are
    those of 'crfkit train'.
    """
    given = dict(locals())
    _require_extra()
    o.check_options(context, lambda: resolve_threads(n_jobs))
    names = _names(labels, "--labels")
    people = _names(annotators, "--annotators")
    if answers < 1:
        raise o.OptionError(f"--answers must be >= 1, got {answers}")
    if random_share is not None and not 0 <= random_share <= 1:
        raise o.OptionError(f"--random-share must be from 0 to 1, got {random_share}")
    if not 0 <= port < 65536:
        raise o.OptionError(f"--port must be from 0 to 65535, got {port}")
    sources = list(files or [])
    if len(sources) == 1 and sources[0].endswith(_SUFFIX):
        project, sources = Path(sources.pop()), []
    if simulate is not None:
        _simulate(given, sources, names)
        return
    path = project or _default_project(sources)
    with _session(given, path, sources, names) as session:
        for name in people or ([] if session.annotators() else [_user()]):
            session.add_annotator(name)
        number = _serve(session, given, people or session.annotators(), path)
    say(f"crfkit: all answers are in {path}; the same command continues")
    if number:
        raise typer.Exit(128 + number)


def _require_extra() -> None:
    for module in ("starlette", "uvicorn"):
        if importlib.util.find_spec(module) is None:
            raise ValueError(f"'crfkit annotate' needs {module}: pip install \"crfkit[annotate]\"")


def _names(text: str | None, option: str) -> list[str]:
    names = [] if text is None else [x.strip() for x in text.split(",")]
    if not all(names) or len(set(names)) != len(names):
        raise o.OptionError(f"{option} must be different names, separated by commas, got {text!r}")
    return names


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "me"


def _default_project(sources: Sequence[str]) -> Path:
    if not sources:
        raise o.OptionError("give a file to label, or a project to continue")
    name = "project" if sources[0] == "-" else Path(sources[0]).resolve().name
    return Path(f"{name.partition('.')[0] or name}{_SUFFIX}")


@contextmanager
def _session(given: dict[str, Any], path: Path, sources: Sequence[str], names: list[str]) -> Iterator[Any]:
    """A session of the project, which is made if it is not there."""
    from crfkit.annotate.project import Project
    from crfkit.annotate.session import Session

    new = not path.exists()
    if not new:
        with warnings_said():
            project = Project.open(path)
        _check_old(project, given, sources)
    else:
        documents = _read(given, sources)
        with busy("saving the project"):
            project = Project.create(path, documents, task=given["task"].value, labels=names, settings=_settings(given))
        if not project.names:
            say("crfkit: there are no labels yet: add them on the page, or give --labels")
    try:
        with busy("preparing the model"):
            session = Session(project, crf=_estimator(project), n_jobs=given["n_jobs"], seed=given["random_state"] or 0)
    except BaseException:
        project.close()
        if new:  # nothing is in it but options that do not fit the text
            path.unlink()
        raise
    try:
        for name in names:
            if name in project.names_before:
                say(f"crfkit: label {name} is called {project.current(name)} now; to add it again, use the page")
            elif name not in project.names:
                session.change_labels(_user(), {"uuid": str(uuid.uuid4()), "add": {"name": name}})
        yield session
    finally:
        session.close()


def _read(given: dict[str, Any], sources: Sequence[str]) -> list[Any]:
    from crfkit.annotate.formats import read_documents

    for source in sources:
        require_file(source)
    with busy(f"reading {', '.join(sources)}"), warnings_said():
        documents = read_documents(
            sources,
            format=given["format"].value,
            task=given["task"].value,
            labels=_names(given["labels"], "--labels"),
            label=given["label"],
            comment=given["comment"],
            by_line=given["lines"],
            encoding=given["encoding"],
        )
    tokens = sum(len(d.tokens) for d in documents)
    kinds = ", ".join(dict.fromkeys(d.source["format"] for d in documents))
    if not given["json"]:
        say(f"read {counted(len(documents), 'sentence', ',')}, {counted(tokens, 'token', ',')} ({kinds})")
    return documents


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    """What a project remembers of the options."""
    found: dict[str, Any] = {"show_random": not given["hide_random"]}
    if given["random_share"] is not None:
        found["random_share"] = given["random_share"]
    if given["template"] is not None:
        _template(text := _template_text(given["template"]), given["dialect"].value, given["padding"])
        found["template"] = {"text": text, "dialect": given["dialect"].value, "padding": given["padding"]}
    if given["c2"] is not None:
        if not given["c2"] >= 0:
            raise o.OptionError(f"--c2 must be >= 0, got {given['c2']}")
        found["c2"] = given["c2"]
    return found


def _template_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as e:
        raise o.OptionError(f"--template: {getattr(e, 'strerror', None) or e}: {path}") from None


def _template(text: str, dialect: str, padding: bool) -> Any:
    from crfkit.features import Template

    try:
        return Template(text, padding=padding, dialect=dialect)
    except ValueError as e:
        raise o.OptionError(f"--template: {e}") from None


def _estimator(project: Any) -> Any:
    """The model that a project's settings ask for; None for the session's own choice."""
    from crfkit.estimators import CRF

    settings = project.settings
    if not {"template", "c2"} & settings.keys():
        return None
    more: dict[str, Any] = {"constraints": "bio"} if project.task == "spans" else {}
    if "template" in settings:
        more["features"] = _template(**settings["template"])
    return CRF(c2=settings.get("c2", 0.3), **more)


def _check_old(project: Any, given: dict[str, Any], sources: Sequence[str]) -> None:
    """Says where the options of a project that is continued do not fit it."""
    from crfkit.annotate.formats import originals

    if given["task"].value != project.task:
        project.close()
        raise o.OptionError(f"--task: {project.path} is for {project.task}; give --project for another")
    before = originals(project.documents)
    for source in sources:
        name = Path(source).name
        if before and name not in before and Path(source).is_file():
            project.close()
            made_from = ", ".join(sorted(before))
            raise o.OptionError(f"{project.path} was made from {made_from}, not from {source}: give another --project")
        if name in before and Path(source).is_file() and Path(source).read_bytes() != before[name]:
            say(f"crfkit: warning: {source} has changed since {project.path} was made, which keeps the old text")
    ignored = [x for x in ("template", "c2") if given[x] is not None and x not in project.settings]
    if ignored:
        say(f"crfkit: warning: --{ignored[0]} applies to new projects only; {project.path} continues without it")


def _serve(session: Any, given: dict[str, Any], people: Sequence[str], path: Path) -> int:
    from crfkit.annotate.server import Server

    source = given["context"].get_parameter_source("port")
    search = source is None or source.name != "COMMANDLINE"
    server = Server(session, given["host"], given["port"], given["allow_host"] or (), search)
    for name in people:
        who = f"{name}: " if len(people) > 1 else ""
        print(f"crfkit: {who}{server.address(name)}  (project {path}, autosaved)", flush=True)
    if given["host"] not in ("127.0.0.1", "localhost", "::1"):
        say("crfkit: note: others can reach this address; the connection is not encrypted")
    if given["browser"]:
        webbrowser.open(server.address(people[0]))
    return server.run()


def _simulate(given: dict[str, Any], sources: Sequence[str], names: list[str]) -> None:
    """Plays a campaign over HTTP and says how it went."""
    from crfkit.annotate.project import Project
    from crfkit.annotate.session import Session
    from crfkit.annotate.simulation import Person, over_http, play

    gold, spans = _gold(given), given["task"] is Task.spans
    pool = gold if not sources or _same_file(sources[0], given["simulate"]) else _read(given, sources)
    for k in range(max(len(pool), len(gold))):
        here, there = ([*docs[k].words, None] if k < len(docs) else [None] for docs in (pool, gold))  # None: the end
        if here != there:
            t = next(t for t, pair in enumerate(zip(here, there, strict=False)) if pair[0] != pair[1])
            mine, other = (repr(x[t]) if x[t] is not None else "its end" for x in (there, here))
            where = f"sentence {k + 1}, token {t + 1}: {mine}, but {', '.join(sources)} has {other}"
            raise DataError(f"{given['simulate']}: {where}{_advice(pool, given['lines'])}")
    truth = [d.labels for d in gold]
    found = {x[2:] if spans else x for row in truth for x in row if not spans or x != "O"}
    if pool is gold:
        pool = [replace(d, labels=None) for d in gold]
    with tempfile.TemporaryDirectory() as folder:
        path = given["project"] or Path(folder) / f"simulated{_SUFFIX}"
        every = [*names, *sorted(found - set(names))]
        project = Project.create(path, pool, task=given["task"].value, labels=every, settings=_settings(given))
        seed = given["random_state"] or 0
        session = Session(project, crf=_estimator(project), n_jobs=given["n_jobs"], seed=seed, patient=True)
        try:
            session.add_annotator("simulated")
            with _running(session) as server:
                call = over_http(server.address("simulated"))
                X = [session.rows(i) for i in range(len(pool))]
                step, said = None, 0
                for step in play(call, Person(truth, spans), given["answers"]):
                    if step.answers % 10 == 0:
                        said = step.answers
                        _report(given, step, _score(call, X, truth), session.state_accuracy())
                if step is None:
                    raise DataError(f"{', '.join(sources)}: every word has a label; to ignore them, give --label none")
                if step.answers != said:
                    _report(given, step, _score(call, X, truth), session.state_accuracy())
        finally:
            session.close()


def _advice(pool: Sequence[Any], lines: bool) -> str:
    """What may help where a file to label and one with its labels differ."""
    if pool[0].source["format"] != "text":
        return ""
    by_line = "" if lines else "if every line is a sentence, add --lines; "
    return (
        f" ({by_line}text is cut into tokens by crfkit: for the tokens of GOLD, give them with -f columns --label none)"
    )


def _gold(given: dict[str, Any]) -> list[Any]:
    label = None if given["label"] == "none" else given["label"]  # that is said of the text to label
    gold = _read({**given, "label": label}, [given["simulate"]])
    for k, doc in enumerate(gold, 1):
        if doc.labels is None or any(x is None for x in doc.labels):
            raise DataError(f"{given['simulate']}: sentence {k} has a token without a label; the person must know all")
    return gold


def _same_file(a: str, b: str) -> bool:
    return Path(a).exists() and Path(b).exists() and Path(a).samefile(b)


@contextmanager
def _running(session: Any) -> Iterator[Any]:
    """A server of this session on a thread."""
    from crfkit.annotate.server import Server

    server = Server(session, port=0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(10)


def _score(call: Any, X: Sequence[Any], truth: Sequence[Sequence[str]]) -> dict[str, float]:
    """How good the model is on all of the pool."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        path.write_bytes(call("GET", "/api/export/model", None))
        crf: Any = load(path)
        return metrics.evaluate(truth, crf.predict(X)).summary()


def _report(given: dict[str, Any], step: Any, score: dict[str, float], stated: dict[str, Any]) -> None:
    main = "f1" if "f1" in score else "accuracy"
    shown = stated["f1"] if main == "f1" else stated["token"]
    record = {
        "answers": step.answers,
        "seconds": round(step.seconds, 1),
        "tokens": step.tokens,
        "corrections": step.corrections,
        "keys": step.keys,
        **{k: round(v, 4) for k, v in score.items()},
        "stated": shown and {"measure": main, **shown},
    }
    if given["json"]:
        emit(record)
        return
    name = "f1" if main == "f1" else "token accuracy"
    between = f", stated {name} {shown['value']:.3f} ({shown['low']:.3f} to {shown['high']:.3f})" if shown else ""
    print(
        f"{step.answers:5d} answers  {step.seconds / 60:6.1f} min of the person  {step.tokens:6d} tokens judged  "
        f"{step.keys:6d} keys  whole pool: {name} {score[main]:.3f}{between}",
        flush=True,
    )
