"""What a statement that comes again does not do again, whatever it is, and what it never lets others do."""

from __future__ import annotations

import contextlib
import random
import sys
from collections import Counter
from types import FrameType

import pytest
from rtolap.base.ids import bound, new_id
from rtolap.query.statement_service import QueryService
from rtolap.query.statements.classify import classify, plain

from tests.support.query.query_world import QueryWorld

FUNCTIONS = ("COUNT(*)", "SUM(delay)", "MIN(delay)", "MAX(delay)", "AVG(delay)")
CONDITIONS = ("", " WHERE origin <> 'none'", " WHERE carrier IN ('AA', 'UA', 'DL')")
DIMENSIONS = ("origin", "carrier")
# What is found once for a text and its read; and what lets another thread run first, wherever it is called.
ONCE = {"shortened", "physical_schema", "_kind", "_plain"}
LETS_GO = {"urandom", "getrandom", "sleep", "fsync", "open", "stat", "read", "write"}


def statement(seed: int) -> str:
    dice = random.Random(seed)
    keys = dice.sample(DIMENSIONS, dice.randrange(3))
    values = dice.sample(FUNCTIONS, dice.randrange(1, 4))
    grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join([*keys, *values])} FROM flights{dice.choice(CONDITIONS)}{grouped}"


def called(service: QueryService, sql: str) -> tuple[Counter[str], Counter[str]]:
    """Return the functions of Python, and those of C, that this thread calls for a statement, as a door
    does."""
    of_python: Counter[str] = Counter()
    of_c: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            of_python[frame.f_code.co_name] += 1
        elif event == "c_call":
            of_c[str(getattr(argument, "__name__", argument))] += 1

    sys.setprofile(note)
    try:
        with bound(statement=new_id()):
            text = plain(sql)
            classify(text, None)
            service.execute(text).table()
    finally:
        sys.setprofile(None)
    return of_python, of_c


@pytest.mark.parametrize("seed", range(12))
def test_a_statement_that_comes_again_is_not_looked_at_again(seed: int, world: QueryWorld) -> None:
    sql = f"{statement(seed)} -- {seed}"  # a text that is known nowhere yet
    with contextlib.closing(world.service()) as service:
        first, _ = called(service, sql)
        again, of_c = called(service, sql)
    assert first.keys() >= ONCE, "else the names have changed"
    assert not ONCE & again.keys()
    assert not LETS_GO & of_c.keys()
