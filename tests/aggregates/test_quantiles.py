"""Quantiles: within the error that is stated for k, in the public format, however sketches were merged."""

from __future__ import annotations

import random

import datasketches
import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from rtolap.aggregates.approx_percentile import Quantiles
from rtolap.base.errors import Corrupted, DefinitionError, QueryError
from rtolap.columnar.kll import quantile, read_sketch, sketch_groups, unite_groups
from rtolap.model.cube import Measure
from rtolap.model.validation.definition import validate_schema
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.engine_functions.quantiles import kll_quantile
from rtolap.query.sql.dialect import RtolapSql
from rtolap.query.sql.rules import Context, rewrite

from tests.support.aggregates.measured import SCHEMA, made_schema
from tests.support.seeds import so_many

RANKS = (0.0, 0.01, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)


@pytest.mark.parametrize("k", [8, 50, 200, 1000])
def test_the_stated_error_is_the_librarys(k: int) -> None:
    assert Quantiles(k).rank_error == pytest.approx(
        datasketches.kll_doubles_sketch(k).normalized_rank_error(False)
    )


@pytest.mark.parametrize("seed", range(so_many(3)))
@pytest.mark.parametrize("k", [20, 200])
def test_any_merge_keeps_the_error(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.choice([rng.normal(0, 1000, 30_000).round(), rng.pareto(1.0, 30_000)], axis=0)
    groups = rng.integers(0, 3, len(values))
    pieces = np.array_split(np.arange(len(values)), rng.integers(2, 40))
    merged = None
    for piece in pieces:
        fresh = sketch_groups(pa.array(values[piece]), groups[piece], 3, k)
        both = fresh if merged is None else pa.concat_arrays([merged, fresh])
        merged = unite_groups(both, np.arange(len(both)) % 3, 3, k)
    assert merged is not None
    for group, image in enumerate(merged.to_pylist()):
        own = np.sort(values[groups == group])
        sketch = read_sketch(image)
        assert (sketch.n, sketch.k) == (len(own), k)
        assert len(image) <= Quantiles(k).sketch_bytes
        for rank in RANKS:
            found = quantile([image], rank)
            below, upto = np.searchsorted(own, found, "left"), np.searchsorted(own, found, "right")
            error = 2 * Quantiles(k).rank_error  # it is stated at 99 % confidence, and here are many
            assert below / len(own) - error <= rank <= upto / len(own) + error


def test_few_values_are_all_kept_and_exact() -> None:
    numbers = random.Random(1).sample(range(1000), 100)
    image = sketch_groups(pa.array([*numbers, None]), np.zeros(101, np.int64), 1, 200).to_pylist()
    ordered = sorted(numbers)
    for rank in RANKS:
        place = max(0, -(-int(rank * 10_000) // 100) - 1)
        assert quantile(image, rank) == ordered[place]


def test_bytes_are_those_of_the_library() -> None:
    (image,) = sketch_groups(pa.array([3, 1, 2]), np.zeros(3, np.int64), 1, 100).to_pylist()
    other = datasketches.kll_doubles_sketch(100)
    for value in (3.0, 1.0, 2.0):
        other.update(value)
    assert image == other.serialize()


@pytest.mark.parametrize("image", [b"", b"x", b"\0" * 40, b"\x02\x02\x0f\x04\xc8\x00\x08\x00\x00"])
def test_other_bytes_are_named(image: bytes) -> None:
    with pytest.raises(Corrupted, match="no KLL sketch"):
        read_sketch(image)
    with pytest.raises(Corrupted, match="no KLL sketch"):
        unite_groups(pa.array([image]), np.zeros(1, np.int64), 1, 200)
    with pytest.raises(Corrupted, match="no KLL sketch"):
        kll_quantile(pa.array([[image]]), pa.array([0.5]))


def test_ks_beyond_the_bounds_are_refused() -> None:
    for k in (7, 4097):
        with pytest.raises(DefinitionError, match=r"k: out of bounds.*8 to 4096"):
            validate_schema(made_schema((Measure("approx_percentile", "price", k=k),)))
    validate_schema(made_schema((Measure("approx_percentile", "price", k=8),)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("APPROX_PERCENTILE(price, 1.5)", "expected a number from 0 to 1"),
        ("APPROX_PERCENTILE(price, 'x')", "expected a number from 0 to 1"),
        ("APPROX_PERCENTILE(price, region)", "the same for all rows"),
        ("APPROX_PERCENTILE(region, 0.5)", "cannot answer"),
        ("APPROX_PERCENTILE(text, 0.5)", "measure is not declared"),
    ],
)
def test_what_cannot_be_answered_says_why(call: str, message: str) -> None:
    tree = sqlglot.parse_one(f"SELECT {call} FROM measured", dialect=RtolapSql)
    context = Context(QueryCatalogue(cubes={"measured": SCHEMA}), lambda node: node.this)
    with pytest.raises(QueryError, match=message):
        rewrite(tree, context)
