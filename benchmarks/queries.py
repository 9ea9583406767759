"""Five group-bys over millions of streamed events, over MySQL: one client's times, and what many get.

    python -m benchmarks.queries [--events 8000000] [--rounds 5] [--clients 16] [--seconds 5] [--no-groups]
                                 [--json]

Real ZooKeeper, Kafka, coordinator, receiver and query service on loopback, and the events of
`benchmarks.freshness --preload`. Before anything is timed, each answer is compared with a plain recount of
the events themselves. Then, in turns: one client asks each statement `--statements` times; DuckDB in this
process, in memory and with two threads, the same over the receiver's roll-up rows; one client and
`--clients` of them, each a process, ask all five for `--seconds`.

The cube declares an aggregation group of all its dimensions, so the receiver keeps small cuboids; with
`--no-groups` it has none. A statement that comes for the first time has a condition of its own on one of the
four dimensions, which nearly all rows pass, so that neither its rewriting nor a result is at hand. `ratio`:
the sum of the five medians over DuckDB's; the first times have one of their own. Clients that are counted by
the second check the number of rows of each answer, and that it is no error, but decode no values: that would
measure them.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pymysql.constants.COMMAND import COM_QUERY
from rtolap.base.addresses import host_port
from rtolap.protocols.receiver.client import ReceiverClients
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery

from benchmarks import events
from benchmarks.command_line import new_parser
from benchmarks.first_answers import declared
from benchmarks.freshness.asking import Asker, answering
from benchmarks.freshness.run import CATCH_UP_S, SETTLE_S, declare
from benchmarks.freshness.stream import PAGES, PARTITIONS, TOPIC, held_values
from benchmarks.process_figures import cpu_s, service_process
from benchmarks.servers import create_topic, fill, kafka, zookeeper
from tests.support.cubes.services import TOKEN, Services, wait_for


@dataclass(frozen=True)
class GroupBy:
    """The statement three times: over the cube, over its roll-up rows and over the events."""

    keys: str
    cube: str
    rolled_up: str
    condition: str = "TRUE"

    def over_cube(self, more: str = "TRUE") -> str:
        terms = [term for term in (self.condition, more) if term != "TRUE"]
        where = f" WHERE {' AND '.join(terms)}" if terms else ""
        return f"SELECT {self.keys}, {self.cube} FROM events_cube{where} GROUP BY {self.keys}"

    def over_rows(self, more: str = "TRUE") -> str:
        return self._plain(self.rolled_up, "rolled_up", more)

    def over_events(self, more: str = "TRUE") -> str:
        return self._plain(self.cube, "events", more)

    def _plain(self, values: str, table: str, more: str) -> str:
        where = f"{self.condition} AND {more}"
        return f"SELECT {self.keys}, {values} FROM {table} WHERE {where} GROUP BY {self.keys}"


STATEMENTS = {
    "country": GroupBy("country", "COUNT(*), SUM(bytes_sent)", "SUM(__rows), SUM(bytes_sent__sum)"),
    "page": GroupBy("page", "COUNT(*), SUM(price)", "SUM(__rows), SUM(price__sum)"),
    "country, device": GroupBy("country, device", "SUM(duration_ms)", "SUM(duration_ms__sum)"),
    "campaign of a device": GroupBy(
        "campaign", "MAX(duration_ms)", "MAX(duration_ms__max)", condition="device = 'tv'"
    ),
    "two countries": GroupBy(
        *("country", "COUNT(*), SUM(duration_ms), MAX(duration_ms)"),
        "SUM(__rows), SUM(duration_ms__sum), MAX(duration_ms__max)",
        condition="country IN ('de', 'fr')",
    ),
}
WARM_UP = 20
DIMENSIONS = ("page", "country", "device", "campaign")
FIRST_STATEMENTS = len(DIMENSIONS)  # of each kind in a round
START_S = 1.0  # until all clients are connected
HEADER_BYTES = 4
OK, EOF, ERROR = 0x00, 0xFE, 0xFF


# -- the events ---------------------------------------------------------------------------------------------


def preload(bootstrap: str, count: int, database: Path) -> None:
    """Send `count` events, and keep them for the recount."""
    with duckdb.connect(str(database), config={"threads": 2}) as connection:
        connection.execute(
            "CREATE TABLE events (country VARCHAR, device VARCHAR, page VARCHAR, campaign VARCHAR, "
            "duration_ms INTEGER, bytes_sent BIGINT, price DECIMAL(10, 2))"
        )
        for values in held_values(count):
            fill(bootstrap, TOPIC, values, partitions=PARTITIONS, create=False)
            block = database.with_suffix(".ndjson")
            block.write_bytes(b"\n".join(values))
            connection.execute(
                "INSERT INTO events SELECT country, device, page, campaign, duration_ms, bytes_sent, price "
                f"FROM read_json('{block}', format = 'newline_delimited', columns = {{country: 'VARCHAR', "
                "device: 'VARCHAR', page: 'VARCHAR', campaign: 'VARCHAR', duration_ms: 'INTEGER', "
                "bytes_sent: 'BIGINT', price: 'DECIMAL(10, 2)'})"
            )
            block.unlink()


def rolled_up(services: Services) -> pa.Table:
    """Return what the receiver holds, a row for each combination of all dimensions in each hour."""
    schema = events.schema(TOPIC)
    query = PartialQuery(
        cube=schema.cube.name,
        dimensions=schema.cube.all_dimensions,
        partials=tuple(each.name for each in schema.partials),
        snapshot=HistorySnapshot(),
    )
    (receiver,) = services.coordinator.receivers()
    with closing(ReceiverClients(TOKEN)) as clients:
        return clients.at(host_port(receiver.host, receiver.port)).query(query)[0]


# -- clients that are counted by the second -----------------------------------------------------------------


class Wire:
    """A connection that reads the packets of answers, and decodes no values."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, sql: str) -> int:
        """Return the number of rows of the answer; -1 for an error."""
        self._connection._execute_command(COM_QUERY, sql)
        packets = self._packets()
        first = next(packets)
        if first[0] == ERROR:
            return -1
        for _ in range(first[0]):
            next(packets)
        next(packets)  # the end of the columns' definitions
        count = 0
        for packet in packets:
            if packet[0] == ERROR:
                return -1
            if packet[0] == EOF and len(packet) < 9:
                break
            count += 1
        self._connection._result = None
        return count

    def _packets(self) -> Iterator[bytes]:
        read = self._connection._rfile.read
        while True:
            header = read(HEADER_BYTES)
            yield read(int.from_bytes(header[:3], "little"))


@dataclass
class Counted:
    """Answers to the clients of a round."""

    statements: int = 0
    errors: int = 0
    times_ms: list[float] = field(default_factory=list)


def ask_for(
    connect: Callable[[], Any], wanted: dict[str, int], number: int, seconds: float, to: Pipe
) -> None:
    """Run one client's process, which reports its answers, the wrong ones among them, and their times."""
    with closing(connect()) as connection:
        wire, counted = Wire(connection), Counted()
        to.send("connected")
        to.recv()
        texts = itertools.islice(itertools.cycle(wanted), number, None)
        until_s = time.monotonic() + seconds
        while (began_s := time.monotonic()) < until_s:
            text = next(texts)
            counted.errors += wire.rows(text) != wanted[text]
            counted.statements += 1
            counted.times_ms.append((time.monotonic() - began_s) * 1000)
    to.send(counted)


def rate(
    connect: Callable[[], Any], wanted: dict[str, int], clients: int, seconds: float
) -> tuple[float, Counted]:
    """Return the statements a second of so many clients at once, and their answers."""
    context = multiprocessing.get_context("fork")
    pipes, processes = [], []
    for number in range(clients):
        here, there = context.Pipe()
        process = context.Process(target=ask_for, args=(connect, wanted, number, seconds, there))
        process.start()
        there.close()
        pipes.append(here)
        processes.append(process)
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    done: list[Counted] = [pipe.recv() for pipe in pipes]
    for process in processes:
        process.join()
    together = Counted(
        sum(each.statements for each in done),
        sum(each.errors for each in done),
        [took for each in done for took in each.times_ms],
    )
    return together.statements / seconds, together


# -- the run ------------------------------------------------------------------------------------------------


def timed_ms(call: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    call()
    return (time.perf_counter() - began_s) * 1000


def same_rows(ours: Sequence[tuple[Any, ...]], theirs: Sequence[tuple[Any, ...]]) -> bool:
    """Return whether the rows are the same. Whole sums are decimals here and integers there."""
    return sorted(tuple(map(str, row)) for row in ours) == sorted(tuple(map(str, row)) for row in theirs)


class Bench:
    """The statements of one run, on both sides."""

    def __init__(self, cursor: Any, rows: Any, recount: Any) -> None:
        self._cursor = cursor
        self._rows = rows
        self._recount = recount
        self._fresh = itertools.count()

    def check(self, more: str = "TRUE") -> dict[str, int]:
        """Return the number of rows of each statement. Raises SystemExit for an answer that is not the
        recount."""
        counts = {}
        for name, statement in STATEMENTS.items():
            answer = self.ours(statement.over_cube(more))
            events_say = self._recount.execute(statement.over_events(more)).fetchall()
            rows_say = self.theirs(statement.over_rows(more))
            if not same_rows(answer, events_say) or not same_rows(answer, rows_say):
                raise SystemExit(f"{name}: the answer {answer[:3]} is not the recount {events_say[:3]}")
            counts[statement.over_cube()] = len(answer)
        return counts

    def ours(self, sql: str) -> Sequence[tuple[Any, ...]]:
        self._cursor.execute(sql)
        return [tuple(row) for row in self._cursor.fetchall()]

    def theirs(self, sql: str) -> Sequence[tuple[Any, ...]]:
        return list(self._rows.execute(sql).fetchall())

    def never_asked(self) -> str:
        """Return a condition that no statement had yet, and that nearly all rows pass: of each dimension in
        turn."""
        return condition_of(next(self._fresh))


def condition_of(number: int) -> str:
    """Return the condition that belongs to the number: on each dimension in turn. Nearly all rows pass."""
    some = f"'/section-{number % PAGES:04d}/i.html', " if number % len(DIMENSIONS) == 0 else ""
    return f"{DIMENSIONS[number % len(DIMENSIONS)]} NOT IN ({some}'statement {number}')"


def measure(services: Services, bench: Bench, wanted: dict[str, int], arguments: argparse.Namespace) -> Any:
    times: dict[tuple[str, str, str], list[float]] = {}
    rates: dict[int, list[float]] = {1: [], arguments.clients: []}
    waits: dict[int, list[float]] = {1: [], arguments.clients: []}
    used: dict[tuple[str, int], list[float]] = {}
    errors = 0
    watched = {word: service_process(word) for word in ("receiver", "query")}
    for _ in range(arguments.rounds):
        for side, ask, written in (
            ("ours", bench.ours, GroupBy.over_cube),
            ("duckdb", bench.theirs, GroupBy.over_rows),
        ):
            for name, statement in STATEMENTS.items():
                text = written(statement)
                for _ in range(WARM_UP):
                    ask(text)
                took = [timed_ms(partial(ask, text)) for _ in range(arguments.statements)]
                times.setdefault((side, "repeated", name), []).extend(took)
                firsts = [written(statement, bench.never_asked()) for _ in range(FIRST_STATEMENTS)]
                took = [timed_ms(partial(ask, first)) for first in firsts]
                times.setdefault((side, "first", name), []).extend(took)
        for clients in rates:
            before = {word: cpu_s(process) for word, process in watched.items()}
            per_s, counted = rate(services.mysql, wanted, clients, arguments.seconds)
            for word, process in watched.items():
                took_ms = (cpu_s(process) - before[word]) * 1000
                used.setdefault((word, clients), []).append(took_ms / counted.statements)
            rates[clients].append(per_s)
            waits[clients] += counted.times_ms
            errors += counted.errors
    figures: dict[str, Any] = {}
    for kind in ("repeated", "first"):
        medians = {}
        for side in ("ours", "duckdb"):
            of_side = {name: times[side, kind, name] for name in STATEMENTS}
            together = [took for each in of_side.values() for took in each]
            medians[side] = sum(statistics.median(each) for each in of_side.values())
            figures[f"{kind} {side}"] = {
                "all": percentiles(together),
                **{name: percentiles(each) for name, each in of_side.items()},
            }
        figures[f"{kind} ratio"] = round(medians["ours"] / medians["duckdb"], 3)
    medians_per_s = {clients: statistics.median(each) for clients, each in rates.items()}
    return {
        "ratio": figures["repeated ratio"],
        **figures,
        "per_s": {str(clients): round(per_s) for clients, per_s in medians_per_s.items()},
        "per_s_ratio": round(medians_per_s[arguments.clients] / medians_per_s[1], 2),
        "wait_ms": {str(clients): percentiles(each) for clients, each in waits.items()},
        "cpu_ms": {
            f"{word} {clients}": round(statistics.median(each), 3) for (word, clients), each in used.items()
        },
        "errors": errors,
    }


def percentiles(times_ms: Sequence[float]) -> list[float]:
    """Return p50 and p95."""
    return [round(float(each), 2) for each in np.percentile(times_ms, (50, 95))]


def run(bootstrap: str, ensemble: str, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    count, database = arguments.events // PARTITIONS * PARTITIONS, folder / "recount.duckdb"
    create_topic(bootstrap, TOPIC, PARTITIONS)
    services = Services(folder, zookeeper=ensemble, root="/bench", kafka=bootstrap, coordinators=1)
    try:
        services.start_coordinators()
        services.start_receiver("r0", "rs")
        services.start_query()
        schema = events.schema(TOPIC) if arguments.no_groups else declared(TOPIC)
        asker = Asker(services, declare(services, schema))
        wait_for("the cube answers", lambda: answering(asker))
        command = [sys.executable, "-m", "benchmarks.queries", "--worker", bootstrap, str(database)]
        subprocess.run([*command, "--events", str(count)], check=True)
        wait_for("all was read", lambda: sum(asker.ask()) == count, CATCH_UP_S)
        time.sleep(arguments.settle_s)  # fragments are merged, and get their cuboids
        with (
            closing(services.mysql()) as connection,
            connection.cursor() as cursor,
            duckdb.connect(config={"threads": 2}) as rows,
            duckdb.connect(str(database), read_only=True) as recount,
        ):
            table = rolled_up(services)
            rows.register("held", table)
            rows.execute("CREATE TABLE rolled_up AS SELECT * FROM held")
            rows.unregister("held")
            bench = Bench(cursor, rows, recount)
            bench.check(bench.never_asked())
            wanted = bench.check()
            figures = measure(services, bench, wanted, arguments)
            bench.check()
            return {"benchmark": "queries", "events": count, "roll_up_rows": table.num_rows, **figures}
    finally:
        services.close()


def report(figures: dict[str, Any], clients: int) -> None:
    print(f"{figures['events']} events in {figures['roll_up_rows']} roll-up rows; p50 and p95 in ms")
    for kind in ("repeated", "first"):
        for name in ("all", *STATEMENTS):
            ours, theirs = figures[f"{kind} ours"][name], figures[f"{kind} duckdb"][name]
            print(f"  {kind:8} {name:22} {ours[0]:7.2f} {ours[1]:7.2f}", end="   DuckDB")
            print(f" {theirs[0]:7.2f} {theirs[1]:7.2f}")
        print(f"  {kind:8} ratio of the medians' sums {figures[f'{kind} ratio']}")
    for many in ("1", str(clients)):
        per_s, wait_ms = figures["per_s"][many], figures["wait_ms"][many]
        print(f"  {many:>3} clients: {per_s} statements a second, {wait_ms} ms")
    print(f"  ratio {figures['per_s_ratio']}, errors {figures['errors']}; processor ms {figures['cpu_ms']}")


def main() -> None:
    parser = new_parser(__doc__, worker=("BOOTSTRAP", "FILE"))
    parser.add_argument("--events", type=int, default=8_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--statements", type=int, default=50, help="of each kind, in a round")
    parser.add_argument("--settle-s", type=float, default=SETTLE_S, help="between reading all and measuring")
    parser.add_argument("--no-groups", action="store_true", help="the cube declares no aggregation groups")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0, help="of one client, and of all, in a round")
    arguments = parser.parse_args()
    if arguments.worker:
        preload(arguments.worker[0], arguments.events, Path(arguments.worker[1]))
        return
    with kafka() as bootstrap, zookeeper() as ensemble, tempfile.TemporaryDirectory() as folder:
        figures = run(bootstrap, ensemble, Path(folder), arguments)
    report(figures, arguments.clients)
    if arguments.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
