"""Parquet, ORC and Arrow bodies."""

from __future__ import annotations

import functools
import io
import random
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from rtolap.base.errors import Corrupted, DefinitionError, Refused
from rtolap.stored.bodies.decode import decode_body
from rtolap.stored.bodies.options import Format, LoadOptions
from rtolap.stored.bodies.settings import BodySettings
from rtolap.stored.bodies.spool import SpoolMemory, held

from tests.support.arrow_memory import counted_allocations
from tests.support.stored.body_tables import Decoded, decoded, plain_schema, sketch_schema, unique_schema


def parquet(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pa.parquet.write_table(table, out, **options)
    return out.getvalue()


def orc(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    pa.orc.write_table(table, out)
    return bytes(out.getvalue())


def arrow(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return bytes(out.getvalue())


WRITERS: dict[Format, Callable[[pa.Table], bytes]] = {"parquet": parquet, "orc": orc, "arrow": arrow}
every_format = pytest.mark.parametrize(("layout", "write"), WRITERS.items())
Write = Callable[[pa.Table], bytes]
TABLE = pa.table(
    {
        "other": pa.array([[1], [2], [3]]),
        "K": pa.array([1, 2, 1 << 40]),
        "price": pa.array([Decimal("1.25"), None, Decimal("3.5")], pa.decimal128(12, 3)),
        "at": pa.array([datetime(2024, 1, 31, 23, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")),
    }
)


@every_format
def test_columns_are_found_by_name_and_converted(layout: str, write: Write) -> None:
    found = decoded(write(TABLE), unique_schema(), format=layout, timezone="Asia/Shanghai")
    at = datetime(2024, 2, 1, 7)
    assert found.rows == [
        {"k": 1, "price": Decimal("1.25"), "s": "none", "at": at},
        {"k": 2, "price": None, "s": "none", "at": at},
    ]
    ((number, text, reason),) = found.refused
    assert (number, '"K": "1099511627776"' in text) == (3, True)
    assert reason.startswith("column(k) value is incorrect")


@every_format
def test_columns_may_be_renamed_computed_and_selected_by(layout: str, write: Write) -> None:
    found = decoded(
        write(TABLE),
        plain_schema(),
        format=layout,
        columns="K, price, s = concat(price * 2, '!')",
        where="k < 2",
    )
    assert found.rows == [{"k": 1, "s": "2.500!"}]
    assert (found.unselected, len(found.refused), found.total) == (1, 1, 3)


@every_format
def test_a_file_with_another_schema_is_refused(layout: str, write: Write) -> None:
    with pytest.raises(DefinitionError, match="column k has no default value"):
        decoded(write(TABLE.drop_columns(["K"])), unique_schema(), format=layout)
    with pytest.raises(DefinitionError, match=r"column k of the body has another type.*list"):
        decoded(write(TABLE.select(["other"]).rename_columns(["k"])), unique_schema(), format=layout)
    with pytest.raises(DefinitionError, match=r"the body lacks columns; expected nope"):
        decoded(write(TABLE), plain_schema(), format=layout, columns="k, nope, s = nope")
    if layout != "orc":
        with pytest.raises(DefinitionError, match="names a column twice"):
            decoded(write(TABLE.rename_columns(["k", "K", "a", "b"])), plain_schema(), format=layout)


@every_format
def test_a_damaged_file_fails(layout: str, write: Write) -> None:
    body = write(TABLE)
    for broken in (b"", b"1,a\n", body[: len(body) // 2], body[:-9], b"\0" * len(body)):
        with pytest.raises((Corrupted, Refused)):
            decoded(broken, unique_schema(), format=layout)


@every_format
def test_rows_come_in_batches(layout: str, write: Write) -> None:
    body = write(pa.table({"k": pa.array(range(70_000), pa.int32())}))
    found = decoded(body, plain_schema(), format=layout)
    assert (len(found.rows), found.rows[-1]["k"]) == (70_000, 69_999)


def test_a_file_that_unpacks_to_too_much_fails() -> None:
    body = parquet(pa.table({"k": pa.repeat(pa.scalar(1, pa.int32()), 3_000_000)}))
    settings = BodySettings(ratio_free_bytes=1 << 20, ratio_max=100)
    with pytest.raises(Refused, match="unpacks to too much"):
        decoded(body, plain_schema(), settings, format="parquet")


def test_a_stripe_that_takes_too_much_memory_costs_only_its_own_process() -> None:
    body = orc(pa.table({"k": pa.repeat(pa.scalar(1, pa.int32()), 24_000_000)}))
    assert len(body) < 1 << 20
    settings = BodySettings(ratio_free_bytes=1 << 40, orc_memory_bytes_max=64 << 20)
    with pytest.raises(Refused, match=r"an ORC body unpacks to too much.*write smaller stripes, or Parquet"):
        decoded(body, plain_schema(), settings, format="orc")
    assert decoded(orc(TABLE), unique_schema(), settings, format="orc").total == 3


DYING = """
import os, signal, sys
import pyarrow as pa

batch = pa.record_batch({"k": pa.array([1], pa.int32())})
schema = batch.schema.serialize().to_pybytes()
sys.stdout.buffer.write(len(schema).to_bytes(8, "little") + schema)
sys.stdout.flush()
sys.stdin.readline()
stream = pa.ipc.new_stream(sys.stdout.buffer, batch.schema)
stream.write_batch(batch)
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_orc_body_whose_process_dies_is_not_taken_for_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that ends between two messages looks whole."""
    popen = subprocess.Popen

    def started(command: list[str], **options: Any) -> Any:
        return popen([command[0], "-c", DYING], **options)

    monkeypatch.setattr(subprocess, "Popen", started)
    with pytest.raises(Refused, match="an ORC body unpacks to too much"):
        decoded(orc(pa.table({"k": pa.array([1, 2], pa.int32())})), plain_schema(), format="orc")


LONG, MANY = "x" * 8192, 4096
BOMBS = {
    "packed Arrow": ("arrow", lambda: packed_arrow(["x" * (4 << 20)] * 8, 8)),
    "packed Arrow dictionary": (
        "arrow",
        lambda: packed_arrow(pa.array(["x" * (16 << 20)]).dictionary_encode(), 1),
    ),
    "Arrow dictionary": ("arrow", lambda: arrow(repeated(dictionary(MANY)))),
    "Arrow views": ("arrow", lambda: arrow(repeated(pa.repeat(LONG, 4 * MANY).cast(pa.string_view())))),
    "Parquet": (
        "parquet",
        lambda: parquet(repeated(pa.repeat(LONG, MANY)), use_dictionary=False, compression="zstd"),
    ),
    "Parquet dictionary": ("parquet", lambda: parquet(repeated(pa.repeat(LONG, MANY)))),
    "Parquet dictionary by its schema": ("parquet", lambda: parquet(repeated(dictionary(MANY)))),
}


def dictionary(count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), pa.array([LONG]))


def repeated(texts: pa.Array) -> pa.Table:
    return pa.table({"k": pa.array(range(len(texts)), pa.int32()), "s": texts})


def packed_arrow(texts: object, count: int) -> bytes:
    table = pa.table({"k": pa.array(range(count), pa.int32()), "s": texts})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(out.getvalue())


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_noticed_before_it_is_unpacked(bomb: str) -> None:
    layout, made = BOMBS[bomb]
    body, settings = made(), BodySettings(ratio_free_bytes=1 << 20, ratio_max=100)
    with (
        counted_allocations() as pool,
        pytest.raises(Refused, match=r"unpacks to too much|record batch is too long"),
    ):
        decoded(body, plain_schema(), settings, format=layout)
    assert pool.max_memory() < 8 << 20


@pytest.mark.parametrize("layout", ["parquet", "arrow"])
def test_long_texts_of_a_dictionary_come_in_small_batches(layout: Format) -> None:
    table = repeated(dictionary(1000))
    body = parquet(table) if layout == "parquet" else arrow(table)
    settings = BodySettings(record_bytes_max=1 << 20)
    batches = list(decode_body(iter([body]), LoadOptions(format=layout), plain_schema(), settings))
    assert [len(batch.rows) for batch in batches[:-1]] == [128] * (len(batches) - 1)
    rows = pa.Table.from_batches([batch.rows for batch in batches])
    assert rows["s"].to_pylist() == [LONG] * 1000
    assert rows["k"].to_pylist() == list(range(1000))


def test_packed_arrow_messages_are_read() -> None:
    texts = ["a", None, "ü"] * 1000
    for values in (texts, pa.array(texts).dictionary_encode()):
        found = decoded(packed_arrow(values, 3000), plain_schema(), format="arrow")
        assert [row["s"] for row in found.rows] == texts


def test_texts_of_parquet_are_the_same_whatever_dictionaries_hold_them() -> None:
    rng = random.Random(1)
    few = [rng.choice(["a", "", None, "ü" * 40]) for _ in range(5000)]
    many = [f"number {rng.random()}" for _ in range(5000)]
    for texts in (few, many, few + many):
        for options in ({}, {"row_group_size": 700}, {"dictionary_pagesize_limit": 1000}):
            body = parquet(repeated(pa.array(texts)), **options)
            assert [row["s"] for row in decoded(body, plain_schema(), format="parquet").rows] == texts


def test_a_file_that_is_too_large_to_spool_fails() -> None:
    with pytest.raises(Refused, match="too large for its format"):
        decoded(parquet(TABLE), plain_schema(), BodySettings(spool_bytes_max=100), format="parquet")


def test_a_body_is_held_in_memory_or_in_a_file_as_there_is_room() -> None:
    chunks = [bytes([at]) * 10 for at in range(10)]
    memory = SpoolMemory(75)
    for settings, in_memory in ((BodySettings(), False), (BodySettings(spool_memory_bytes_max=50), False)):
        with held(iter(chunks), settings, memory) as (source, size):
            assert (source.read(), size) == (b"".join(chunks), 100)
            assert isinstance(source, pa.BufferReader) is in_memory
            assert memory.used_bytes == 0
    with held(iter(chunks[:5]), BodySettings(), memory) as (source, size):
        assert (source.read(), size) == (b"".join(chunks[:5]), 50)
        assert isinstance(source, pa.BufferReader)
        assert memory.used_bytes == 50
        with held(iter(chunks[5:8]), BodySettings(), memory) as (other, _):  # a neighbour has most of it
            assert other.read() == b"".join(chunks[5:8])
            assert isinstance(other, pa.PythonFile)
    assert memory.used_bytes == 0
    with (
        pytest.raises(Refused, match="too large"),
        held(iter(chunks), BodySettings(spool_bytes_max=30), memory),
    ):
        pass
    assert memory.used_bytes == 0


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (9 << 20) + 7])
def test_a_body_in_memory_is_the_same_however_it_comes(size: int) -> None:
    rng = random.Random(size)
    body = rng.randbytes(size)
    memory = SpoolMemory(64 << 20)
    for settings in (BodySettings(), BodySettings(spool_memory_bytes_max=max(size // 2, 1))):
        cuts = sorted(rng.sample(range(size), min(size, 30)))
        chunks = [body[start:end] for start, end in pairwise([0, *cuts, size])]
        with held(iter(chunks), settings, memory) as (source, found):
            assert found == size
            assert source.read() == body
    assert memory.used_bytes == 0


def test_memory_of_bodies_is_used_again_once_nothing_refers_to_it() -> None:
    rng = random.Random(5)
    memory = SpoolMemory(64 << 20, idle_bytes_max=8 << 20)
    parts: list[tuple[pa.Buffer, bytes]] = []  # of bodies that are read no more
    for _ in range(200):
        body = rng.randbytes(rng.choice((0, 10, 5000, (1 << 20) + 3, 5 << 20)))
        with held(iter([body]), BodySettings(), memory) as (source, _):
            assert memory.used_bytes == len(body)
            start = rng.randrange(len(body) + 1)
            part = body[start : start + 4096]
            parts.append((source.read_buffer().slice(start, len(part)), part))
        del source
        while len(parts) > rng.randrange(1, 5):
            parts.pop(rng.randrange(len(parts)))
        assert all(part.to_pybytes() == expected for part, expected in parts)
        assert memory.idle_bytes <= 8 << 20
    parts.clear()
    assert memory.idle_bytes
    before = memory.idle_bytes
    map_ = memory.take_map()
    assert memory.idle_bytes == before - len(map_)
    with memoryview(map_):
        memory.return_map(map_)
        assert memory.take_map() is not map_  # somebody still reads it


def test_a_batch_that_is_too_long_fails() -> None:
    body = arrow(pa.table({"k": pa.array(range(10_000), pa.int32())}))
    with pytest.raises(Refused, match="record batch is too long"):
        decoded(body, plain_schema(), BodySettings(record_bytes_max=10_000), format="arrow")


def test_text_in_files_follows_the_grammars_of_csv() -> None:
    table = pa.table(
        {
            "k": pa.array(["1", "x", "3"]).dictionary_encode(),
            "s": pa.array([b"a", b"b", b"\xff"], pa.large_binary()),
        }
    )
    found = decoded(arrow(table), plain_schema(), format="arrow")
    assert found.rows == [{"k": 1, "s": "a"}, {"k": 3, "s": None}]


def test_sketches_come_as_they_are() -> None:
    table = pa.table({"k": pa.array([1], pa.int32()), "users": pa.array([b"\x01\x02"])})
    assert decoded(parquet(table), sketch_schema(), format="parquet").rows == [
        {"k": 1, "users": b"\x01\x02", "ids": None}
    ]


def test_floats_and_dates_convert_exactly_or_not_at_all() -> None:
    table = pa.table(
        {
            "k": pa.array([1.0, 2.5, 3.0]),
            "price": pa.array([0.1, 1.0, float("nan")]),
            "at": pa.array([19_753, 19_753, None], pa.date32()),
        }
    )
    found = decoded(parquet(table), unique_schema(), format="parquet")
    midnight = datetime(2024, 1, 31)
    assert found.rows == [
        {"k": 1, "price": Decimal("0.10"), "s": "none", "at": midnight},
        {"k": 3, "price": None, "s": "none", "at": None},
    ]
    assert [number for number, _, _ in found.refused] == [2]


@every_format
def test_errors_of_the_connection_stay_what_they_are(layout: Format, write: Write) -> None:
    body = write(TABLE)

    def chunks() -> Iterator[bytes]:
        yield body[: len(body) // 2]
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError, match="gone"):
        list(decode_body(chunks(), LoadOptions(format=layout), unique_schema()))


def test_text_that_is_no_utf8_and_places_out_of_bounds_fail() -> None:
    offsets = pa.py_buffer(np.array([0, 2, 1], np.int32))
    wild = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"ab"))
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff"))
    for text in (wild, broken):
        table = pa.table({"k": pa.array(range(len(text)), pa.int32()), "s": text})
        with pytest.raises(Corrupted):
            decoded(arrow(table), plain_schema(), format="arrow")


@pytest.mark.parametrize("scale", [-3, 13, 14_614_531])
def test_decimals_of_an_impossible_scale_fail(scale: int) -> None:
    kind = pa.decimal128(12, scale)
    prices = pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(16))])
    table = pa.table({"k": pa.array([1], pa.int32()), "price": prices})
    for columns in (table, pa.table({"k": table["k"], "price": pa.array([[None]], pa.list_(kind))})):
        with pytest.raises(Corrupted, match="column price of the body has an impossible type"):
            decoded(arrow(columns), unique_schema(), format="arrow")


def test_a_zone_that_is_no_text_fails() -> None:
    body = arrow(pa.table({"k": pa.array([1]), "at": pa.array([0], pa.timestamp("us", "Europe/Paris"))}))
    assert body.count(b"Europe/Paris") == 1
    with pytest.raises(Corrupted):
        decoded(body.replace(b"Europe/Paris", b"Europe/P\xff\xfes"), unique_schema(), format="arrow")


def test_values_that_no_calendar_has_are_refused_not_stumbled_over() -> None:
    wild = pa.array([1 << 30, 19_753], pa.int32()).view(pa.date32())
    table = pa.table({"k": pa.array([1, 2], pa.int32()), "at": wild})
    found = decoded(arrow(table), unique_schema(), format="arrow", strict_mode="true")
    assert [row["k"] for row in found.rows] == [2]
    ((number, text, reason),) = found.refused
    assert number == 1
    assert "k" in text
    assert "expected timestamp" in reason


@functools.cache
def undamaged(layout: Format) -> Decoded:
    return decoded(WRITERS[layout](TABLE), unique_schema(), format=layout)


# Every third is ORC, for which a process is started.
@pytest.mark.parametrize("seed", [seed for seed in range(90) if seed % 3 != 1 or seed < 18])
def test_damage_is_found_or_harmless(seed: int) -> None:
    """Of so small a file nearly all is structure; damage to values shows only where checksums are."""
    rng = random.Random(seed)
    layout, write = list(WRITERS.items())[seed % 3]
    body = bytearray(write(TABLE))
    for _ in range(rng.choice((1, 1, 5))):
        at = rng.randrange(len(body))
        body[at : at + rng.choice((0, 1, 1, 8))] = rng.randbytes(rng.choice((0, 1, 1, 3)))
    try:
        found = decoded(bytes(body), unique_schema(), format=layout)
    except (Corrupted, DefinitionError, Refused):
        return
    assert found == undamaged(layout)


@pytest.mark.parametrize("seed", range(30))
def test_a_flipped_bit_of_a_parquet_file_with_checksums_is_found(seed: int) -> None:
    rng = random.Random(seed)
    out = io.BytesIO()
    table = pa.table({"k": pa.array(range(2_000), pa.int32())})
    pa.parquet.write_table(table, out, write_page_checksum=True)
    body = bytearray(out.getvalue())
    assert decoded(bytes(body), plain_schema(), format="parquet").total == 2_000
    at = rng.randrange(len(body) // 4, len(body) * 3 // 4)  # there are pages, not the file's structure
    body[at] ^= 1 << rng.randrange(8)
    with pytest.raises(Corrupted):
        decoded(bytes(body), plain_schema(), format="parquet")
