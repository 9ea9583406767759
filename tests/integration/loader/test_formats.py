"""Loaders of topics in other formats than plain JSON, on real servers: tables equal a recount."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from rtolap.model.formats.record_format import RecordFormat
from rtolap.model.loader import LoaderColumn, LoaderRejects

from tests.support.cubes.services import wait_for
from tests.support.formats.avro import encode, framed
from tests.support.formats.registry_server import running_registry, serving
from tests.support.loader.loader_world import Around, LoaderWorld
from tests.support.twins.loader_sink import Row

pytestmark = pytest.mark.integration

RECORDS = 1500
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "k", "type": "long"},
        {"name": "v", "type": "int"},
        {"name": "n", "type": ["null", "long"]},
        {"name": "src", "type": ["null", "string"]},
    ],
}
ID = 12


def drawn(source: random.Random, number: int) -> Row:
    n = source.choice((None, source.randrange(1 << 40)))
    return {"k": number, "v": source.randrange(100), "n": n, "src": source.choice((None, "", f'a"{number}'))}


def as_csv(row: Row) -> bytes:
    src = "-" if row["src"] is None else '"' + row["src"].replace('"', '""') + '"'
    return f"{src};{row['k']};{row['v']};{'-' if row['n'] is None else row['n']}".encode()


def by_key(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["k"])


def test_csv_fills_a_table_and_the_offset_is_a_column(
    around: Around, tmp_path: Path, unique_name: str
) -> None:
    source = random.Random(4)
    rows = [drawn(source, number) for number in range(RECORDS)]
    world = LoaderWorld(
        f"f_{unique_name[-8:]}",
        "duplicate",
        around,
        tmp_path,
        rejects=LoaderRejects(tolerance_percent=50),
        columns=(LoaderColumn("n", source="offset"),),
        format=RecordFormat(type="csv", delimiter=";", null="-", fields=("src", "k", "v", "left_out")),
    )
    try:
        bad = [b"1;2", b'"open;1;2;3', b"a\nb;1;2;3", b"x;1;1.5;1"]
        good = [as_csv(row) for row in rows]
        world.produce_values([(0, value) for value in (*good, *bad)])
        world.process.start()
        world.wait_loaded()  # by the ledger, which is a moment ahead of what the process has counted
        world.wait_until(lambda it: it.rows_rejected == len(bad))
        expected = [row | {"n": offset} for offset, row in enumerate(rows)]
        assert by_key(world.rows()) == expected
    finally:
        world.close()


def test_avro_waits_for_its_registry_and_loses_nothing(
    around: Around, tmp_path: Path, unique_name: str
) -> None:
    source = random.Random(5)
    rows = [drawn(source, number) for number in range(RECORDS)]
    with running_registry() as registry:
        registry.schemas[ID] = {"schema": json.dumps(SCHEMA)}
        port = int(registry.url.rpartition(":")[2])
    world = LoaderWorld(
        f"f_{unique_name[-8:]}",
        "duplicate",
        around,
        tmp_path,
        env={"RTOLAP_SCHEMA_REGISTRY": registry.url},
        format=RecordFormat(type="avro", registry="default"),
    )
    try:
        world.produce_values([(row["k"] % 2, framed(ID, encode(SCHEMA, row))) for row in rows])
        world.process.start()
        found = world.wait_until(lambda it: "schema registry default" in it.last_error)
        assert sum(found.loaded.values()) == 0
        assert world.rows() == []
        with serving(registry, port=port):
            world.wait_loaded()
        assert by_key(world.rows()) == rows
    finally:
        world.close()


def change(op: str, before: Row | None, after: Row | None, *, wrapped: bool) -> bytes:
    payload = {"before": before, "after": after, "op": op}
    return json.dumps({"schema": {}, "payload": payload} if wrapped else payload).encode()


def test_changes_of_a_database_leave_its_rows_over_a_kill(
    around: Around, tmp_path: Path, unique_name: str
) -> None:
    source = random.Random(6)
    world = LoaderWorld(
        f"f_{unique_name[-8:]}",
        "unique",
        around,
        tmp_path,
        format=RecordFormat(envelope="debezium", keys=("k",)),
    )
    table: dict[int, Row] = {}

    def changes(count: int) -> list[tuple[int, bytes | None]]:
        made: list[tuple[int, bytes | None]] = []
        for number in range(count):
            key, wrapped = source.randrange(80), source.random() < 0.5
            if key in table and source.random() < 0.4:
                gone = {"k": key} if source.random() < 0.5 else table[key]
                made += [(key % 2, change("d", gone, None, wrapped=wrapped)), (key % 2, None)]
                del table[key]
                continue
            row = drawn(source, number) | {"k": key}
            op = "u" if key in table else source.choice("cr")
            made.append((key % 2, change(op, table.get(key), row, wrapped=wrapped)))
            table[key] = row
        return made

    try:
        world.produce_values(changes(RECORDS))
        world.process.start()
        world.produce_values(changes(RECORDS))
        world.process.kill()
        world.process.start()
        world.produce_values(changes(RECORDS))
        world.wait_loaded()
        wait_for("the table equals its source", lambda: by_key(world.rows()) == by_key(list(table.values())))
        assert len(table) < 80, "some are deleted"
    finally:
        world.close()
