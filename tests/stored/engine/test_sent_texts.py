"""Texts that are sent in dictionaries, against the same rows without: the same files, byte by byte."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from rtolap.model.stored.schema import StoredSchema, initial_schema
from rtolap.model.stored.table import Buckets, StoredColumn, StoredTable, TableModel
from rtolap.stored.engine.disk import RealDisk
from rtolap.stored.engine.loading import FileLoader
from rtolap.stored.engine.rows import texts
from rtolap.stored.engine.rows.texts import SENT_TEXTS, in_type, plain_bytes, plain_texts, saves_work
from rtolap.stored.engine.settings import TabletSettings

from tests.support.seeds import so_many

SEEDS = so_many(20)
_FUNCTIONS = ("REPLACE", "REPLACE_IF_NOT_NULL", "MIN", "MAX")


def schema_of(rng: random.Random, model: TableModel) -> StoredSchema:
    columns = [StoredColumn("number", "bigint"), StoredColumn("key", "string")]
    for name in ("a", "b", "c"):
        columns.append(
            StoredColumn(name, "string", aggregate=rng.choice(_FUNCTIONS))
            if model == "aggregate"
            else StoredColumn(name, "string")
        )
    keys = ("number", "key")
    buckets = Buckets(1)
    return initial_schema(
        StoredTable(database="d", name="t", model=model, columns=tuple(columns), keys=keys, buckets=buckets)
    )


def batch_of(rng: random.Random) -> pa.RecordBatch:
    """Draw rows whose texts repeat, or do not, or are too long for a dictionary that is sent."""
    count = rng.choice((1, 7, 60, 300))
    columns = {"number": pa.array([rng.randrange(rng.choice((3, 900))) for _ in range(count)], pa.int64())}
    for name in ("key", "a", "b", "c"):
        few = rng.choice(
            (["x"], ["", "b", "ä", None], [f"n{at}" for at in range(40)], ["long " * 60, "y"], [None])
        )
        columns[name] = pa.array(rng.choices(few, k=count), pa.string())
    return pa.record_batch(columns)


def sent(rng: random.Random, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with dictionaries for some of its texts, also such as hold more than is needed."""
    arrays = []
    for values in batch.columns:
        if pa.types.is_string(values.type) and rng.random() < 0.7:
            encoded = values.dictionary_encode()
            if rng.random() < 0.3:
                more = pa.concat_arrays([encoded.dictionary, pa.array(["unused", "words"])])
                encoded = pa.DictionaryArray.from_arrays(encoded.indices, more)
            values = encoded
        arrays.append(values)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


@pytest.mark.seeded
@pytest.mark.parametrize("model", ["duplicate", "unique", "aggregate"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_files_are_the_same_whatever_dictionaries_texts_come_in(
    seed: int, model: TableModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(texts, "_ROWS_MIN", rng.choice((1, 200, 32_768)))
    schema = schema_of(rng, model)
    settings = TabletSettings(block_rows=64)
    batches = [batch_of(rng) for _ in range(rng.randrange(1, 5))]
    files = []
    for folder, given in (("plain", batches), ("sent", [sent(rng, batch) for batch in batches])):
        (tmp_path / folder).mkdir()
        loader = FileLoader(RealDisk(), tmp_path / folder, schema, settings)
        for batch in given:
            loader.add_rows(batch)
        files.append([(tmp_path / folder / meta.name).read_bytes() for meta in loader.finish()])
    assert files[0] == files[1]


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_column_is_the_same_in_every_type(seed: int) -> None:
    rng = random.Random(seed)
    batch = batch_of(rng)
    for given in (batch, sent(rng, batch)):
        for name in ("key", "a", "b", "c"):
            values, plain = given.column(name), batch.column(name)
            coded = in_type(values, SENT_TEXTS)
            assert coded.type == SENT_TEXTS
            assert in_type(values, pa.string()).equals(plain)
            assert plain_texts(coded).equals(plain)
            assert saves_work(coded) or set(coded.dictionary.to_pylist()) == {*plain.to_pylist()} - {None}


def test_memory_counts_what_dictionaries_stand_for() -> None:
    """A few long texts may stand for many bytes of a file."""
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0] * 100, pa.int32()), ["x" * 200, "y"])
    table = pa.table({"a": coded, "b": pa.array(range(400), pa.int64())})
    assert plain_bytes(table) == table.nbytes + 100 * (2 * 200 + 1)
