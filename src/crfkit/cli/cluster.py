"""``--dask``: a cluster for training and labelling."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from crfkit.base.messages import counted
from crfkit.cli.files import say
from crfkit.cli.options import OptionError

#: Or Dask gives up a worker that is lost twice, or that is slow to come back.
PATIENT = {"distributed.deploy.lost-worker-timeout": "1h"}
DaskOption = Annotated[
    str | None,
    typer.Option(
        "--dask", metavar="ADDRESS", help="Dask scheduler whose workers see the data; local:N starts N processes here."
    ),
]


@contextmanager
def cluster(address: str | None, quiet: bool) -> Iterator[Any]:
    """A client of the cluster at an address, or of N processes on this machine; None without an address."""
    if address is None:
        yield None
        return
    try:
        import dask
        from distributed import Client, LocalCluster
    except ModuleNotFoundError:
        raise OptionError("--dask needs dask: pip install 'crfkit[dask]'") from None
    found = re.fullmatch(r"local:([1-9]\d*)", address)
    if address.startswith("local") and found is None:
        raise OptionError(f"--dask must be the address of a scheduler, or local:N, got {address!r}")
    if found is not None:
        n = int(found[1])
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        how = {"n_workers": n, "threads_per_worker": max(1, cores // n), "processes": True, "silence_logs": 50}
        with dask.config.set(PATIENT):
            try:
                local = LocalCluster(**how, dashboard_address=":0")
            except (OSError, RuntimeError, TimeoutError) as e:
                raise ConnectionError(f"--dask {address}: the workers did not start: {e}") from e
            with local, Client(local) as client:
                _tell(client, quiet)
                yield client
        return
    try:
        client = Client(address, timeout="10s")
    except (OSError, TimeoutError, ValueError) as e:
        raise OptionError(f"--dask: no scheduler answers at {address}: {e}") from None
    with client:
        _tell(client, quiet)
        yield client


def _tell(client: Any, quiet: bool) -> None:
    if not quiet:
        workers = client.nthreads()
        threads = counted(sum(workers.values()), "thread")
        link = f", dashboard {client.dashboard_link}" if client.dashboard_link else ""
        say(f"Dask: {counted(len(workers), 'worker')}, {threads}{link}")
