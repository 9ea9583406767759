"""Uniting sketches group by group gives the bytes that uniting each group by itself gives."""

from __future__ import annotations

import datasketches
import numpy as np
import pyarrow as pa
import pytest
from rtolap.base.errors import Corrupted
from rtolap.columnar.hll_groups import merge_groups
from rtolap.columnar.hll_image import image_of_coupons, merge_sketches

KINDS = [datasketches.tgt_hll_type.HLL_4, datasketches.tgt_hll_type.HLL_6, datasketches.tgt_hll_type.HLL_8]


def random_image(rng: np.random.Generator) -> bytes | None:
    """Ours and DataSketches' own: lists, sets, registers of all widths, compact and updatable."""
    lg_k = int(rng.choice([4, 8, 10, 12]))
    count = int(rng.choice([0, 1, 5, 8, 40, 300, 5_000]))
    values = rng.integers(0, 8_000, count)
    match int(rng.integers(0, 4)):
        case 0:
            return None
        case 1:
            coupons = (values.astype(np.uint32) * np.uint32(2_654_435_761)) | np.uint32(1 << 26)
            return image_of_coupons(coupons, lg_k)
    sketch = datasketches.hll_sketch(lg_k, KINDS[int(rng.integers(0, 3))])
    for value in values:
        sketch.update(int(value))
    compact = bool(rng.integers(0, 2))
    return bytes(sketch.serialize_compact() if compact else sketch.serialize_updatable())


@pytest.mark.parametrize("seed", range(6))
def test_groups_are_united_as_each_would_be_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, size = 120, 17
    images = [random_image(rng) for _ in range(rows)]
    groups = rng.integers(0, size - 1, rows)  # the last group stays empty
    expected = []
    for number in range(size):
        mine = [image for image, group in zip(images, groups, strict=True) if group == number]
        present = [image for image in mine if image is not None]
        expected.append(merge_sketches(present) if present else None)
    whole = pa.array(images, pa.binary())
    assert merge_groups(whole, groups, size).to_pylist() == expected
    cut = int(rng.integers(1, rows))
    pieces = pa.chunked_array([pa.array(images[:cut], pa.binary()), whole.slice(cut)])
    assert merge_groups(pieces, groups, size).to_pylist() == expected


def test_no_rows_and_no_groups() -> None:
    none = np.zeros(0, np.int64)
    assert merge_groups(pa.array([], pa.binary()), none, 0).to_pylist() == []
    assert merge_groups(pa.chunked_array([], pa.binary()), none, 2).to_pylist() == [None, None]
    assert merge_groups(pa.array([None], pa.binary()), np.zeros(1, np.int64), 1).to_pylist() == [None]


@pytest.mark.parametrize(
    "damage",
    [
        lambda image: b"",
        lambda image: image[:7],
        lambda image: image[:-1],
        lambda image: b"\x00" + image[1:],
        lambda image: image[:1] + b"\x09" + image[2:],
        lambda image: image[:3] + b"\x1f" + image[4:],
        lambda image: b"no sketch at all",
    ],
)
@pytest.mark.parametrize("count", [3, 100, 9_000])
def test_damaged_bytes_are_refused_and_never_counted(count: int, damage: object) -> None:
    assert callable(damage)
    coupons = np.arange(1, count + 1, dtype=np.uint32) * np.uint32(7_919) | np.uint32(1 << 26)
    image = image_of_coupons(coupons, 12)
    for images in ([damage(image)], [image, damage(image), image]):
        with pytest.raises(Corrupted):
            merge_groups(pa.array(images, pa.binary()), np.zeros(len(images), np.int64), 1)
