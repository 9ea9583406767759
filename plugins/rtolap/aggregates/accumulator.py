"""The value that an aggregate keeps for a group of events: its beginning, its merge and its bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeVar

import msgspec

from rtolap.column_types import ColumnType, Kind

C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)

Algebra = Literal["sum", "count", "pick"]  # see `Accumulator.algebra`
SketchFamily = Literal["hll", "kll", "frequent_items"]  # of Apache DataSketches
SquarePart = Literal["low", "high"]  # the lowest 32 bits of a square, or those above them
LG_MAX_MIN, LG_MAX_MAX = 4, 22  # of a set's values
TEXT_SET_BYTES_MAX = 16 << LG_MAX_MAX  # 64 MiB: as much as the widest numbers may take
SET_MARK = 0xFE  # the first byte of what stands for too large a set; no set begins with it


@dataclass(frozen=True)
class Fold:
    """A merge of 64-bit numbers, one with the other.

    Attributes:
        ufunc: name of the binary function of numpy that merges two of them.
        neutral: the number that changes none it is merged with, from -2^63 to 2^63 - 1.
    """

    ufunc: str
    neutral: int


@dataclass(frozen=True)
class Coupons:
    """The form of a sketch in a receiver: a list of HLL coupons. `lg_k`: of the sketch it becomes."""

    lg_k: int


@dataclass(frozen=True)
class SetForm:
    """The form in which a set of values is bytes, see `aggregates.count_distinct`.

    Attributes:
        width: bytes of a code; 0 for texts, whose codes differ in length.
        lg_max: a set has at most 2^lg_max values.
        column: the name that the mark of too many values gives.
    """

    width: int
    lg_max: int
    column: str

    @property
    def header(self) -> int:
        """Return the first byte of a set."""
        return self.lg_max * 4 + self.width.bit_length() - (2 if self.width else 0)

    @property
    def mark(self) -> bytes:
        """Return what stands for a set that is too large."""
        return bytes((SET_MARK, self.lg_max)) + self.column.encode()

    @property
    def values_max(self) -> int:
        return 1 << self.lg_max

    @property
    def bytes_max(self) -> int:
        """Return how many bytes the codes of a set may have."""
        return self.width << self.lg_max if self.width else TEXT_SET_BYTES_MAX


@dataclass(frozen=True)
class GivenForm:
    """The form in which events bring sketches along, see `columnar.given`.

    Attributes:
        size: the smallest that is taken, and what larger ones become: lg_k of HLL, k of KLL, the logarithm of
            the places in a frequent-items sketch's table.
    """

    family: SketchFamily
    size: int


class GroupedColumn(Protocol[C_co]):
    """Rows of one column, each with its group's number, and their reductions.

    Every reduction returns a column with one value for each group, in the order of the groups' numbers. Nulls
    are passed over. A group without a value gets null, and 0 from the two counts.
    """

    def count_rows(self) -> C_co:
        """Return the number of rows, nulls included, as bigint."""

    def count_values(self) -> C_co:
        """Return the number of values that are not null, as bigint."""

    def sum(self, result: ColumnType) -> C_co:
        """Return the sum, exact for whole numbers and decimals. Raises Refused beyond what `result` holds."""

    def sum_squares(self, part: SquarePart, result: ColumnType) -> C_co:
        """Return the sum of that part of the squares of unscaled values of at most 64 bits, exact."""

    def least(self) -> C_co:
        """Return the smallest value; strings are compared by their bytes."""

    def greatest(self) -> C_co:
        """Return the largest value; strings are compared by their bytes."""

    def fold(self, fold: Fold) -> C_co:
        """Return the merge of the values, whole numbers, as bigint."""

    def hash_values(self, lg_k: int) -> C_co:
        """Return lists of HLL coupons, out of values."""

    def unite_coupons(self, lg_k: int) -> C_co:
        """Return lists of HLL coupons, out of such lists."""

    def collect_set(self, form: SetForm) -> C_co:
        """Return sets as bytes, out of values; null without a value."""

    def unite_sets(self, form: SetForm) -> C_co:
        """Return sets as bytes, out of such sets. Raises Corrupted for other bytes."""

    def unite_sketches(self) -> C_co:
        """Return compact HLL_8 sketches, out of HLL sketches. Raises Corrupted for other bytes."""

    def sketch_quantiles(self, k: int) -> C_co:
        """Return KLL sketches of numbers, as doubles."""

    def unite_quantiles(self, k: int) -> C_co:
        """Return KLL sketches, out of KLL sketches. Raises Corrupted for other bytes."""

    def sketch_frequencies(self, lg_size: int) -> C_co:
        """Return frequent-items sketches of values, as texts. `lg_size`: of the table of each."""

    def unite_frequencies(self, lg_size: int) -> C_co:
        """Return frequent-items sketches, out of such sketches. Raises Corrupted for other bytes."""

    def collect_texts(self, bytes_max: int) -> C_co:
        """Return the smallest texts as bytes, out of values: see `group_concat`."""

    def unite_texts(self, bytes_max: int) -> C_co:
        """Return the smallest texts, out of such bytes. Raises Corrupted for other bytes."""

    def pick_earliest(self) -> C_co:
        """Return the values of the earliest events, out of events: see `by_time`."""

    def pick_latest(self) -> C_co:
        """Return the values of the latest events, out of events: see `by_time`."""


class Accumulator(ABC):
    """A value that an aggregate keeps for each group. Frozen; equal accumulators have equal fields.

    Attributes:
        name: the end of the physical column's name, behind two underscores.
        algebra: how the value of an expression follows from the values of its columns, see `totals` in
            `query.sql.rules`. `sum` and `count` add up over rows; `pick` takes a column's values as they are.
        takes_dimensions: True if the values of a dimension can stand for a partial of it.
        is_idempotent: True if a value that is merged with itself stays as it is.
        adds: True if merged values add up, so that the merge may need more digits than its parts.
        arrow_kernel: Arrow's grouped aggregation that merges plain values; None where Arrow has none.
        fold: the merge of values as 64-bit numbers (decimals unscaled, times as they are stored); None where
            history cannot be grouped so.
        folded_kinds: types of partials whose values `fold` merges.
        local_form: the form in a receiver; None: as everywhere.
        sketch_bytes: the size that one value may reach if it is a sketch or a set; 0 for a plain value.
        relative_error: the standard error of what is read back, as a share of it; 0 for exact values.
        rank_error: by how much the rank of what is read back may differ from the rank that was asked for, at
            99 % confidence; 0 for exact values. Partials that have one depend on chance beyond some size.
        count_error: by how much the count of a value that is read back may be off, as a share of the group's
            values; 0 for exact values. Partials that have one depend on the order of merging.
    """

    name: ClassVar[str]
    algebra: ClassVar[Algebra] = "pick"
    takes_dimensions: ClassVar[bool] = True
    is_idempotent: ClassVar[bool] = False
    adds: ClassVar[bool] = False
    arrow_kernel: ClassVar[str | None] = None
    fold: ClassVar[Fold | None] = None
    folded_kinds: ClassVar[frozenset[Kind]] = frozenset()

    @property
    def local_form(self) -> Coupons | None:
        return None

    @property
    def given_form(self) -> GivenForm | None:
        """Return the form of the sketches that begin a partial; None: it begins with values."""
        return None

    @property
    def sketch_bytes(self) -> int:
        return 0

    @property
    def relative_error(self) -> float:
        return 0.0

    @property
    def rank_error(self) -> float:
        return 0.0

    @property
    def count_error(self) -> float:
        return 0.0

    @property
    def is_exact(self) -> bool:
        """Return True if nothing but its values decides on the bytes of a partial and on what they say."""
        return not (self.relative_error or self.rank_error or self.count_error)

    def column_name(self, source: str | None) -> str:
        """Return the name of the physical column over a table's column; None: over whole events."""
        return f"{source or ''}__{self.name}"

    @abstractmethod
    def result_type(self, source: ColumnType) -> ColumnType:
        """Return the type of the partial over a column of that type: what its bytes are at rest."""

    @abstractmethod
    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        """Return the partials, in local form, of groups of events. `kind`: the partial's type."""

    @abstractmethod
    def merge(self, partials: GroupedColumn[C], kind: ColumnType) -> C:
        """Return partials merged by group, both in plain form. `kind`: the partial's type."""

    def merge_local(self, partials: GroupedColumn[C], kind: ColumnType) -> C:
        """Return partials merged by group, both in a receiver's form."""
        return self.merge(partials, kind)

    @abstractmethod
    def spark_merge(self, column: str, kind: ColumnType) -> str:
        """Return Spark SQL that merges the partials of a group.

        Args:
            column: the quoted name of the column.
            kind: the partial's type.
        """


class Partial(msgspec.Struct, frozen=True):
    """A physical column that holds a measure.

    Attributes:
        name: of the column.
        accumulator: what the column holds and how its values merge.
        type: of the plain values.
        source: the table's column that it comes from; None: whole events.
    """

    name: str
    accumulator: Accumulator
    type: ColumnType
    source: str | None
