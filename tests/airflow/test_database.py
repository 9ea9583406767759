"""Airflow's database in SQLite is not locked while several of its components write."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from airflow.utils.orm_event_handlers import setup_event_handlers
from rtolap.airflow.database import SQLITE_ARGUMENTS
from sqlalchemy.exc import OperationalError

from tests.support.seeds import so_many

WRITERS, STEPS = 6, so_many(40)
_TABLE = sa.Table(
    "task", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("tries", sa.Integer)
)


def engine_of(path: Path, arguments: dict[str, Any]) -> sa.Engine:
    """As Airflow makes it, with its own handlers: foreign keys and a write-ahead log."""
    engine = sa.create_engine(f"sqlite:///{path}", connect_args={**arguments, "check_same_thread": False})
    setup_event_handlers(engine)
    return engine


def made(path: Path, arguments: dict[str, Any]) -> sa.Engine:
    engine = engine_of(path, arguments)
    _TABLE.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(_TABLE.insert(), [{"id": number, "tries": 0} for number in range(4)])
    return engine


def raised_by_one(connection: sa.Connection, number: int) -> None:
    """Read in a savepoint, then write what follows from it, as Airflow's backfill does."""
    with connection.begin_nested():
        tries = connection.execute(sa.select(_TABLE.c.tries).where(_TABLE.c.id == number)).scalar_one()
        connection.execute(_TABLE.update().where(_TABLE.c.id == number).values(tries=tries + 1))


def test_a_write_after_a_read_waits_for_another_component_instead_of_being_refused(tmp_path: Path) -> None:
    refused, waits = made(tmp_path / "a.db", {"timeout": 60}), made(tmp_path / "b.db", SQLITE_ARGUMENTS)
    with refused.connect() as first, refused.connect() as second, first.begin_nested():
        first.execute(sa.select(_TABLE.c.tries)).all()
        second.execute(_TABLE.update().values(tries=7))
        second.commit()
        with pytest.raises(OperationalError, match="database is locked"):  # at once: not after 60 s
            first.execute(_TABLE.update().values(tries=1))
        first.rollback()
    with waits.connect() as first, waits.connect() as second, ThreadPoolExecutor(1) as other:
        begun = threading.Event()

        def written() -> None:
            begun.set()
            raised_by_one(second, 0)
            second.commit()

        with first.begin_nested():
            seen = first.execute(sa.select(_TABLE.c.tries).where(_TABLE.c.id == 0)).scalar_one()
            writing = other.submit(written)
            begun.wait()
            first.execute(_TABLE.update().where(_TABLE.c.id == 0).values(tries=seen + 1))
        assert not writing.done()
        first.commit()
        writing.result(60)
        assert second.execute(sa.select(_TABLE.c.tries).where(_TABLE.c.id == 0)).scalar_one() == 2


def test_no_write_of_many_components_is_refused_or_lost(tmp_path: Path) -> None:
    path = tmp_path / "airflow.db"
    made(path, SQLITE_ARGUMENTS).dispose()

    def component(seed: int) -> list[int]:
        drawn, engine = random.Random(seed), engine_of(path, SQLITE_ARGUMENTS)
        numbers = [drawn.randrange(4) for _ in range(STEPS)]
        for number in numbers:
            with engine.connect() as connection:
                if drawn.random() < 0.5:
                    connection.execute(sa.select(_TABLE)).all()  # a reader that then writes
                raised_by_one(connection, number)
                connection.commit()
        engine.dispose()
        return numbers

    with ThreadPoolExecutor(WRITERS) as components:
        written = [number for numbers in components.map(component, range(WRITERS)) for number in numbers]
    with engine_of(path, SQLITE_ARGUMENTS).connect() as connection:
        found = dict(connection.execute(sa.select(_TABLE.c.id, _TABLE.c.tries)).tuples().all())
    assert found == {number: written.count(number) for number in range(4)}


def test_a_reader_waits_for_no_writer(tmp_path: Path) -> None:
    engine = made(tmp_path / "airflow.db", {**SQLITE_ARGUMENTS, "timeout": 0})
    with engine.connect() as writer, engine.connect() as reader:
        writer.execute(_TABLE.update().values(tries=5))
        assert set(reader.execute(sa.select(_TABLE.c.tries)).scalars()) == {0}
        writer.commit()
        assert set(reader.execute(sa.select(_TABLE.c.tries)).scalars()) == {5}
