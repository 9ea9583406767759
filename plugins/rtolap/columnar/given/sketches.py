"""Columns of given sketches: text to bytes, bytes to sketches of one size, a reason for each misfit."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping

import pyarrow as pa

from rtolap.aggregates.accumulator import GivenForm, SketchFamily
from rtolap.columnar.given.fault import GivenSketchFault
from rtolap.columnar.given.frequent_items import read_frequent_items
from rtolap.columnar.given.hll import read_hll
from rtolap.columnar.given.kll import read_kll

_READERS: Mapping[SketchFamily, Callable[[bytes, int], bytes | None]] = {
    "hll": read_hll,
    "kll": read_kll,
    "frequent_items": read_frequent_items,
}


def given_sketches(
    images: pa.BinaryArray, form: GivenForm
) -> tuple[pa.BinaryArray, dict[int, GivenSketchFault]]:
    """Return the sketches in the measure's size, and the faults by row; there and of empty sketches null."""
    read = _READERS[form.family]
    found: list[bytes | None] = []
    faults: dict[int, GivenSketchFault] = {}
    for row, image in enumerate(images.to_pylist()):
        try:
            found.append(None if image is None else read(image, form.size))
        except GivenSketchFault as fault:
            found.append(None)
            faults[row] = fault
    return pa.array(found, pa.binary()), faults


def bytes_of_base64(texts: pa.StringArray) -> pa.BinaryArray:
    """Return the bytes of texts in base64, null where a text is none. Padding is asked for."""
    return pa.array([None if text is None else _bytes_of(text) for text in texts.to_pylist()], pa.binary())


def _bytes_of(text: str) -> bytes | None:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):  # the second of letters beyond ASCII
        return None
