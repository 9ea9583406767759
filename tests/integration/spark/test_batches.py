"""Spark stages a batch out of files: it is what the same events would be through the topic."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.orc as paorc
import pyarrow.parquet as pq
import pytest
from rtolap.cubes.format.manifest import BATCH_NAME, BatchManifest, decode
from rtolap.cubes.format.staged import verify_staged
from rtolap.model.batch import BatchSegment, BatchSource, BatchSpec, windows_of
from rtolap.model.offsets import PartRange
from rtolap.model.table import Column, TimeColumn
from rtolap.object_store.store import ObjectStore, open_store

from tests.support.cubes.builders import START_MS, WINDOW_MS, Event, small_schema
from tests.support.cubes.recount import from_table, recount
from tests.support.runs import spark_drivers

from .conftest import progress_lines, spark_submit

pytestmark = pytest.mark.integration
PROJECT = Path(__file__).resolve().parents[3]
STAGE_JOB = PROJECT / "spark_jobs" / "stage_batch.py"
SEED = 71
SCHEMA = small_schema()
WINDOWS = 6


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "ein Stück 50%").as_uri())


def drawn_events(count: int) -> list[Event]:
    rng = random.Random(SEED)
    return [
        Event(
            event_ms=START_MS + rng.randrange((WINDOWS - 1) * WINDOW_MS),  # none in the last one
            kind=rng.choice(("a", "b", None, 'q"uo,te', "ü\n")),
            place=rng.choice((1, 2, None)),
            amount=rng.choice((None, rng.randrange(-(1 << 62), 1 << 62))),
            price=rng.choice((None, Decimal(rng.randrange(-(10**9), 10**9)) / 100)),
        )
        for _ in range(count)
    ]


def table_of(events: list[Event]) -> pa.Table:
    return pa.table(
        {
            "at": pa.array([each.event_ms for each in events], pa.timestamp("ms", "UTC")),
            "kind": pa.array([each.kind for each in events], pa.string()),
            "place": pa.array([each.place for each in events], pa.int32()),
            "amount": pa.array([each.amount for each in events], pa.int64()),
            "price": pa.array([each.price for each in events], pa.decimal128(12, 2)),
            "more": pa.array([date(2024, 1, 1)] * len(events)),
        }
    )


def spec_of(store: ObjectStore, source: BatchSource, batch: str = "b1") -> BatchSpec:
    end_ms = START_MS + WINDOWS * WINDOW_MS
    windows = windows_of(START_MS, end_ms, WINDOW_MS)
    return BatchSpec(
        batch=batch,
        cube=SCHEMA.cube.name,
        table_definition=SCHEMA.table,
        cube_definition=SCHEMA.cube,
        object_store=Path(store.root).as_uri(),
        folder=f"batches/{SCHEMA.cube.name}/{batch}",
        start_ms=START_MS,
        end_ms=end_ms,
        segments=tuple(
            BatchSegment(window.name, 1, (PartRange(0, 0, 7),), is_recorded=place % 2 == 1)
            for place, window in enumerate(windows)
        ),
        source=source,
    )


def staged(spec: BatchSpec, folder: Path, *, apart: bool = False) -> tuple[int, dict[str, Any], str]:
    file = folder / "batch-spec.json"
    file.write_bytes(msgspec.json.encode(spec))
    command, environment = spark_submit(str(file), job=STAGE_JOB)
    run = spark_drivers.run_apart if apart else spark_drivers.run
    done = run(command, environment)
    lines = progress_lines(done.stdout)
    return done.returncode, lines[-1] if lines else {}, (done.stdout + done.stderr)[-3000:]


def write_parquet(table: pa.Table, path: Path) -> BatchSource:
    path.mkdir()
    pq.write_table(table.slice(0, 100), path / "one.parquet")
    pq.write_table(table.slice(100), path / "two.parquet")
    return BatchSource(format="parquet", path=path.as_uri(), columns={"ts": "at"})


def write_csv(table: pa.Table, path: Path) -> BatchSource:
    path.mkdir()
    ms = table["at"].cast(pa.int64()).cast(pa.string())
    pacsv.write_csv(table.set_column(0, "at", ms).drop_columns(["more"]), path / "one.csv")
    return BatchSource(
        format="csv",
        path=path.as_uri(),
        columns={"ts": "at"},
        options={"header": "true", "multiLine": "true", "escape": '"'},
    )


def write_nested_json(table: pa.Table, path: Path) -> BatchSource:
    path.mkdir()
    lines = [
        json.dumps(
            {
                "ts": round(row["at"].timestamp() * 1000),
                "what": {"kind": row["kind"], "place": row["place"]},
                "amount": row["amount"],
                "price": None if row["price"] is None else str(row["price"]),
            }
        )
        for row in table.to_pylist()
    ]
    (path / "one.json").write_text("\n".join(lines))
    return BatchSource(
        format="json", path=path.as_uri(), columns={"kind": "what.kind", "place": "what.place"}
    )


def write_orc(table: pa.Table, path: Path) -> BatchSource:
    path.mkdir()
    paorc.write_table(table, path / "one.orc")
    return BatchSource(format="orc", path=path.as_uri(), columns={"ts": "at"})


@pytest.mark.parametrize("write", [write_parquet, write_csv, write_nested_json, write_orc])
def test_parts_of_a_batch_equal_a_recount_of_its_rows(
    store: ObjectStore, tmp_path: Path, write: Callable[[pa.Table, Path], BatchSource]
) -> None:
    events = drawn_events(300)
    if write is write_csv:  # which has no way to tell NULL from an empty text
        events = [each for each in events if each.kind is not None]
    spec = spec_of(store, write(table_of(events), tmp_path / "source"))
    code, last, output = staged(spec, tmp_path)
    assert code == 0, output
    assert (last["event"], last["events"]) == ("staged", 300 if write is not write_csv else len(events))
    path = f"{spec.folder}/{BATCH_NAME}"
    manifest = decode(store.read(path), BatchManifest, path)
    by_window: dict[str, list[Event]] = {each.segment: [] for each in spec.segments}
    for event in events:
        by_window[spec.segments[(event.event_ms - START_MS) // WINDOW_MS].segment].append(event)
    wanted = [each.segment for each in spec.segments if by_window[each.segment] or each.is_recorded]
    assert [each.segment for each in manifest.parts] == wanted
    for each in manifest.parts:
        verify_staged(store, each.part.path)
        assert each.part.events == len(by_window[each.segment])
        files = [file.path for file in store.list(each.part.path) if file.path.endswith(".parquet")]
        tables = [pq.read_table(store.absolute(file), partitioning=None) for file in files]
        found = from_table(pa.concat_tables(tables)) if tables else {}
        assert found == recount(by_window[each.segment])
    again = staged(spec, tmp_path, apart=write is write_parquet)
    assert (again[0], again[1]["event"]) == (0, "staged"), "what is staged is reported"


def test_how_the_topic_writes_its_records_does_not_matter(store: ObjectStore, tmp_path: Path) -> None:
    """Here as CSV, with a dimension in the key, heartbeats, hosts, and times in a format of their own."""
    events = drawn_events(80)
    spec = spec_of(store, write_parquet(table_of(events), tmp_path / "source"))
    columns = [
        msgspec.structs.replace(column, source="key") if column.name == "kind" else column
        for column in (*SCHEMA.table.columns, Column("beat", "boolean"), Column("host", "string"))
    ]
    streamed = msgspec.structs.replace(
        SCHEMA.table,
        format="csv",
        columns=tuple(
            msgspec.structs.replace(each, type="string") if each.name == "ts" else each for each in columns
        ),
        time=TimeColumn("ts", "%d.%m.%Y %H:%M:%S"),
        heartbeat_column="beat",
        host_column="host",
    )
    code, last, output = staged(msgspec.structs.replace(spec, table_definition=streamed), tmp_path)
    assert code == 0, output
    assert last["events"] == 80
    path = f"{spec.folder}/{BATCH_NAME}"
    parts = decode(store.read(path), BatchManifest, path).parts
    files = [
        file.path for each in parts for file in store.list(each.part.path) if file.path.endswith("parquet")
    ]
    tables = [pq.read_table(store.absolute(file), partitioning=None) for file in files]
    assert from_table(pa.concat_tables(tables)) == recount(events)


def test_rows_that_are_no_events_are_named_and_nothing_is_staged(store: ObjectStore, tmp_path: Path) -> None:
    table = table_of(drawn_events(50))
    texts = table["amount"].cast(pa.string()).to_pylist()
    texts[7] = "seven"
    source = write_parquet(table.set_column(3, "amount", pa.array(texts)), tmp_path / "source")
    spec = spec_of(store, source)
    code, last, output = staged(spec, tmp_path)
    assert (code, last["event"], last["retry"]) == (3, "failed", False), output
    assert "1 rows" in last["error"]
    assert "column amount" in last["error"]
    assert "seven" in last["error"]
    assert not store.exists(f"{spec.folder}/{BATCH_NAME}")


def test_rows_outside_of_the_range_refuse_the_batch_or_are_left_out(
    store: ObjectStore, tmp_path: Path
) -> None:
    table = table_of(drawn_events(50))
    moved = [datetime.fromtimestamp((START_MS - 1) / 1000, UTC), *table["at"].to_pylist()[1:]]
    table = table.set_column(0, "at", pa.array(moved, pa.timestamp("ms", "UTC")))
    source = write_parquet(table, tmp_path / "source")
    code, last, output = staged(spec_of(store, source), tmp_path)
    assert (code, last["event"]) == (3, "failed"), output
    assert "event time" in last["error"]
    assert "leave_out" in last["error"]
    left_out = spec_of(store, msgspec.structs.replace(source, outside="leave_out"), "b2")
    code, last, output = staged(left_out, tmp_path)
    assert (code, last["events"]) == (0, 49), output


def test_a_source_that_lacks_a_column_is_refused_by_name(store: ObjectStore, tmp_path: Path) -> None:
    source = write_parquet(table_of(drawn_events(5)).drop_columns(["price"]), tmp_path / "source")
    code, last, output = staged(spec_of(store, source), tmp_path)
    assert (code, last["retry"]) == (3, False), output
    assert "lacks columns" in last["error"]
    assert "price" in last["error"]
