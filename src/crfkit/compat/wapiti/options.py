"""The options of Wapiti's command line, by mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MODES = ("train", "label", "dump", "update")


class Failure(Exception):
    """Ends the program with a line on standard error, and code 1."""


class Switch(NamedTuple):
    """An option: its names, what it sets, its default, and what it does."""

    short: str
    long: str
    kind: type
    default: Any
    help: str


_TRAIN = (
    Switch("-T", "--type", str, "crf", "type of model: crf or maxent"),
    Switch("-a", "--algo", str, "l-bfgs", "training algorithm"),
    Switch("-p", "--pattern", str, None, "file of patterns"),
    Switch("-m", "--model", str, None, "model to start from"),
    Switch("-d", "--devel", str, None, "held-out data, for the error rates"),
    Switch("", "--rstate", str, None, "not used"),
    Switch("", "--sstate", str, None, "not used"),
    Switch("-c", "--compact", bool, False, "leave out observations without weights"),
    Switch("-s", "--sparse", bool, False, "not used"),
    Switch("-t", "--nthread", int, 1, "number of threads"),
    Switch("-j", "--jobsize", int, 64, "not used"),
    Switch("-i", "--maxiter", int, 0, "maximum number of iterations; 0 for no limit"),
    Switch("-1", "--rho1", float, 0.5, "L1 penalty: rho1 |w|"),
    Switch("-2", "--rho2", float, 0.0001, "L2 penalty: rho2 |w|^2 / 2"),
    Switch("-o", "--objwin", int, 5, "iterations over which the objective must fall"),
    Switch("-w", "--stopwin", int, 5, "iterations over which the token error must change; 0 for any"),
    Switch("-e", "--stopeps", float, 0.02, "by how much, in percent; and the objective, as a fraction"),
    Switch("", "--clip", bool, False, "not used"),
    Switch("", "--histsz", int, 5, "steps that L-BFGS remembers"),
    Switch("", "--maxls", int, 40, "maximum number of evaluations in a line search"),
    *(Switch("", f"--{name}", float, 1.0, "not used") for name in ("eta0", "alpha", "kappa")),
    *(Switch("", f"--stp{name}", float, 1.0, "not used") for name in ("min", "max", "inc", "dec")),
    Switch("", "--cutoff", bool, False, "not used"),
    Switch("", "--me", bool, False, "tokens are lists of features: not available"),
)
_LABEL = (
    Switch("-m", "--model", str, None, "model to label with"),
    Switch("-l", "--label", bool, False, "write labels only"),
    Switch("-c", "--check", bool, False, "the last column holds the right labels: compare"),
    Switch("-s", "--score", bool, False, "write scores"),
    Switch("-p", "--post", bool, False, "the most probable label of each token"),
    Switch("-n", "--nbest", int, 1, "number of labellings"),
    Switch("", "--force", bool, False, "labels in the last column are kept"),
    Switch("", "--me", bool, False, "tokens are lists of features: not available"),
)
_DUMP = (
    Switch("-p", "--prec", int, 5, "decimals of the weights"),
    Switch("", "--all", bool, False, "weights of zero too"),
)
_UPDATE = (
    Switch("-m", "--model", str, None, "model to change"),
    Switch("-c", "--compact", bool, False, "leave out observations without weights"),
)
SWITCHES = {"train": _TRAIN, "label": _LABEL, "dump": _DUMP, "update": _UPDATE}
_FILES = {"train": "[data] [model]", "label": "[data] [output]", "dump": "[model] [text]", "update": "[patch] [model]"}
#: What the values of options must be.
_RULES = {"nthread": 1, "jobsize": 1, "rho1": 0, "rho2": 0, "histsz": 1, "maxls": 1, "nbest": 1, "objwin": 1, "prec": 0}


@dataclass
class Options:
    """A mode, its files, and the options by their long names."""

    mode: str
    input: str | None = None
    output: str | None = None
    values: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["values"][name]
        except KeyError:
            raise AttributeError(name) from None


def usage(program: str) -> str:
    """The help text."""
    lines = []
    for mode, switches in SWITCHES.items():
        lines.append(f"{program} {mode} [options] {_FILES[mode]}")
        for s in switches:
            if s.help != "not used":
                value = "" if s.kind is bool else {str: "FILE", int: "INT", float: "FLOAT"}[s.kind]
                lines.append(f"    {s.short or '  '} {s.long:<10} {value:<6} {s.help}")
    return "\n".join(lines)


def parse(arguments: Sequence[str]) -> Options:
    """The options of a command line without the program's name.

    >>> options = parse(["train", "-1", "0", "--nthread", "2", "data", "model"])
    >>> options.rho1, options.nthread, options.rho2, options.input, options.output
    (0.0, 2, 0.0001, 'data', 'model')
    """
    mode = next((m for m in MODES if arguments[0] in (m, m[0])), None)
    if mode is None:
        raise Failure(f"unknown mode <{arguments[0]}>")
    switches = SWITCHES[mode]
    options = Options(mode, values={s.long[2:]: s.default for s in switches})
    files: list[str] = []
    rest = iter(arguments[1:])
    for argument in rest:
        if not argument.startswith("-"):
            files.append(argument)
            continue
        switch = next((s for s in switches if argument in (s.short, s.long)), None)
        if switch is None:
            raise Failure(f"unknown option '{argument}'")
        options.values[switch.long[2:]] = switch.kind is bool or _value(switch, argument, next(rest, None))
    if len(files) > 2:
        raise Failure("too much input files on command line")
    options.input, options.output = [*files, None, None][:2]
    for name, least in _RULES.items():
        if name in options.values and not options.values[name] >= least:
            raise Failure(f"invalid value for <--{name}>")
    if mode == "label" and options.check and options.force:
        raise Failure("--check and --force cannot be used together")
    return options


def _value(switch: Switch, argument: str, text: str | None) -> Any:
    if text is None:
        raise Failure(f"missing argument for switch '{argument}'")
    try:
        return switch.kind(text)
    except ValueError:
        raise Failure(f"invalid value for switch '{argument}'") from None
