"""The most frequent values: every count within its bounds and none missing, however sketches were merged."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import date
from decimal import Decimal

import datasketches
import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from rtolap.aggregates.approx_top_k import FrequentValues
from rtolap.base.errors import Corrupted, DefinitionError, RtolapError
from rtolap.columnar.top_k import Frequency, most_frequent, read_sketch, sketch_frequencies, unite_frequencies
from rtolap.model.cube import Measure
from rtolap.model.validation.definition import validate_schema
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.engine_functions.top_k import top_k_json
from rtolap.query.functions.names import unknown_function
from rtolap.query.sql.dialect import RtolapSql
from rtolap.query.sql.rules import Context, rewrite

from tests.support.aggregates.measured import SCHEMA, made_schema
from tests.support.seeds import so_many

ONE = np.zeros(1, np.int64)


@pytest.mark.parametrize("k", [8, 12, 13, 200, 384, 385, 4096])
def test_the_stated_error_is_the_librarys_and_k_values_fit(k: int) -> None:
    values = FrequentValues(k)
    assert values.count_error == datasketches.frequent_strings_sketch.get_epsilon_for_lg_size(values.lg_size)
    assert k <= values.values_max
    assert values.lg_size == 3 or FrequentValues(k).values_max < 2 * k + 6
    numbers = [*range(values.values_max), 0, 0]
    (image,) = sketch_frequencies(
        pa.array(numbers), np.zeros(len(numbers), np.int64), 1, values.lg_size
    ).to_pylist()
    assert len(image) <= values.sketch_bytes
    first, *rest = most_frequent([image], 1 << 20)
    assert first == Frequency("0", 3, 3, 3)
    assert {each[1:] for each in rest} == {(1, 1, 1)}


def _drawn(rng: np.random.Generator, stream: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    if stream == "skewed":
        spread = rng.choice([0.5, 0.9, 1.5])
        return np.minimum(rng.pareto(spread, 30_000), 1e6).astype(np.int64)
    if stream == "distinct":
        return rng.permutation(int(rng.integers(13, 3_000)))
    return np.repeat(rng.permutation(int(rng.integers(13, 1_000))), rng.integers(2, 5))


@pytest.mark.parametrize("seed", range(so_many(4)))
@pytest.mark.parametrize("k", [8, 50, 200])
@pytest.mark.parametrize("stream", ["skewed", "distinct", "equal"])
def test_any_merge_keeps_the_bounds_and_misses_no_frequent_value(seed: int, k: int, stream: str) -> None:
    """Equal counts empty the tables of sketches, which write nothing then, not even their error."""
    rng = np.random.default_rng(seed)
    form = FrequentValues(k)
    values = _drawn(rng, stream)
    groups = rng.integers(0, 3, len(values))
    merged = None
    for piece in np.array_split(np.arange(len(values)), rng.integers(2, 40)):
        fresh = sketch_frequencies(pa.array(values[piece]), groups[piece], 3, form.lg_size)
        both = fresh if merged is None else pa.concat_arrays([merged, fresh])
        merged = unite_frequencies(both, np.arange(len(both)) % 3, 3, form.lg_size)
    assert merged is not None
    for group, image in enumerate(merged.to_pylist()):
        counts = Counter(map(str, values[groups == group].tolist()))
        assert read_sketch(image).total_weight == counts.total()
        held = most_frequent([image], form.values_max)
        error = held[0].upper - held[0].lower
        assert error <= form.count_error * counts.total()
        for each in held:
            assert each.lower <= counts[each.value] <= each.upper == each.estimate
        missing = set(counts) - {each.value for each in held}
        assert all(counts[value] <= error for value in missing)
        top = most_frequent([image], 5)
        assert top == sorted(held, key=lambda each: (-each.estimate, each.value))[:5]
        beyond = set(counts) - {each.value for each in top}
        assert all(counts[value] <= top[-1].estimate for value in beyond)


@pytest.mark.parametrize("k", [8, 12, 50, 200])
@pytest.mark.parametrize("more", range(4))
def test_a_sketch_that_has_taken_off_all_values_keeps_its_error_and_its_weight(k: int, more: int) -> None:
    """One value more than fit, each once: the table is empty then. What comes after it is merged with it."""
    form = FrequentValues(k)
    values = [f"v{number}" for number in range(3 * (1 << form.lg_size) // 4 + 1)]
    (image,) = sketch_frequencies(
        pa.array(values), np.zeros(len(values), np.int64), 1, form.lg_size
    ).to_pylist()
    (held,) = most_frequent([image], 10)
    assert (held.lower, held.upper) == (1, 2)
    assert read_sketch(image).total_weight == len(values)
    later = pa.array(["v0"] * more, pa.string())
    fresh = sketch_frequencies(later, np.zeros(more, np.int64), 1, form.lg_size)
    empty = sketch_frequencies(pa.array([], pa.string()), np.zeros(0, np.int64), 1, form.lg_size)
    both = pa.concat_arrays([fresh, pa.array([image], pa.binary()), empty, pa.array([image], pa.binary())])
    (merged,) = unite_frequencies(both, np.zeros(4, np.int64), 1, form.lg_size).to_pylist()
    assert read_sketch(merged).total_weight == 2 * len(values) + more
    found = {each.value: each for each in most_frequent([merged], 100)}
    if more:
        assert found["v0"].lower <= 2 + more <= found["v0"].upper
    assert all(each.lower <= (2 + more if each.value == "v0" else 2) <= each.upper for each in found.values())


def test_few_values_are_exact_whatever_was_merged_first() -> None:
    rng = random.Random(3)
    words = [rng.choice(["", "a", "日本", "b" * 300, *map(str, range(100))]) for _ in range(2000)]
    sketches = [
        sketch_frequencies(pa.array(words[at : at + 100]), np.zeros(100, np.int64), 1, 9)
        for at in range(0, 2000, 100)
    ]
    expected = sorted(
        (Frequency(word[:256], n, n, n) for word, n in Counter(words).items()),
        key=lambda each: (-each.estimate, each.value),
    )
    for _ in range(3):
        rng.shuffle(sketches)
        images = [image for sketch in sketches for image in sketch.to_pylist()]
        assert most_frequent([None, *images], 1000) == expected
        both = unite_frequencies(pa.array([*images, None]), np.zeros(21, np.int64), 1, 9).to_pylist()
        assert most_frequent(both, 1000) == expected


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([Decimal("0.00000001"), Decimal("-12.50000000")]), ["-12.50000000", "0.00000001"]),
        (pa.array([True, False]), ["false", "true"]),
        (pa.array([date(2013, 1, 2), date(1950, 12, 31)]), ["1950-12-31", "2013-01-02"]),
        (pa.array([-1, 1 << 62]), ["-1", "4611686018427387904"]),
        (pa.array(["x", "é", "x"]).dictionary_encode(), ["x", "é"]),
    ],
)
def test_values_are_written_in_full(column: pa.Array, texts: list[str]) -> None:
    images = sketch_frequencies(column, np.zeros(len(column), np.int64), 1, 3).to_pylist()
    assert [each.value for each in most_frequent(images, 10)] == texts


def test_the_answer_is_json_with_bounds() -> None:
    images = sketch_frequencies(pa.array(['"q"', "ü", "ü"]), np.zeros(3, np.int64), 1, 3).to_pylist()
    answers = top_k_json(
        pa.array([images, images, [None], None, images], pa.list_(pa.binary())), pa.array([9, 1, 9, 9, 0])
    )
    text, first, *none = answers.to_pylist()
    assert text == (
        '[{"value": "ü", "estimate": 2, "lower": 2, "upper": 2}, '
        '{"value": "\\"q\\"", "estimate": 1, "lower": 1, "upper": 1}]'
    )
    assert json.loads(first) == json.loads(text)[:1]
    assert none == [None, None, None]


def test_bytes_are_those_of_the_library() -> None:
    (image,) = sketch_frequencies(pa.array(["a"]), ONE, 1, 5).to_pylist()
    other = datasketches.frequent_strings_sketch(5)
    other.update("a")
    assert image == other.serialize()


BROKEN = (
    b"",
    b"\x04",
    b"x" * 40,
    bytes.fromhex("01010a3f3f050000"),  # a table of 2^63 places
    bytes.fromhex("01010a1515050000"),  # one of 2^21, which no sketch of ours has
    bytes.fromhex("04010a0303000000ffffffff00000000") + bytes(16),  # more values than bytes
    datasketches.kll_doubles_sketch(8).serialize(),
)


@pytest.mark.parametrize("image", BROKEN, ids=range(len(BROKEN)))
def test_other_bytes_are_named(image: bytes) -> None:
    with pytest.raises(Corrupted, match="no frequent-items sketch"):
        read_sketch(image)
    with pytest.raises(Corrupted, match="no frequent-items sketch"):
        unite_frequencies(pa.array([image]), ONE, 1, 9)
    with pytest.raises(Corrupted, match="no frequent-items sketch"):
        top_k_json(pa.array([[image]]), pa.array([5]))


@pytest.mark.parametrize("seed", range(so_many(3)))
def test_sketches_with_changed_bytes_are_read_or_named(seed: int) -> None:
    rng = random.Random(seed)
    words = [f"w{rng.randrange(40)}" for _ in range(200)]
    (image,) = sketch_frequencies(pa.array(words), np.zeros(200, np.int64), 1, 5).to_pylist()
    named = 0
    for _ in range(300):
        changed = bytearray(image)
        changed[rng.randrange(len(changed))] = rng.randrange(256)
        try:
            most_frequent([bytes(changed)[: rng.choice((len(image), rng.randrange(len(image))))]], 10)
        except Corrupted:
            named += 1
    assert named


def test_what_does_not_fit_is_refused_when_it_is_declared() -> None:
    for k in (7, 4097):
        with pytest.raises(DefinitionError, match=r"k: out of bounds.*8 to 4096"):
            validate_schema(made_schema((Measure("approx_top_k", "text", k=k),)))
    with pytest.raises(DefinitionError, match=r"approx_top_k does not fit .*texts, whole numbers"):
        validate_schema(made_schema((Measure("approx_top_k", "rate"),)))
    validate_schema(made_schema((Measure("approx_top_k", "text", k=8),)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("APPROX_TOP_K(text, 0)", "expected a whole number from 1 to 4096"),
        ("APPROX_TOP_K(text, 4097)", "expected a whole number from 1 to 4096"),
        ("APPROX_TOP_K(text, 2.5)", "expected a whole number from 1 to 4096"),
        ("APPROX_TOP_K(text, region)", "the same for all rows"),
        ("APPROX_TOP_K(region, 3)", "cannot answer"),
        ("APPROX_TOP_K(rate, 3)", "measure is not declared"),
        ("APPROX_TOP_K(text, 1, 2)", "takes a column and how many values"),
    ],
)
def test_what_cannot_be_answered_says_why(call: str, message: str) -> None:
    context = Context(QueryCatalogue(cubes={"measured": SCHEMA}), lambda node: node.this)
    with pytest.raises(RtolapError, match=message):
        rewrite(sqlglot.parse_one(f"SELECT {call} FROM measured", dialect=RtolapSql), context)


def test_of_rows_that_are_no_cubes_it_says_what_to_write_instead() -> None:
    assert "GROUP BY x ORDER BY n DESC" in str(unknown_function("approx_top_k"))
