"""Large files are filtered by Arrow's expressions, small ones by columns: both keep the same rows."""

from __future__ import annotations

import random

import pyarrow.dataset as ds
import pytest
from rtolap.columnar.filter import mask
from rtolap.query.cubes.arrow_filter import arrow_filter

from tests.support.query.on_spark.drawn_reads import SCHEMA, drawn_predicate, drawn_table
from tests.support.seeds import so_many


@pytest.mark.seeded
def test_drawn_conditions_keep_the_same_rows_of_large_and_of_small_files() -> None:
    for seed in range(so_many(300)):
        rng = random.Random(seed)
        table, condition = drawn_table(rng, 40, full=False), drawn_predicate(rng)
        wanted = table.filter(mask(table, condition))
        found = ds.dataset(table).to_table(filter=arrow_filter(condition, SCHEMA))
        assert found.column("__rows").to_pylist() == wanted.column("__rows").to_pylist(), (seed, condition)
