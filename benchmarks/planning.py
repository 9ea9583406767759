"""Reading and planning a statement with long lists: milliseconds of processor time, in this process.

    python -m benchmarks.planning [--values 10000] [--rounds 5] [--json]

Each kind of list is planned in turns: as it is, and with a comment before its first value, which leaves its
values nodes of the tree; texts are bound to question marks too, once as they are and once with parentheses
about the first, which leaves them parameters. Shown are the least times of all rounds.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from contextlib import closing

from rtolap.base.clock import SystemClock
from rtolap.base.errors import QueryError
from rtolap.query.approval.bound_lists import BoundText, written_out
from rtolap.query.approval.bounds import STATEMENT_BYTES_MAX
from rtolap.query.cancel import Cancellation, Timeouts
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.engine import EmbeddedEngine
from rtolap.query.engine_session import EngineSession
from rtolap.query.workers.plans import plan_of

from tests.support.cubes.flights import flights_schema

SQL = "select carrier, count(*) from flights where {column} in ({values}) group by carrier"


def lists(count: int) -> dict[str, tuple[str, list[str]]]:
    """Return the kind of a list → its column and its values."""
    dice = random.Random(1)
    numbers = [dice.randrange(10**7) for _ in range(count)]
    return {
        "texts": ("origin", [f"'v{number:07d}'" for number in numbers]),
        "whole numbers": ("gate", [str(number) for number in numbers]),
        "negative numbers": ("gate", [str(-number) for number in numbers]),
        "decimals": ("fare_class", [f"{number // 10**4}.{number % 100:02d}" for number in numbers]),
        "dates": ("flown_on", [f"'2013-01-{1 + number % 28:02d}'" for number in numbers]),
        "texts beside numbers": ("gate", [f"'{number}'" for number in numbers]),
    }


def planned_ms(
    session: EngineSession, sql: str, catalogue: QueryCatalogue, values: Sequence[object] = ()
) -> float | None:
    """Return the processor time; None if the statement is refused."""
    began_s = time.process_time()
    try:
        bound = written_out(sql, values, STATEMENT_BYTES_MAX) or BoundText(sql, tuple(values))
        statement = session.read_statement(bound.text, None)
        planned = session.plan(statement, statement.bind(bound.values), catalogue)
    except QueryError:
        return None
    plan_of(planned.rewritten)
    return (time.process_time() - began_s) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--values", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float | None]] = {}
    catalogue = QueryCatalogue(cubes={"flights": flights_schema()})
    with (
        closing(EmbeddedEngine(memory_limit_bytes=1 << 28, threads=1)) as engine,
        closing(Timeouts(SystemClock())) as timeouts,
        closing(Cancellation(timeouts, 600_000)) as ending,
        closing(engine.session(ending)) as session,
    ):
        marks = ", ".join("?" * (arguments.values - 1))
        bound: list[object] = [f"v{number:07d}" for number in range(arguments.values)]
        of_bound = figures["texts bound to question marks"] = {}
        for how, first in {"one node": "?", "parameters": "(?)"}.items():
            sql = SQL.format(column="origin", values=f"{first}, {marks}")
            took = [planned_ms(session, sql, catalogue, bound) for _ in range(arguments.rounds)]
            of_bound[how] = _least(took)
        for kind, (column, values) in lists(arguments.values).items():
            texts = {
                "one node": SQL.format(column=column, values=", ".join(values)),
                "a node each": SQL.format(column=column, values="/* */ " + ", ".join(values)),
            }
            figures[kind] = {
                how: _least([planned_ms(session, sql, catalogue) for _ in range(arguments.rounds)])
                for how, sql in texts.items()
            }
    if arguments.json:
        print(json.dumps(figures))
        return
    for kind, of_kind in figures.items():
        shown = (f"{how} refused" if ms is None else f"{how} {ms:.0f} ms" for how, ms in of_kind.items())
        print(f"{kind}: {', '.join(shown)}")


def _least(took_ms: Sequence[float | None]) -> float | None:
    """Return the least time; None where one of them was refused."""
    each = [ms for ms in took_ms if ms is not None]
    return min(each) if len(each) == len(took_ms) else None


if __name__ == "__main__":
    main()
