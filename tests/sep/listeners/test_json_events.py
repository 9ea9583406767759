import json
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
from rtolap.events.decode import EventDecoder
from rtolap.model.cube import Cube, Measure, Schema
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.sep.events.edit_batch import CellType
from rtolap.sep.listeners.event_columns import ColumnSource, EventColumns
from rtolap.sep.listeners.kafka_topic import EncodedEvents, JsonEvents

from tests.support.sep.batches import Cell, Event, batch_of

COLUMNS = EventColumns(
    {
        "amount": ColumnSource(b"cf", b"amount", "double"),
        "count": ColumnSource(b"cf", b"count", "long"),
        "name": ColumnSource(b"cf", b"name", "string"),
        "price": ColumnSource(b"cf", b"price", "decimal(38,2)"),
        "raw": ColumnSource(b"cf", b"raw", "bytes"),
        "tree": ColumnSource(b"cf", b"tree", "json"),
    },
    ("order_id", "string"),
)


def encoded(*events: Event, late: tuple[bool, ...] = ()) -> EncodedEvents:
    marks = np.array(late or [False] * len(events), bool)
    return JsonEvents(COLUMNS)(batch_of(events), marks)


def event(*cells: Cell, row: bytes = b"r1") -> Event:
    return Event("region", 7, row, 1000, "shop:orders", cells)


def test_values_of_every_type_become_fields_and_what_was_not_put_is_left_out() -> None:
    price = Decimal("12345678901234567890.12")
    result = encoded(
        event(
            Cell(b"amount", struct.pack(">d", 1.5), timestamp_ms=5),
            Cell(b"count", struct.pack(">q", -(2**60)), timestamp_ms=9),
            Cell(b"name", 'é"\n'.encode(), timestamp_ms=5),
            Cell(b"price", struct.pack(">i", 2) + int(price * 100).to_bytes(12, "big", signed=True)),
            Cell(b"raw", b"\x00\xff"),
            Cell(b"tree", b'{"a": [1,\n2]}'),
        ),
        event(Cell(b"other", b"x", timestamp_ms=3)),
        late=(False, True),
    )
    full = json.loads(result.values[0], parse_float=Decimal)
    assert full == {
        "order_id": "r1",
        "amount": Decimal("1.5"),
        "count": -(2**60),
        "name": 'é"\n',
        "price": price,
        "raw": "00ff",
        "tree": {"a": [1, 2]},
        "operation": "put",
        "timestamp_ms": 9,
        "write_time_ms": 1000,
    }
    assert json.loads(result.values[1]) == {
        "order_id": "r1",
        "operation": "put",
        "timestamp_ms": 3,
        "write_time_ms": 1000,
    }
    assert result.keys == [b"r1", b"r1"]
    assert [dict(headers) for headers in result.headers] == [
        {"table": b"shop:orders", "region": b"region", "sequence_id": b"7", "late": late}
        for late in (b"0", b"1")
    ]
    assert not result.refused


def test_deletes_say_what_they_delete() -> None:
    row = Cell(b"", type=CellType.DELETE_FAMILY)
    column = Cell(b"name", type=CellType.DELETE_COLUMN)
    result = encoded(event(row), event(column), event(column, Cell(b"count", struct.pack(">q", 1))))
    values = [json.loads(value) for value in result.values]
    assert [value["operation"] for value in values] == ["delete", "delete_cells", "put"]
    assert values[0]["deleted"] == ["amount", "count", "name", "price", "raw", "tree"]
    assert values[1]["deleted"] == values[2]["deleted"] == ["name"]
    assert values[2]["count"] == 1


def test_a_value_that_is_not_of_its_type_refuses_its_event_alone_and_says_why() -> None:
    result = encoded(event(Cell(b"amount", b"123")), event(Cell(b"name", b"x")))
    assert result.refused == {0: "column amount: expected 8 bytes for double; found 3 bytes"}
    assert json.loads(result.values[1])["name"] == "x"


def test_a_payload_stands_in_the_record_as_hexadecimal_text() -> None:
    columns = EventColumns({}, ("id", "string"), lambda batch: pa.array([b"\x01\xfe", None], pa.binary()))
    batch = batch_of([event(Cell(b"a")), event(Cell(b"a"))])
    values = [json.loads(value) for value in JsonEvents(columns)(batch, np.zeros(2, bool)).values]
    assert [value.get("payload") for value in values] == ["01fe", None]


def test_a_value_that_no_record_holds_is_refused() -> None:
    small = JsonEvents(COLUMNS, value_bytes_max=200)
    result = small(
        batch_of([event(Cell(b"name", b"x" * 300)), event(Cell(b"name", b"y"))]), np.zeros(2, bool)
    )
    assert list(result.refused) == [0]


def test_the_records_are_a_stream_table_of_a_cube_as_they_are() -> None:
    values = list(
        encoded(
            event(Cell(b"amount", struct.pack(">d", 1.5)), Cell(b"name", b"x")),
            event(Cell(b"tree", b'{"a": {"b": 3}}')),
            event(Cell(b"", type=CellType.DELETE_FAMILY)),
        ).values
    )
    table = Table(
        name="changes",
        topic="changes",
        columns=(
            Column("write_time_ms", "bigint"),
            Column("order_id", "string"),
            Column("operation", "string"),
            Column("name", "string"),
            Column("amount", "double"),
            Column("deep", "bigint", path="tree.a.b"),
        ),
        time=TimeColumn("write_time_ms", "epoch_ms"),
    )
    measures = (Measure("sum", "amount"), Measure("sum", "deep"))
    cube = Cube(name="c", table="changes", dimensions=("order_id", "operation", "name"), measures=measures)
    decoded = EventDecoder(Schema(table, cube)).decode(
        values, np.zeros(3, np.int32), np.arange(3, dtype=np.int64), now_ms=2000
    )
    assert not len(decoded.rejects)
    assert decoded.table.column("operation").to_pylist() == ["put", "put", "delete"]
    assert decoded.table.column("amount").to_pylist() == [1.5, None, None]
    assert decoded.table.column("deep").to_pylist() == [None, 3, None]
    assert decoded.table.column("__event_ms").to_pylist() == [1000] * 3
