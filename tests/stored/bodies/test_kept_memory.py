"""Decoded rows hold about the memory that they count: by that, senders bound what waits for nodes."""

from __future__ import annotations

import io
import json
import random

import pyarrow as pa
import pyarrow.parquet
import pytest
from rtolap.model.stored.schema import initial_schema
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.stored.bodies.batches import HELD_RATIO_MAX
from rtolap.stored.bodies.decode import decode_body
from rtolap.stored.bodies.options import load_options

from tests.support.seeds import so_many


def _body(dice: random.Random, kind: str, names: list[str], widths: dict[str, int], rows: int) -> bytes:
    table = {
        name: [f"{dice.getrandbits(4 * width):0{width}x}" for _ in range(rows)]
        for name, width in widths.items()
    }
    records = [
        dict(zip(names, row, strict=True)) for row in zip(*(table[name] for name in names), strict=True)
    ]
    if kind == "parquet":
        sink = io.BytesIO()
        pa.parquet.write_table(pa.table(table), sink)
        return sink.getvalue()
    if kind == "json":
        return b"".join(json.dumps(record).encode() + b"\n" for record in records)
    return "".join(",".join(record.values()) + "\n" for record in records).encode()


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
@pytest.mark.parametrize("seed", range(so_many(6)))
def test_a_few_short_columns_of_a_wide_body_do_not_hold_all_of_it(kind: str, seed: int) -> None:
    dice = random.Random(seed)
    names = [f"c{number}" for number in range(dice.randint(2, 9))]
    kept = dice.sample(names, dice.randint(1, len(names) // 2))
    widths = {name: dice.randint(1, 12) if name in kept else dice.randint(200, 900) for name in names}
    columns = tuple(StoredColumn(name, "string") for name in kept)
    schema = initial_schema(StoredTable(database="d", name="t", columns=columns, keys=(kept[0],)))
    body = _body(dice, kind, names, widths, 3_000)
    headers = {"format": kind, "column_separator": ",", "columns": ",".join(names)}
    if kind == "json":
        headers["read_json_by_line"] = "true"
    pieces = (body[at : at + 65_536] for at in range(0, len(body), 65_536))
    rows = 0
    for batch in decode_body(pieces, load_options(headers), schema):
        rows += batch.rows.num_rows
        held, counted = batch.rows.get_total_buffer_size(), batch.rows.nbytes
        assert held <= HELD_RATIO_MAX * counted, f"{held} bytes are held for {counted}"
    assert rows == 3_000
