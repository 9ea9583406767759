"""Coupons and images against the datasketches package."""

import random
from datetime import date
from decimal import Decimal
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pytest
from rtolap.base.errors import Corrupted
from rtolap.columnar.hll import coupons
from rtolap.columnar.hll_image import (
    _parse,
    coupon_mode_max,
    estimate,
    image_of_coupons,
    merge_sketches,
    prune_coupons,
    sketches_from_coupons,
    sorted_distinct,
)

HLL_8 = datasketches.tgt_hll_type.HLL_8
_RNG = random.Random(11)
STRINGS = ["".join(_RNG.choices("aé✓𝄞0", k=_RNG.randrange(1, 70))) for _ in range(2000)]
COLUMNS: list[tuple[list[Any], pa.DataType]] = [
    (STRINGS, pa.string()),
    ([_RNG.randrange(-(2**63), 2**63) for _ in range(1500)], pa.int64()),
    (list(range(-300, 300)), pa.int32()),
    ([_RNG.uniform(-1e300, 1e300) for _ in range(900)] + [0.0, -0.0, 1.5], pa.float64()),
    ([f"user-{number}" for number in range(6)], pa.string()),
    ([], pa.string()),
]


def _coupons_of_image(image: bytes) -> Any:
    """Return the coupons of a LIST or SET image, sorted; None when it holds registers."""
    _, coupons, _ = _parse(image)
    return None if coupons is None else sorted_distinct(coupons)


def _reference(values: list[Any], lg_k: int) -> datasketches.hll_sketch:
    sketch = datasketches.hll_sketch(lg_k, HLL_8)
    for value in values:
        sketch.update(value)
    return sketch


def _coupons(values: list[Any], kind: pa.DataType) -> Any:
    return coupons(pa.array(values, kind)).drop_null().to_numpy()


@pytest.mark.parametrize("lg_k", [4, 7, 8, 11, 12, 16])
@pytest.mark.parametrize("column", range(len(COLUMNS)))
def test_an_image_holds_what_datasketches_would_hold(column: int, lg_k: int) -> None:
    values, kind = COLUMNS[column]
    ours = image_of_coupons(_coupons(values, kind), lg_k)
    theirs = _reference(values, lg_k).serialize_compact()
    assert len(ours) == len(theirs)
    assert ours[:3] + ours[7:8] == theirs[:3] + theirs[7:8]
    if _coupons_of_image(ours) is None:
        assert ours[40:] == theirs[40:]
    else:
        assert np.array_equal(_coupons_of_image(ours), _coupons_of_image(theirs))
    assert estimate(ours) == estimate(theirs) == datasketches.hll_sketch.deserialize(ours).get_estimate()


@pytest.mark.parametrize("lg_k", [4, 8, 12])
def test_the_mode_changes_at_the_count_at_which_datasketches_changes_it(lg_k: int) -> None:
    for count in range(coupon_mode_max(lg_k) - 2, coupon_mode_max(lg_k) + 4):
        values = list(range(count))
        ours = image_of_coupons(_coupons(values, pa.int64()), lg_k)
        assert ours[7] == _reference(values, lg_k).serialize_compact()[7], count


@pytest.mark.parametrize(
    ("values", "kind", "same_as"),
    [
        ([True, False, None], pa.bool_(), [1, 0]),
        ([date(1970, 1, 3)], pa.date32(), [2]),
        ([5, None], pa.timestamp("us"), [5]),
        ([Decimal("1.50"), None], pa.decimal128(10, 2), ["1.50"]),
        (["", None, "a"], pa.string(), ["a"]),
    ],
)
def test_other_types_hash_as_documented(values: list[Any], kind: pa.DataType, same_as: list[Any]) -> None:
    theirs = _reference(same_as, 12).serialize_compact()
    assert np.array_equal(np.unique(_coupons(values, kind)), _coupons_of_image(theirs))


def test_nulls_and_empty_strings_have_no_coupon() -> None:
    assert coupons(pa.array(["a", "", None, "b"])).is_null().to_pylist() == [False, True, True, False]
    sliced = pa.array(["x", "a", None, "b"])[1:]
    assert coupons(sliced).to_pylist() == coupons(pa.array(["a", None, "b"])).to_pylist()
    assert (
        coupons(pa.array(["a", None]).dictionary_encode()).to_pylist()
        == coupons(pa.array(["a", None])).to_pylist()
    )


@pytest.mark.parametrize("lg_k", [4, 8, 12])
@pytest.mark.parametrize("seed", range(5))
def test_merging_is_a_function_of_the_set_alone(seed: int, lg_k: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 3000, int(rng.integers(1, 5000)))
    whole = image_of_coupons(_coupons(values.tolist(), pa.int64()), lg_k)
    pieces = [
        image_of_coupons(_coupons(part.tolist(), pa.int64()), lg_k)
        for part in np.array_split(values, 1 + seed * 3)
    ]
    assert merge_sketches(pieces) == whole
    assert merge_sketches(rng.permutation(np.array(pieces, object)).tolist()) == whole
    assert merge_sketches([whole, whole]) == whole


def test_images_of_other_writers_merge_too() -> None:
    values = list(range(900))
    wanted = image_of_coupons(_coupons(values, pa.int64()), 10)
    for kind in (datasketches.tgt_hll_type.HLL_4, datasketches.tgt_hll_type.HLL_6, HLL_8):
        sketch = datasketches.hll_sketch(10, kind)
        for value in values:
            sketch.update(value)
        assert merge_sketches([sketch.serialize_compact()]) == wanted
        assert merge_sketches([sketch.serialize_updatable()]) == wanted
    few = _reference(values[:40], 10)
    assert merge_sketches([few.serialize_updatable()]) == image_of_coupons(
        _coupons(values[:40], pa.int64()), 10
    )


def test_a_union_takes_the_smaller_size() -> None:
    values = list(range(5000))
    large, small = (image_of_coupons(_coupons(values, pa.int64()), lg_k) for lg_k in (12, 9))
    assert merge_sketches([large, small]) == small


@pytest.mark.parametrize("lg_k", [4, 6, 9])
def test_pruning_bounds_the_list_and_changes_no_image(lg_k: int) -> None:
    found = _coupons(list(range(20_000)), pa.int64())
    pruned = prune_coupons(found, lg_k)
    assert len(pruned) <= 1 << lg_k
    assert image_of_coupons(pruned, lg_k) == image_of_coupons(found, lg_k)
    more = _coupons(list(range(15_000, 40_000)), pa.int64())
    assert image_of_coupons(np.concatenate((pruned, more)), lg_k) == image_of_coupons(
        np.concatenate((found, more)), lg_k
    )


def test_many_lists_become_many_images() -> None:
    lists = [[], list(range(1, 4)), None, list(range(1, 2000))]
    hashed = [None if part is None else _coupons(part, pa.int64()).tolist() for part in lists]
    images = sketches_from_coupons(pa.array(hashed, pa.list_(pa.uint32())), 10).to_pylist()
    assert images == [image_of_coupons(_coupons(part or [], pa.int64()), 10) for part in lists]


@pytest.mark.parametrize("data", [b"", b"12345678", bytes(40), b"\x0a\x01\x07\x0c" + bytes(40)])
def test_other_bytes_are_corrupted(data: bytes) -> None:
    good = image_of_coupons(_coupons(list(range(9999)), pa.int64()), 12)
    with pytest.raises(Corrupted):
        estimate(data)
    with pytest.raises(Corrupted):
        estimate(good[:-1])
