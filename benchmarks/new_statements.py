"""Statements that were never asked before: how many a second, and what processor time each takes.

    python -m benchmarks.new_statements [--clients 1 16 64] [--seconds 4] [--rounds 1] [--json]

Three kinds of processes as on a real machine: a receiver that holds the events behind its Flight server, the
query service with its planning workers and its default limits, and the clients, each a process that reads the
packets of answers and decodes no values. The five statements of `benchmarks.queries` get a condition of their
own each time, so that neither the tree, the plan nor an answer is known (`new`); in turns with them, the same
clients ask `--known` such texts again and again (`again`).

`cpu_ms` is the processor time of a statement by process; `workers` are the planning workers and what forks
them. Other work on the machine changes it little, while it changes rates and times a lot. `ratio` is the
processor time of a new statement over that of one that comes again. Every answer's number of rows is compared
with the one that it had when it was asked alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rtolap.query.statement_service import QueryLimits

from benchmarks.queries import STATEMENTS, Counted, Wire, condition_of
from benchmarks.small_queries import connected, endpoints, receiver

KINDS = ("new", "again")
PROCESSES = ("service", "workers", "receiver")
CLIENTS_MAX = 1_000
PLACES = 1_000_000  # numbers of conditions that each client has for itself in a round
QUEUE_WAIT_S = 60.0  # so that no statement is refused where the machine has other work


# -- the processes ------------------------------------------------------------------------------------------


def serve(receiver_port: int) -> None:
    """Say the port of MySQL, and serve until the parent is gone."""
    limits = QueryLimits(queue_wait_s=QUEUE_WAIT_S)
    with tempfile.TemporaryDirectory() as folder, endpoints(receiver_port, Path(folder), limits) as ports:
        print(ports[0], flush=True)
        sys.stdin.read()


@contextmanager
def service(receiver_port: int) -> Iterator[tuple[int, psutil.Process]]:
    """Yield the port of MySQL, and the service's process."""
    command = [sys.executable, "-m", "benchmarks.new_statements", "--serve", str(receiver_port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), psutil.Process(process.pid)
        finally:
            process.stdin.close()


def used_s(serving: psutil.Process, receiving: psutil.Process) -> dict[str, float]:
    """Return the processor time that each kind of process has used, ended workers among them."""
    workers_s = 0.0
    for process in serving.children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:  # its parent has its time
            continue
        workers_s += times.user + times.system + times.children_user + times.children_system
    of_one = {"service": serving.cpu_times(), "receiver": receiving.cpu_times()}
    return {"workers": workers_s, **{name: each.user + each.system for name, each in of_one.items()}}


# -- the clients --------------------------------------------------------------------------------------------


def texts_of(first: int) -> Iterator[tuple[str, str]]:
    """Yield the kinds of statement in turns, each with a text whose condition has a number of its own."""
    for number in itertools.count(first):
        for name, statement in STATEMENTS.items():
            yield name, statement.over_cube(condition_of(number))


def ask(
    port: int, texts: Iterator[tuple[str, str]], rows: dict[str, int], seconds: float, parent: Pipe
) -> None:
    """Run one client's process, which reports its answers, the wrong ones among them, and their times."""
    with closing(connected(port)) as connection:
        wire, counted = Wire(connection), Counted()
        parent.send("connected")
        parent.recv()
        until_s = time.monotonic() + seconds
        while (began_s := time.monotonic()) < until_s:
            name, text = next(texts)
            counted.errors += wire.rows(text) != rows[name]
            counted.statements += 1
            counted.times_ms.append((time.monotonic() - began_s) * 1000)
    parent.send(counted)


class Bench:
    """The rounds of one run.

    Attributes:
        rows: kind of statement → rows of its answer.
        known: the texts that come again.
    """

    def __init__(
        self, port: int, serving: psutil.Process, receiving: psutil.Process, options: argparse.Namespace
    ) -> None:
        self._port, self._serving, self._receiving = port, serving, receiving
        self._seconds = options.seconds
        self._round = itertools.count(1)
        self.known = list(itertools.islice(texts_of(0), options.known))
        with closing(connected(port)) as connection:
            wire = Wire(connection)
            self.rows = {name: wire.rows(statement.over_cube()) for name, statement in STATEMENTS.items()}

    def know(self) -> None:
        """Have the known texts known, which new ones have displaced."""
        with closing(connected(self._port)) as connection:
            wire = Wire(connection)
            for name, text in self.known:
                if wire.rows(text) != self.rows[name]:
                    raise SystemExit(f"{text}: expected {self.rows[name]} rows")

    def round(self, kind: str, clients: int) -> dict[str, Any]:
        """Return the figures of so many clients that ask for some seconds at once."""
        context = multiprocessing.get_context("fork")
        pipes, processes = [], []
        began = next(self._round) * CLIENTS_MAX
        for number in range(clients):
            parent, child = context.Pipe()
            texts = texts_of((began + number) * PLACES)
            if kind == "again":
                texts = itertools.islice(itertools.cycle(self.known), number, None)
            arguments = (self._port, texts, self.rows, self._seconds, child)
            process = context.Process(target=ask, args=arguments)
            process.start()
            child.close()
            pipes.append(parent)
            processes.append(process)
        for pipe in pipes:
            pipe.recv()
        before_s = used_s(self._serving, self._receiving)
        began_s = time.monotonic()
        for pipe in pipes:
            pipe.send("go")
        done: list[Counted] = [pipe.recv() for pipe in pipes]
        took_s = time.monotonic() - began_s  # until the last answer
        after_s = used_s(self._serving, self._receiving)
        for process in processes:
            process.join()
        count = sum(each.statements for each in done)
        p50, p99 = np.percentile([took for each in done for took in each.times_ms], (50, 99))
        cpu_ms = {name: (after_s[name] - before_s[name]) * 1000 / count for name in PROCESSES}
        return {
            "per_s": count / took_s,
            "p50_ms": float(p50),
            "p99_ms": float(p99),
            **{f"{name}_cpu_ms": each for name, each in cpu_ms.items()},
            "cpu_ms": sum(cpu_ms.values()),
            "errors": sum(each.errors for each in done),
        }


# -- the run ------------------------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> dict[str, Any]:
    taken: dict[tuple[int, str], list[dict[str, Any]]] = {}
    with receiver(options.events) as receiver_port, service(receiver_port) as (port, serving):
        receiving = next(
            child for child in psutil.Process().children() if "--receiver" in " ".join(child.cmdline())
        )
        bench = Bench(port, serving, receiving, options)
        bench.round("new", max(options.clients))  # as many workers as it takes
        for _ in range(options.rounds):
            for clients, kind in itertools.product(options.clients, KINDS):
                if kind == "again":
                    bench.know()
                taken.setdefault((clients, kind), []).append(bench.round(kind, clients))
    figures: dict[str, Any] = {}
    for (clients, kind), rounds in taken.items():
        medians = {name: round(statistics.median(each[name] for each in rounds), 2) for name in rounds[0]}
        figures.setdefault(str(clients), {})[kind] = medians
    for of_clients in figures.values():
        of_clients["ratio"] = round(of_clients["new"]["cpu_ms"] / of_clients["again"]["cpu_ms"], 2)
    return {"benchmark": "new_statements", "events": options.events, "by_clients": figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--seconds", type=float, default=4.0, help="of each kind and number, in a round")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--events", type=int, default=60_000)
    parser.add_argument("--known", type=int, default=100, help="texts that are asked again and again")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    figures = run(options)
    if options.json:
        print(json.dumps(figures))
        return
    for clients, by_kind in figures["by_clients"].items():
        for kind in KINDS:
            line = ", ".join(f"{name} {value}" for name, value in by_kind[kind].items())
            print(f"{clients:>3} clients, {kind}: {line}")
        print(f"{clients:>3} clients, processor time, new over again: {by_kind['ratio']}")


if __name__ == "__main__":
    main()
