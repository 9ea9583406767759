"""Answers of receivers and storage nodes by Flight and as Arrow's stream over the guarded HTTP port.

    python -m benchmarks.answer_transport [--rounds 5] [--seconds 1] [--megabytes 128] [--rows 6] [--json]

    small        answers of `--rows` rows, one client; and eight at once, which share a client as the threads
                 of the query service do
    large        answers of `--megabytes` in one batch, as a receiver gives them; one client, three at once
    stream       so many megabytes in batches, made while they are sent, as a storage node gives them

One process answers, this one asks. It asks by `flight`, by `httpx` (of which the product's HTTP clients are
made) and by `http.client` (the least that Python can do), in turns. Each measurement takes `--seconds`. All
ways are first seen to give the same tables.

Figures are medians of the rounds, with the least and the largest beside them. Processor time is that of one
answer. `ratio` is the median of the way's figure over Flight's of the same round. Both processes share the
machine with whatever else runs, so processor time and ratios say more than the clock.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.answer_transport.clients import Answers
from benchmarks.answer_transport.servers import (
    HELD,
    LARGE,
    SMALL,
    WHOLE_TABLET,
    clients_of,
    query_of,
    serve,
    server_process,
    tables,
)
from benchmarks.command_line import new_parser

CLIENTS, LARGE_CLIENTS = 8, 3
FIGURES = ("p50_ms", "p99_ms", "answers_per_s", "mib_per_s", "client_cpu_ms", "server_cpu_ms")
RATIOS = ("p50_ms", "mib_per_s", "client_cpu_ms", "server_cpu_ms")
Figures = dict[str, float]


@dataclass(frozen=True)
class Case:
    """Attributes:
    clients: threads that ask at the same time
    ask: gets one answer; returns its bytes
    """

    name: str
    clients: int
    ask: Callable[[Answers], int]


def _ask_small(answers: Answers) -> int:
    return int(answers.partials(query_of(SMALL))[0].nbytes)


def _ask_large(answers: Answers) -> int:
    return int(answers.partials(query_of(LARGE))[0].nbytes)


def _ask_stream(answers: Answers) -> int:
    return sum(batch.nbytes for batch in answers.copy(WHOLE_TABLET))


CASES = (
    Case("small", 1, _ask_small),
    Case("small", CLIENTS, _ask_small),
    Case("large", 1, _ask_large),
    Case("large", LARGE_CLIENTS, _ask_large),
    Case("stream", 1, _ask_stream),
)


def check_equal(clients: Mapping[str, Answers], answers: Mapping[str, pa.Table]) -> None:
    """Raise SystemExit where a way does not give the tables of the server as they are."""
    for way, client in clients.items():
        for cube, table in answers.items():
            given, held = client.partials(query_of(cube))
            if held != HELD or not given.equals(table.replace_schema_metadata(None), check_metadata=True):
                raise SystemExit(f"{way} gives another answer for {cube!r} than the server has")
        copied = pa.Table.from_batches(list(client.copy(WHOLE_TABLET)))
        if not copied.equals(answers[LARGE].replace_schema_metadata(None), check_metadata=True):
            raise SystemExit(f"{way} gives another stream than the server has")


def processor_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measure(case: Case, client: Answers, server: psutil.Process, seconds: float) -> Figures:
    """Ask until the time is over. Every thread gets one answer at least; a thread's error is raised."""
    until_s = time.perf_counter() + seconds

    def ask(number: int) -> list[tuple[float, int]]:
        """Return the seconds and the bytes of each answer."""
        answers: list[tuple[float, int]] = []
        while not answers or time.perf_counter() < until_s:
            asked_s = time.perf_counter()
            size = case.ask(client)
            answers.append((time.perf_counter() - asked_s, size))
        return answers

    server_s, own_s, began_s = processor_s(server), time.process_time(), time.perf_counter()
    with ThreadPoolExecutor(case.clients) as pool:
        answers = [each for one in pool.map(ask, range(case.clients)) for each in one]
    took_s, sizes = [took for took, _ in answers], [size for _, size in answers]
    elapsed_s = time.perf_counter() - began_s
    own_s, server_s = time.process_time() - own_s, processor_s(server) - server_s
    p50_s, p99_s = np.percentile(took_s, (50, 99))
    return {
        "p50_ms": float(p50_s) * 1000,
        "p99_ms": float(p99_s) * 1000,
        "answers_per_s": len(took_s) / elapsed_s,
        "mib_per_s": sum(sizes) / elapsed_s / (1 << 20),
        "client_cpu_ms": own_s / len(took_s) * 1000,
        "server_cpu_ms": server_s / len(took_s) * 1000,
    }


def measured_rounds(
    cases: Sequence[Case], rounds: int, seconds: float, megabytes: int, small_rows: int
) -> list[dict[str, dict[str, Figures]]]:
    """Return, a round each, case → way → figures."""
    found: list[dict[str, dict[str, Figures]]] = []
    with server_process(megabytes, small_rows) as (server, ports), clients_of(ports) as clients:
        check_equal(clients, tables(megabytes, small_rows))
        ways = list(clients)
        for number in range(rounds):
            turn = [*ways[number % len(ways) :], *ways[: number % len(ways)]]
            found.append(
                {
                    f"{case.name}, {case.clients} at once": {
                        way: measure(case, clients[way], server, seconds) for way in turn
                    }
                    for case in cases
                }
            )
    return found


def summary(rounds: Sequence[dict[str, dict[str, Figures]]]) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Return case → way → figure → [median, least, largest], and the median `ratio_` to Flight's [alone]."""
    result: dict[str, dict[str, dict[str, list[float]]]] = {}
    for case, by_way in rounds[0].items():
        for way in by_way:
            mine = [each[case][way] for each in rounds]
            figures = {
                name: [round(pick(one[name] for one in mine), 3) for pick in (statistics.median, min, max)]
                for name in FIGURES
            }
            for name in RATIOS:
                over = [
                    one[name] / each[case]["flight"][name]
                    for one, each in zip(mine, rounds, strict=True)
                    if each[case]["flight"][name]
                ]
                figures[f"ratio_{name}"] = [round(statistics.median(over), 3)] if over else []
            result.setdefault(case, {})[way] = figures
    return result


def report(result: dict[str, dict[str, dict[str, list[float]]]]) -> None:
    for case, by_way in result.items():
        print(case)
        for way, figures in by_way.items():
            print(f"  {way}")
            for name in FIGURES:
                median, least, largest = figures[name]
                ratio = "".join(f"   ratio {each:.2f}" for each in figures.get(f"ratio_{name}", ()))
                print(f"    {name:15} {median:10.2f}   ({least:.2f} to {largest:.2f}){ratio}")


def main() -> None:
    parser = new_parser(__doc__, worker=("MEGABYTES", "ROWS"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one measurement of a round")
    parser.add_argument("--megabytes", type=int, default=128, help="of a large answer")
    parser.add_argument("--rows", type=int, default=6, help="of a small answer")
    arguments = parser.parse_args()
    if arguments.worker:
        serve(*map(int, arguments.worker))
        return
    rounds = measured_rounds(CASES, arguments.rounds, arguments.seconds, arguments.megabytes, arguments.rows)
    result = summary(rounds)
    report(result)
    if arguments.json:
        print(json.dumps({"benchmark": "answer_transport", "cases": result}))


if __name__ == "__main__":
    main()
