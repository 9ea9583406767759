"""Every page of a file that cubes write has a checksum, and no reader takes a page that does not match it."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from rtolap.cubes.format.build_batch import encoded
from rtolap.cubes.format.pages import WRITTEN, open_parquet, parquet_format

from tests.support.hostile.damage import change_bit, column_spans

ROWS = 20_000
DICE = np.random.default_rng(7)
TABLE = pa.table(
    {
        "number": DICE.integers(0, 1 << 60, ROWS),
        "text": pa.array(DICE.integers(0, 1000, ROWS)).cast(pa.string()),
        "amount": pa.array(DICE.integers(0, 10**6, ROWS)).cast(pa.decimal128(38, 2)),
    }
)


def written_at_once(file: Path) -> None:
    pq.write_table(TABLE, file, **WRITTEN)


def written_by_batches(file: Path) -> None:
    file.write_bytes(encoded(TABLE.schema, TABLE.to_batches(5_000))[0])


def read_as_a_file(file: Path) -> pa.Table:
    return open_parquet(file).read(use_threads=False)


def read_as_a_data_set(file: Path) -> pa.Table:
    return ds.dataset(file, format=parquet_format()).to_table()


@pytest.mark.parametrize("write", [written_at_once, written_by_batches])
@pytest.mark.parametrize("read", [read_as_a_file, read_as_a_data_set])
def test_a_bit_of_any_value_that_changes_is_noticed(tmp_path: Path, write: Any, read: Any) -> None:
    dice, file = random.Random(7), tmp_path / "file.parquet"
    write(file)
    assert read(file).equals(TABLE)
    unnoticed, problems = 0, []
    for _ in range(40):
        begin, end = dice.choice(column_spans(file, dice.choice(TABLE.column_names)))
        at, bit = dice.randrange((begin + end) // 2, end), dice.randrange(8)  # behind the first header
        change_bit(file, at, bit)
        with suppress(OSError, pa.ArrowException):
            unnoticed += not pq.read_table(file).equals(TABLE)
        try:
            assert read(file).equals(TABLE), "a page's header says what no read needs"
        except OSError as error:
            problems.append(str(error))
        change_bit(file, at, bit)
    assert all("checksum" in problem or "page header" in problem for problem in problems), problems
    assert unnoticed > 3, "pyarrow alone notices few of them"
    assert read(file).equals(TABLE)
