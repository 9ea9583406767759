"""Sketches drawn with the public library in every form that it writes, and what it says of bytes."""

from __future__ import annotations

import random
from typing import Any

import datasketches
import numpy as np
from rtolap.aggregates.accumulator import SketchFamily

KINDS = (datasketches.tgt_hll_type.HLL_4, datasketches.tgt_hll_type.HLL_6, datasketches.tgt_hll_type.HLL_8)
FAMILIES: tuple[SketchFamily, ...] = ("hll", "kll", "frequent_items")
_ALL = datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES
RANKS = np.linspace(0.05, 0.95, 7)


def drawn_sketch(rng: random.Random, family: SketchFamily, size_min: int) -> bytes:
    """Return the bytes of a sketch of some values, or of none, at least as large as asked for."""
    match family:
        case "hll":
            lg_k, kind = rng.randint(size_min, 12), rng.choice(KINDS)
            sketch = _hll(rng, lg_k)
            if rng.random() < 0.4:
                union = datasketches.hll_union(rng.randint(lg_k, 14))
                union.update(sketch)
                union.update(_hll(rng, rng.randint(lg_k, 12)))
                sketch = union.get_result(kind)
            updatable = rng.random() < 0.5
            return bytes(sketch.serialize_updatable() if updatable else sketch.serialize_compact())
        case "kll":
            merged = datasketches.kll_doubles_sketch(rng.choice([size_min, size_min + 7, 2 * size_min]))
            for _ in range(rng.choice([1, 1, 3])):
                part = datasketches.kll_doubles_sketch(rng.choice([size_min, 3 * size_min]))
                part.update(
                    np.array([rng.gauss(0, 100) for _ in range(rng.choice([0, 1, 2, 30, 2000]))], float)
                )
                merged.merge(part)
            return bytes(merged.serialize())
        case "frequent_items":
            items = datasketches.frequent_strings_sketch(rng.randint(size_min, 10))
            for _ in range(rng.choice([0, 1, 10, 2000])):
                items.update(f"ä{int(rng.paretovariate(0.5)) % 10**6}", rng.randint(1, 3))
            return bytes(items.serialize())


def _hll(rng: random.Random, lg_k: int) -> Any:
    sketch = datasketches.hll_sketch(lg_k, rng.choice(KINDS))
    for _ in range(rng.choice([0, 1, 7, 8, 40, 300, 3000])):
        sketch.update(rng.getrandbits(40))
    return sketch


def said(family: SketchFamily, image: bytes, size: int) -> Any:
    """Return what the library says of a sketch once it is brought to this size; None of no values.

    Of a KLL sketch larger than `size` that is its number of values and its bounds, for the rest is chance.
    """
    match family:
        case "hll":
            union = datasketches.hll_union(size)
            union.update(datasketches.hll_sketch.deserialize(image))
            found = union.get_result(datasketches.tgt_hll_type.HLL_8)
            return None if found.is_empty() else _registers(bytes(found.serialize_compact()))
        case "kll":
            sketch = datasketches.kll_doubles_sketch.deserialize(image)
            if sketch.is_empty():
                return None
            bounds = sketch.n, sketch.get_min_value(), sketch.get_max_value()
            return bounds if sketch.k != size else (*bounds, *sketch.get_quantiles(RANKS))
        case "frequent_items":
            items = datasketches.frequent_strings_sketch.deserialize(image)
            if items.is_empty():
                return None
            if image[3] != size:
                smaller = datasketches.frequent_strings_sketch(size)
                smaller.merge(items)
                items = smaller
            return items.total_weight, {each[0]: each[1:] for each in items.get_frequent_items(_ALL)}


def _registers(image: bytes) -> tuple[int, bytes]:
    """Return lg_k and the registers of a compact HLL_8 sketch."""
    lg_k, mode = image[3], image[7] & 3
    if mode == 2:
        return lg_k, image[40:]
    registers = bytearray(1 << lg_k)
    for at in range(8 if mode == 0 else 12, len(image), 4):
        coupon = int.from_bytes(image[at : at + 4], "little")
        slot = coupon & (1 << lg_k) - 1
        registers[slot] = max(registers[slot], coupon >> 26)
    return lg_k, bytes(registers)
