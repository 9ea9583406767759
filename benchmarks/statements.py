"""The cost of a small statement, one client and sixteen at a time: processor time of service and workers.

    python -m benchmarks.statements [--statements 400] [--clients 16] [--in-process] [--json]

Over a small world in memory whose receivers' answers are remembered, so that what is measured is the query
service: rewriting, planning, merging, the engine, and the way there and back. `--in-process`: the engine runs
in the service's process, which no service does; the difference is what its isolation costs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rtolap.query.statement_service import QueryLimits, QueryService

from tests.support.cubes.flights import flights_world
from tests.support.query.query_world import QueryWorld
from tests.support.query.workers import worker_pids

STATEMENTS = {
    "no table": "select 1 as x",
    "a cube": "select carrier, count(*) n, sum(price) s from flights group by carrier order by n desc",
    "constants": "select count(*) n from flights where day_start >= date_sub('2013-01-10', interval 3 day)",
}
_TICKS = os.sysconf("SC_CLK_TCK")


def remember_answers(world: QueryWorld) -> None:
    """Remember the answers of its receivers, which compute them slowly."""
    ask, known = world.ask, dict[str, Any]()

    def remembered(receiver_id: str, address: str, query: Any, on_start: Any) -> Any:
        key = f"{receiver_id} {query}"
        if key not in known:
            known[key] = ask(receiver_id, address, query, on_start)
        return known[key]

    world.ask = remembered  # type: ignore[method-assign]


def processor_s(service: QueryService, in_process: bool) -> float:
    spent = time.process_time()
    for pid in () if in_process else worker_pids(service):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        spent += (int(fields[11]) + int(fields[12])) / _TICKS
    return spent


def measure(service: QueryService, sql: str, count: int, clients: int, in_process: bool) -> dict[str, float]:
    times_ms: list[float] = []

    def ask(number: int) -> None:
        began_s = time.perf_counter()
        service.execute(sql).table()
        times_ms.append((time.perf_counter() - began_s) * 1000)

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(ask, range(4 * clients)))  # as many workers as it takes, and what they remember
        times_ms.clear()
        spent_s, began_s = processor_s(service, in_process), time.perf_counter()
        list(pool.map(ask, range(count)))
        took_s = time.perf_counter() - began_s
        spent_s = processor_s(service, in_process) - spent_s
    return {
        "ms_median": round(statistics.median(times_ms), 2),
        "ms_p99": round(statistics.quantiles(times_ms, n=100)[98], 2),
        "cpu_ms": round(spent_s / count * 1000, 2),
        "per_s": round(count / took_s),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--statements", type=int, default=400)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--in-process", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    world = flights_world(7, 800)
    remember_answers(world)
    limits = QueryLimits(queries_max=options.clients, queries_per_user_max=options.clients, queue_wait_s=60)
    service = world.service(limits, in_workers=not options.in_process)
    figures_by_statement = {
        name: {
            clients: measure(service, sql, options.statements, clients, options.in_process)
            for clients in (1, options.clients)
        }
        for name, sql in STATEMENTS.items()
    }
    service.close()
    world.close()
    if options.json:
        print(json.dumps(figures_by_statement))
        return
    for name, by_clients in figures_by_statement.items():
        for clients, figures in by_clients.items():
            line = ", ".join(f"{what} {value}" for what, value in figures.items())
            print(f"{name}, {clients} at a time: {line}")


if __name__ == "__main__":
    main()
