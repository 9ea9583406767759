"""Fragments on local disk; see FORMAT.md."""
from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa

from rtolap.model.cube import Schema
from rtolap.model.predicate import Predicate, Scalar

SUFFIX = ".fragment"


class ColumnRange(msgspec.Struct, frozen=True):
    """Smallest and largest non-null value as predicate scalars (None: no non-null value), number of nulls."""

    min: Scalar
    max: Scalar
    nulls: int


class FragmentInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    rows: int
    events: int  # sum of __rows
    bytes: int  # both files
    ranges: dict[str, ColumnRange]  # per dimension, time dimensions included


class Selection(NamedTuple):
    """Rows kept; how many were looked at and how many the indexes spared."""

    table: pa.Table
    rows_scanned: int
    rows_pruned: int


class Fragment:
    info: FragmentInfo
    table: pa.Table  # local form, memory-mapped

    def select(self, predicate: Predicate | None) -> Selection:
        raise NotImplementedError


def write_fragment(folder: Path, name: str, table: pa.Table, schema: Schema) -> FragmentInfo:
    """Durable when it returns; `<name>.arrow` first, `<name>.fragment` (which makes it exist) last."""
    raise NotImplementedError


def open_fragment(path: Path, *, verify: bool) -> Fragment:
    """`path` is the `.fragment` file. Corrupted / NotFound."""
    raise NotImplementedError


def delete_fragment(folder: Path, name: str) -> None:
    raise NotImplementedError


def can_match(ranges: dict[str, ColumnRange], predicate: Predicate | None) -> bool:
    """False when no row with these ranges can be kept."""
    raise NotImplementedError
