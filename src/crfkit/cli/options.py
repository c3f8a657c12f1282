"""Options of the commands, with their help."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from crfkit.features import Gazetteer, Template, TokenFeatures, WordClasses, WordVectors
from crfkit.model import ModelError
from crfkit.training import ALGORITHMS

Option = typer.Option


def complete(names: Iterable[str]) -> Callable[[str], list[str]]:
    """For a shell: the names that begin as typed."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


class OptionError(ValueError):
    """An option that is wrong whatever the data; the message names it."""


def check_options(context: typer.Context, check: Callable[[], Any]) -> Any:
    """What a check gives; its errors name options instead of the parameters they set."""
    try:
        return check()
    except ModelError:
        raise
    except (ValueError, TypeError) as e:
        raise OptionError(in_shell(str(e).replace(", or an optimiser", ""), context.command)) from None


def in_shell(text: str, command: Any) -> str:
    """A message that names options of a command in place of the parameters that they set."""
    flags = {p.name: p.opts[0] for p in command.params if p.opts and p.opts[0].startswith("--")}

    def named(found: re.Match[str]) -> str:
        return flags[found[1]] + " with --dask" * (".dask." in found[0]) if found[1] in flags else found[0]

    def valued(found: re.Match[str]) -> str:
        name, value = found[1] or found[2], found[3] or found[4]
        return f"{flags[name]} {value}" if name in flags and value not in ("True", "False", "None") else found[0]

    text = re.sub(r"^'(\w+)'(?: of [\w.]+)?", named, text)
    text = re.sub(r"'(\w+)' of (?:[A-Z]\w*|tune|train|tag|fit)\b", named, text)
    return re.sub(r"(?<!\S)(?:'(\w+)'|(\w+))=(?:'(\w+)'|(\w+(?:\.\d+)?))", valued, text)


#: Layouts of data files.
Format = StrEnum("Format", "columns conllu crfsuite")
#: Rules of templates.
Dialect = StrEnum("Dialect", "auto crfpp wapiti")
#: Model files.
FileKind = StrEnum("FileKind", "crfkit crfsuite")
#: Kinds of models.
Kind = StrEnum("Kind", "crf hmm memm segment")
#: Chunking schemes.
Scheme = StrEnum("Scheme", "bio iob1 bioes bilou")
FormatOption = Annotated[Format, Option("--format", "-f", help="Layout of the data file.")]
OtherFormatOption = Annotated[
    Format | None, Option("--format", "-f", help="Layout of the file; that of training by default.")
]
LabelOption = Annotated[
    str | None,
    Option(
        "--label",
        help="Column of the labels: a number (-1 is the last), or for CoNLL-U a name such as upos, or upos+feats.",
    ),
]
ColumnsOption = Annotated[
    str | None,
    Option("--columns", help="Input columns, separated by commas; all but the label by default."),
]
UnknownOption = Annotated[str | None, Option("--unknown", help="Label that marks a token as unlabelled.")]
CommentOption = Annotated[str, Option("--comment", help="Skip lines of a column file that begin with this.")]
EncodingOption = Annotated[str, Option("--encoding", help="Encoding of text input.")]
JobsOption = Annotated[int, Option("--n-jobs", "-j", "--nthread", "--thread", help="Threads; -1 for all cores.")]
LinesOption = Annotated[bool, Option("--lines", help="Every line of a text is a sentence.")]
JsonOption = Annotated[bool, Option("--json", help="Write JSON for programs, one object per line.")]
QuietOption = Annotated[bool, Option("--quiet", "-q", help="Print errors only.")]
ModelOption = Annotated[Path, Option("--model", "--model-file", "-m", help="The model file.")]

#: Options of what words are looked up in.
LEXICON = ("classes", "vectors", "gazetteer")
#: What a block file has decided already.
_ENCODED = (
    "out_of_core",
    "memory",
    "unlabelled",
    "format",
    "label",
    "columns",
    "comment",
    "encoding",
    "template",
    "dialect",
    "padding",
    *LEXICON,
    "unknown",
    "hash_bits",
    "text",
    "lines",
)

DataArgument = Annotated[str, typer.Argument(help="Labelled data; - for standard input; .gz, .xz, .bz2 are read.")]
TargetOption = Annotated[
    Path | None,
    Option("--model", "--model-file", "-m", help="Where to write the model; needed unless --plan is given."),
]
KindOption = Annotated[Kind, Option("--kind", "-k", help="Model type; an HMM uses the columns without features.")]
MaxLengthOption = Annotated[
    int | None,
    Option("--max-length", help="Longest segment, for --kind segment; the longest in the data by default."),
]
TooLongOption = Annotated[
    str, Option("--too-long", help="What to do with longer segments, for --kind segment: error or cut.")
]
TailOption = Annotated[
    int,
    Option("--tail-order", help="Allow longer segments, for --kind segment: 1 geometric, 2 or more negative binomial."),
]
DictionaryOption = Annotated[
    bool, Option("--dictionary", help="Remember the texts of training segments, for --kind segment.")
]
SeenOption = Annotated[bool, Option("--seen", help="Add features for segments that occur in other training sentences.")]
EndsOption = Annotated[
    bool, Option("--ends", help="Give the last tokens of segments weights of their own, for --kind segment.")
]
TemplateOption = Annotated[
    Path | None,
    Option("--template", "-t", "--pattern", help="CRF++ template or Wapiti patterns; built-in features by default."),
]
ClassesOption = Annotated[
    list[str] | None,
    Option(
        "--classes",
        metavar="[NAME=]FILE",
        help="Word classes of crfkit classes, as features; several need names; not with --template.",
    ),
]
VectorsOption = Annotated[
    list[Path] | None,
    Option(metavar="FILE", help="Word vectors of word2vec, fastText or GloVe, as features; not with --template."),
]
GazetteerOption = Annotated[
    list[str] | None,
    Option(
        "--gazetteer",
        metavar="NAME=FILE",
        help="A UTF-8 list of phrases, one per line, as features; NAME:lower=FILE ignores case; not with --template.",
    ),
]
MemoryOption = Annotated[
    str,
    Option(
        help="Memory for the vocabulary while encoding, at least 64MB; the rest is counted on the disk. Encoding takes "
        "about 130MB besides."
    ),
]
OutOfCoreOption = Annotated[
    Path | None,
    Option(
        metavar="DIR",
        help="Encode the data into a block file in this folder, and train on that. Interrupted encoding is "
        "continued; for training, give --checkpoint.",
    ),
]
WindowOption = Annotated[
    int | None,
    Option(help="Blocks that stochastic optimisers hold at a time, for block files and --out-of-core; all by default."),
]
PlanOption = Annotated[bool, Option("--plan", help="Print the memory and disk space that training would take.")]
DialectOption = Annotated[Dialect, Option(help="Dialect of the template.")]
PaddingOption = Annotated[bool, Option(help="Pad sequences with _B-1, _B+1 for templates, as CRF++ does.")]
DevOption = Annotated[str | None, Option("--dev", "--devel", help="Held-out data, scored while training.")]
AlgorithmOption = Annotated[
    str,
    Option(
        "--algorithm",
        "--algo",
        "-a",
        help=f"Optimiser: {', '.join(ALGORITHMS)}; or CRFsuite's l2sgd, Wapiti's l-bfgs, CRF++'s CRF, CRF-L1, CRF-L2.",
        autocompletion=complete(ALGORITHMS),
    ),
]
C1Option = Annotated[float, Option("--c1", "--rho1", help="Coefficient of L1 regularisation (sum of |w|).")]
C2Option = Annotated[float, Option(help="Coefficient of L2 regularisation (sum of w^2).")]
MinFreqOption = Annotated[float, Option(help="Ignore (attribute, label) pairs seen less often.")]
HashOption = Annotated[int | None, Option(help="Number attributes by a hash of this many bits, without a vocabulary.")]
StatesOption = Annotated[bool, Option("--all-possible-states", help="Give weights to all (attribute, label) pairs.")]
TransitionsOption = Annotated[bool, Option(help="Give weights to unseen label pairs too.")]
StartEndOption = Annotated[bool, Option(help="Give weights to the first and the last label.")]
ConstraintsOption = Annotated[Scheme | None, Option(help="Forbid what the chunking scheme forbids.")]
UnlabelledOption = Annotated[str | None, Option(help="Data without labels, for --entropy-weight or --expectations.")]
ExpectationsOption = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="Label distributions of unlabelled tokens, one attribute per line: an attribute, then LABEL:FRACTION "
        "for each label, or labels with commas, >= or <=, and a fraction.",
    ),
]
ExpectationWeightOption = Annotated[float, Option(help="Coefficient of --expectations.")]
MethodOption = Annotated[
    str, Option("--expectation-method", help="How --expectations are learned from: expectation or posterior.")
]
HiddenOption = Annotated[int, Option(help="Hidden states of each label.")]
StartsOption = Annotated[int, Option("--n-init", help="Random starts, of which the best is kept, for hidden states.")]
EntropyOption = Annotated[float, Option(help="Coefficient of the entropy of unlabelled sequences.")]
EntropyPerOption = Annotated[str, Option(help="Entropy per sequence, or per token: sequence or token.")]
EntropyRampOption = Annotated[int, Option(help="Iterations over which the entropy's weight increases.")]
OrderOption = Annotated[int, Option(help="Number of preceding labels that a label depends on: 1, 2 or 3.")]
BeamOption = Annotated[
    str | None,
    Option(
        help="Train within beams of labels: min-divergence:EPSILON[:MIN_SIZE], fixed:N, threshold:DELTA "
        "or adaptive, which ends at the exact optimum."
    ),
]
MaxIterOption = Annotated[
    int | None, Option("--max-iter", "--maxiter", "--max-iterations", help="Maximum number of iterations.")
]
TolOption = Annotated[
    float,
    Option(
        "--tol", "--eta", "--stopeps", help="Stop when the relative improvement over 10 iterations falls below this."
    ),
]
StoppingOption = Annotated[
    int | None, Option(help="Stop when the held-out score has not risen for this many iterations.")
]
SeedOption = Annotated[int | None, Option("--random-state", "--seed", help="Random seed; 0 by default.")]
StartOption = Annotated[
    Path | None, Option("--warm-start", help="Start from the weights of this model; new labels are added.")
]
FractionOption = Annotated[float | None, Option(help="First train on this fraction of the sequences, then on all.")]
CheckpointOption = Annotated[Path | None, Option(help="Checkpoint file for --resume; removed at the end.")]
EveryOption = Annotated[str, Option("--every", metavar="TIME", help="Time between checkpoints: 30s, 5min, 1h.")]
ResumeOption = Annotated[
    bool, Option("--resume", help="Continue from the checkpoint, if it exists; data and options must be the same.")
]
DeviceOption = Annotated[
    str, Option(help="Where to train: cpu, or cuda for a GPU, which needs torch. Both reach the same optimum.")
]
Rho2Option = Annotated[float | None, Option(help="Wapiti's coefficient of half the sum of squared weights. Sets c2.")]
CostOption = Annotated[float | None, Option(help="CRF++'s C. Sets c2 to 1 / 2C.")]
ParamOption = Annotated[
    list[str] | None,
    Option("--set", metavar="NAME=VALUE", help="Set a parameter by its CRFsuite name, such as feature.minfreq=2."),
]


def read_features(options: Mapping[str, Any]) -> Any:
    """The features that --template, --classes, --vectors and --gazetteer name; "auto" without any."""
    path: Path | None = options["template"]
    lexicon = [name for name in LEXICON if options[name]]
    if path is not None:
        if lexicon:
            raise OptionError(f"--{lexicon[0]} and --template exclude each other: templates name their features")
        return _named("--template", Template.from_file, path, padding=options["padding"], dialect=options["dialect"])
    if not lexicon:
        return "auto"
    if options["format"] is Format.crfsuite:
        raise OptionError(f"--{lexicon[0]} looks up words, and CRFsuite files have attributes instead of them")
    found: dict[str, Any] = {}
    classes: dict[str, WordClasses] = {}
    for text in options["classes"] or ():
        name, _, file = text.partition("=") if "=" in text else ("class", "", text)
        if not name or name in classes:
            raise OptionError(f"several --classes must be NAME=FILE, each with a name of its own, got {text!r}")
        classes[name] = _named("--classes", WordClasses.load, file)
    for k, path in enumerate(options["vectors"] or ()):
        if k:
            raise OptionError(f"--vectors must be given once, got a second one, {path}")
        found["vectors"] = _named("--vectors", WordVectors.from_file, path)
    gazetteers: dict[str, Gazetteer] = {}
    for text in options["gazetteer"] or ():
        name, equals, file = text.partition("=")
        name, _, case = name.partition(":")
        if not equals or not name or name in gazetteers:
            raise OptionError(f"--gazetteer must be NAME=FILE, with a name of its own, got {text!r}")
        gazetteers[name] = _named("--gazetteer", Gazetteer.from_file, file, case=case or "exact")
    return TokenFeatures(classes=classes or None, **found, gazetteers=gazetteers or None)


def feature_files(options: Mapping[str, Any]) -> list[Any]:
    """The files that :func:`read_features` reads, as far as options name them."""
    lists = [*(options["classes"] or ()), *(options["gazetteer"] or ())]
    return [options["template"], *(options["vectors"] or ()), *(text.partition("=")[2] or text for text in lists)]


def _named(option: str, read: Callable[..., Any], path: Any, **how: Any) -> Any:
    """What is read from the file of an option; errors name the option."""
    from crfkit.cli.files import warnings_said

    try:
        with warnings_said():
            return read(path, **how)
    except OSError as e:
        raise OptionError(f"{option}: {e.strerror}: {e.filename}") from None
    except ValueError as e:
        raise OptionError(f"{option}: {e}") from None


def given_options(context: typer.Context) -> dict[str, str]:
    """Names and flags of the options that stand on the command line."""

    def is_given(name: str) -> bool:
        source = context.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    return {p.name: p.opts[0] for p in context.command.params if p.name and is_given(p.name)}


def refuse_encoded(given: dict[str, str], data: str) -> None:
    """Raises if an option is given that a block file has decided already."""
    for name, flag in given.items():
        if name in _ENCODED:
            raise OptionError(f"{flag} is for text: {data} is encoded already")
