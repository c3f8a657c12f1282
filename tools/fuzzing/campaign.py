"""Processes that try inputs one after another; one that dies, hangs or takes too much memory is a finding."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import mmap
import os
import pickle
import resource
import select
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fuzzing.kinds import Kind, Refused, quiet

SECONDS = 10.0  # of processor time that an input may take
BYTES = 1 << 30  # of memory that it may take
_PATIENCE = 12  # times SECONDS that it may take by the clock: a hang without work
_SLOT = struct.Struct("<3q")  # place in the schedule of the input that is being tried; inputs read; inputs refused
_KEPT = 3  # findings of the same fault that are written to files


@dataclass
class Finding:
    """An input that did what none may."""

    kind: str
    number: int
    fault: str
    where: str

    def line(self, seed: int) -> str:
        """As it is shown; the command replays it."""
        return f"{self.kind} --seed {seed} --number {self.number}: {self.fault} {self.where}".rstrip()


@dataclass
class Report:
    """What a campaign came to."""

    inputs: int = 0
    read: int = 0
    refused: int = 0
    findings: list[Finding] = field(default_factory=list)


def sanitized() -> bool:
    """Whether the core was built with a sanitizer, which maps terabytes of shadow."""
    return "libasan" in Path("/proc/self/maps").read_text() or "libtsan" in Path("/proc/self/maps").read_text()


def schedule(kinds: Sequence[Kind]) -> list[tuple[Kind, int]]:
    """One round: every kind as often as its share, with the number within the round."""
    turns = [((k + 0.5) / kind.share, i, kind, k) for i, kind in enumerate(kinds) for k in range(kind.share)]
    return [(kind, k) for _, _, kind, k in sorted(turns, key=lambda x: x[:2])]


def try_input(kind: Kind, data: bytes, path: Path) -> tuple[str, str]:
    """What an input leads to: read, refused, or a fault and where it arose."""
    try:
        kind.use(data, path)
    except Refused:
        return "refused", ""
    except Exception as e:
        frames = [
            f for f in traceback.extract_tb(e.__traceback__) if "crfkit" in f.filename and "fuzzing" not in f.filename
        ]
        where = f"at {Path(frames[-1].filename).name}:{frames[-1].name}" if frames else ""
        return f"{type(e).__name__}: {str(e)[:150]!r}", where
    return "read", ""


class _Worker:
    """A process that tries the inputs ``first``, ``first + step``, ... of the schedule."""

    def __init__(self, campaign: Campaign, first: int, step: int) -> None:
        self.campaign, self.next, self.step = campaign, first, step
        self.slot = mmap.mmap(-1, _SLOT.size)
        self.pid = 0
        self.log = campaign.scratch / f"stderr{first}"
        self.seen, self.since, self.work = -1, 0.0, 0.0

    def start(self) -> None:
        read, write = os.pipe()
        self.slot[: _SLOT.size] = _SLOT.pack(self.next, *self._counts())
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:  # never comes back from here: all around it belongs to the parent
            try:
                os.close(read)
                self._work(write)
            except BaseException:
                traceback.print_exc()
            os._exit(3)
        os.close(write)
        self.pipe = open(read, encoding="utf-8")  # noqa: SIM115 - closed when the process has ended
        self.seen = -1

    def _counts(self) -> tuple[int, int]:
        return _SLOT.unpack(self.slot[: _SLOT.size])[1:]

    def _work(self, write: int) -> None:
        """The life of the process."""
        campaign = self.campaign
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 2)
        if faulthandler.is_enabled():
            faulthandler.enable(log)  # not on the parent's own
        quiet()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if not sanitized():
            now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (now + BYTES + (BYTES >> 2), resource.RLIM_INFINITY))
        path = campaign.scratch / f"input{self.next}"
        number, read, refused = _SLOT.unpack(self.slot[: _SLOT.size])
        while number < campaign.last:
            self.slot[: _SLOT.size] = _SLOT.pack(number, read, refused)
            kind, own = campaign.at(number)
            fault, where = try_input(kind, kind.input(campaign.seed, own, campaign.scratch), path)
            used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
            if used > BYTES:
                fault, where = f"memory: {used >> 20} MB", ""
            read, refused = read + (fault == "read"), refused + (fault == "refused")
            if fault not in ("read", "refused"):
                os.write(write, (json.dumps([number, fault, where]) + "\n").encode())
            number += self.step
            if used > BYTES:
                break  # the most that it ever had is all a process knows
        self.slot[: _SLOT.size] = _SLOT.pack(number, read, refused)
        os._exit(0)

    def watch(self) -> Finding | None:
        """Kills the process if it works too long at an input, or has too much memory."""
        number = _SLOT.unpack(self.slot[: _SLOT.size])[0]
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except OSError:
            return None
        work = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        if number != self.seen:
            self.seen, self.since, self.work = number, time.monotonic(), work
            return None
        late = work - self.work > SECONDS or time.monotonic() - self.since > _PATIENCE * SECONDS
        large = pages * resource.getpagesize() > self.campaign.own_memory + 2 * BYTES
        if not late and not large:
            return None
        os.kill(self.pid, signal.SIGKILL)
        kind, own = self.campaign.at(number)
        return Finding(kind.name, own, f"time: more than {SECONDS:g} s" if late else "memory: killed", "")


class Campaign:
    """Tries inputs of the kinds on several processes.

    Parameters
    ----------
    kinds : sequence of Kind
    seed : int
        Input ``number`` of a kind is the same for the same seed.
    inputs : int
        How many, of all kinds together.
    workers : int
    folder : Path
        Where inputs that are findings are kept.
    seconds : float
        After so long no more inputs are begun.
    """

    def __init__(
        self,
        kinds: Sequence[Kind],
        seed: int,
        inputs: int,
        workers: int,
        folder: Path,
        seconds: float = 1e9,
        first: int = 0,
    ) -> None:
        self.round = schedule(kinds)
        self.kinds, self.seed, self.first, self.last, self.workers, self.folder = (
            kinds,
            seed,
            first,
            first + inputs,
            workers,
            folder,
        )
        self.seconds = seconds
        self.known: Counter[tuple[str, str, str]] = Counter()

    def at(self, number: int) -> tuple[Kind, int]:
        """Kind and number within the kind of a place in the schedule."""
        kind, k = self.round[number % len(self.round)]
        return kind, number // len(self.round) * kind.share + k

    def run(self) -> Report:
        """Runs to the end; prints findings as they come."""
        report = Report()
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryDirectory(dir=base) as scratch:
            self.scratch = Path(scratch)
            self._make_seeds()
            self.own_memory = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
            running = [_Worker(self, self.first + k, self.workers) for k in range(self.workers)]
            for worker in running:
                worker.start()
            end, shown = time.monotonic() + self.seconds, time.monotonic()
            done: list[_Worker] = []
            while running:
                select.select([w.pipe for w in running], [], [], 0.2)
                for worker in list(running):
                    if self._attend(worker, report, time.monotonic() > end):
                        running.remove(worker)
                        done.append(worker)
                if time.monotonic() - shown > 60:
                    shown = time.monotonic()
                    at = [_SLOT.unpack(w.slot[: _SLOT.size]) for w in [*running, *done]]
                    print(f"{min(a[0] for a in at)} of {self.last}: {len(report.findings)} findings", flush=True)
            for worker in done:
                _, read, refused = _SLOT.unpack(worker.slot[: _SLOT.size])
                report.read += read
                report.refused += refused
            report.inputs = report.read + report.refused + len(report.findings)
        return report

    def _make_seeds(self) -> None:
        """In a process of its own: those forked later would wait forever for torch's threads, had this one any."""
        missing, file = [kind for kind in self.kinds if not kind.good], self.scratch / "seeds"
        pid = os.fork()
        if pid == 0:
            try:
                file.write_bytes(pickle.dumps([kind.seeds(self.scratch) for kind in missing]))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(3)
        if os.waitpid(pid, 0)[1] != 0:
            raise RuntimeError("the good files of a kind could not be made")
        for kind, seeds in zip(missing, pickle.loads(file.read_bytes()), strict=True):
            kind.good = seeds
            if kind.name in ("neural", "checkpoint"):
                import torch  # noqa: F401 - takes seconds, which would be the first input's

    def _attend(self, worker: _Worker, report: Report, over: bool) -> bool:
        """Looks after a process; whether it has done its share."""
        killed = worker.watch()
        if over and killed is None:
            with contextlib.suppress(OSError):
                os.kill(worker.pid, signal.SIGTERM)
        pid, status = os.waitpid(worker.pid, 0 if killed or over else os.WNOHANG)
        if pid == 0:
            return False
        for line in worker.pipe:
            number, fault, where = json.loads(line)
            kind, own = self.at(number)
            self._keep(Finding(kind.name, own, fault, where), report)
        worker.pipe.close()
        number = _SLOT.unpack(worker.slot[: _SLOT.size])[0]
        if killed is not None:
            self._keep(killed, report)
        elif status != 0 and not over:
            kind, own = self.at(number)
            self._keep(Finding(kind.name, own, _death(status), _last_words(worker.log)), report)
        worker.next = number + worker.step if status != 0 else number
        if over or worker.next >= self.last:
            return True
        worker.start()
        return False

    def _keep(self, finding: Finding, report: Report) -> None:
        """Shows a finding, and writes its input to a file, unless enough are there of the same fault."""
        report.findings.append(finding)
        signature = (finding.kind, finding.fault.partition(":")[0], finding.where)
        self.known[signature] += 1
        if self.known[signature] > _KEPT:
            return
        print(finding.line(self.seed), flush=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        kind = next(k for k in self.kinds if k.name == finding.kind)
        pid = os.fork()  # making the input may be what does harm
        if pid == 0:
            with contextlib.suppress(BaseException):
                data = kind.input(self.seed, finding.number, self.scratch)
                (self.folder / f"{finding.kind}-{self.seed}-{finding.number}").write_bytes(data)
            os._exit(0)
        os.waitpid(pid, 0)
        with (self.folder / "findings.txt").open("a", encoding="utf-8") as file:
            file.write(finding.line(self.seed) + "\n")


def _death(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"died: {signal.Signals(os.WTERMSIG(status)).name}"
    return f"died: exit code {os.waitstatus_to_exitcode(status)}"


def _last_words(log: Path) -> str:
    """What a sanitizer said: the line of its error, and the first frame that is ours."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    said = [x for x in lines if "ERROR" in x or "runtime error" in x][:1] or lines[-1:]
    ours = [x.strip() for x in lines if "src/core" in x and x.strip().startswith("#")][:1]
    return " ".join([*said, *ours])[:300]


def summary(report: Report, seconds: float) -> str:
    """The last lines of a campaign."""
    faults = Counter((f.kind, f.fault.partition(":")[0], f.where) for f in report.findings)
    lines = [f"{n:6d} x {' '.join(key)}" for key, n in faults.most_common()]
    counts = f"{report.read} read, {report.refused} refused, {len(report.findings)} findings"
    lines.append(f"{report.inputs} inputs in {seconds:.0f} s: {counts}")
    return "\n".join(lines)
