"""A range of history is replaced by what a batch source says, under the real scheduler."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.airflow_stack import AirflowStack, exports_of
from tests.support.cubes.day_stream import DAY_MS, Answer, DayStream

from .conftest import BUILD, BUILT_S

pytestmark = pytest.mark.integration

DAG_ID = "rtolap_batch_backfill"
SEED = 8


class Export:
    """Files of rows of some days, and their recount."""

    def __init__(self, stream: DayStream, folder: Path, *days: int, rows: int = 200) -> None:
        rng = random.Random(f"{SEED}/{days}")
        self.stream, self.path = stream, folder
        self.rows: list[tuple[int, int, str | None, Decimal | None]] = [
            (
                (day := rng.choice(days)),
                stream.start_ms(day) + rng.randrange(DAY_MS),
                rng.choice(("a", "x", None)),
                rng.choice((None, Decimal(rng.randrange(100_000)) / 100)),
            )
            for _ in range(rows)
        ]
        folder.mkdir(parents=True)
        table = pa.table(
            {
                "happened": pa.array([at_ms for _, at_ms, _, _ in self.rows], pa.timestamp("ms", "UTC")),
                "shop": pa.array([shop for _, _, shop, _ in self.rows], pa.string()),
                "price": pa.array([price for _, _, _, price in self.rows], pa.decimal128(12, 2)),
            }
        )
        pq.write_table(table, folder / "part-0.parquet")

    def source(self, **more: str) -> dict[str, Any]:
        return {"format": "parquet", "path": self.path.as_uri(), "columns": {"at": "happened"}, **more}

    def recount(self) -> Answer:
        found: Answer = {}
        for day, _, shop, price in self.rows:
            key = (self.stream.start(day)[:10], shop)
            count, total = found.get(key, (0, None))
            found[key] = (count + 1, total if price is None else price + (total or 0))
        return found


@pytest.fixture(scope="module")
def stream(airflow: AirflowStack, streams: Callable[[str], DayStream]) -> DayStream:
    """Days 1 to 3 are READY, day 4 is with the receiver; nothing is known of the days before."""
    airflow.unpause(BUILD)
    airflow.unpause(DAG_ID)
    made = streams("batches")
    made.define()
    made.send(1, 2, 3, 4)

    def ready() -> bool | None:
        states = {day: info.state for day, info in made.segments().items()}
        return True if all(states.get(day) == "READY" for day in (1, 2, 3)) else None

    airflow.until("history of the stream", ready, BUILT_S)
    return made


def run_conf(stream: DayStream, first: int, last: int, source: dict[str, Any]) -> dict[str, Any]:
    return {"cube": stream.name, "from": stream.start(first), "to": stream.start(last + 1), "source": source}


def test_a_run_replaces_a_range_and_what_the_stream_brings_later_is_added(
    airflow: AirflowStack, airflow_home: Path, stream: DayStream
) -> None:
    export = Export(stream, exports_of(airflow_home) / stream.name / "first", -1, 0, 2)
    run_id = airflow.trigger(DAG_ID, **run_conf(stream, -2, 2, export.source()))
    airflow.until_task(DAG_ID, run_id, "deferred", "success", task_id="stage")
    airflow.clear(DAG_ID, run_id, "stage")
    airflow.until_run(DAG_ID, run_id)
    segments = stream.segments()
    assert {day: (info.state, info.version) for day, info in segments.items() if day < 4} == {
        -1: ("READY", 1),
        0: ("READY", 1),
        1: ("READY", 2),
        2: ("READY", 2),
        3: ("READY", 1),
    }
    assert segments[1].events == 0, "the source has no row of it"
    batches = {segments[day].batch for day in (-1, 0, 1, 2)}
    assert len(batches) == 1, "a clear goes on with the same batch"
    expected = stream.recount(without=frozenset((1, 2))) | export.recount()
    assert airflow.until("whole answer", stream.answer) == expected
    (batch,) = batches
    same = airflow.command("rtolap", "segments", "verify", stream.name, batch, timeout_s=180)
    assert same.returncode == 0, same.stdout + same.stderr
    sent_before = stream.recount()
    stream.send(2, events=30)
    late = {
        key: (count - sent_before.get(key, (0, None))[0], total)
        for key, (count, total) in stream.recount().items()
        if key[0] == stream.start(2)[:10]
    }
    found = airflow.until("answer with late events", stream.answer)
    counts = {key: count for key, (count, _) in found.items() if key[0] == stream.start(2)[:10]}
    of_batch = {key: count for key, (count, _) in export.recount().items() if key[0] == stream.start(2)[:10]}
    assert counts == {key: of_batch.get(key, 0) + late.get(key, (0, None))[0] for key in {*of_batch, *late}}


def test_a_source_with_rows_outside_of_the_range_fails_the_run_at_once_and_changes_nothing(
    airflow: AirflowStack, airflow_home: Path, stream: DayStream
) -> None:
    export = Export(stream, exports_of(airflow_home) / stream.name / "outside", 2, 3)
    before = {day: (info.version, info.batch) for day, info in stream.segments().items() if day != 2}
    run_id = airflow.trigger(DAG_ID, **run_conf(stream, 3, 3, export.source()))
    task = airflow.until_task(DAG_ID, run_id, "failed", task_id="stage")
    assert task["try_number"] == 1, "no retry can help"
    airflow.until_logged(task, "outside: leave_out")
    assert {day: (info.version, info.batch) for day, info in stream.segments().items() if day != 2} == before


def test_a_source_that_the_operator_has_not_allowed_fails_the_run_at_once(
    airflow: AirflowStack, tmp_path: Path, stream: DayStream
) -> None:
    export = Export(stream, tmp_path / "elsewhere", 3)
    run_id = airflow.trigger(DAG_ID, **run_conf(stream, 3, 3, export.source()))
    task = airflow.until_task(DAG_ID, run_id, "failed", task_id="stage")
    airflow.until_logged(task, "its source is not allowed on this host")


def test_a_range_that_the_stream_has_not_passed_is_refused_by_name(
    airflow: AirflowStack, airflow_home: Path, stream: DayStream
) -> None:
    export = Export(stream, exports_of(airflow_home) / stream.name / "open", 4)
    run_id = airflow.trigger(DAG_ID, **run_conf(stream, 4, 4, export.source()))
    task = airflow.until_task(DAG_ID, run_id, "failed", "up_for_retry", task_id="stage")
    airflow.until_logged(task, "the stream has not passed it")
