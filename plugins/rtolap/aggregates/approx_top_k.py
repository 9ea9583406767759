"""APPROX_TOP_K: the most frequent values out of frequent-items sketches of Apache DataSketches, with bounds.

A sketch counts values as texts: of strings their first TEXT_CHARACTERS_MAX characters. It holds `k` different
values or more and is exact as long as there are no more. Then it drops the rarest: it takes the same number
off every count, and adds it to the sketch's error. So each count is known between two bounds, and no value
that was dropped can have occurred more often than the error. Which values are dropped depends on the order of
merging, so two replicas may answer differently, each within its bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator, C, GivenForm, GroupedColumn
from rtolap.aggregates.approx_percentile import KLL_K_DEFAULT
from rtolap.aggregates.function import Aggregate
from rtolap.column_types import BINARY, ColumnType, Kind

TOP_K_JSON = "top_k_json"  # the engine's function, see `query.engine_functions.top_k`
TOP_DEFAULT, TOP_MAX = 10, 4096  # how many values are asked for
TEXT_CHARACTERS_MAX = 256
_ERROR_SCALE = 3.5  # the library's: the error of a table of one place
_VALUE_BYTES = 8 + 4 + 4 * TEXT_CHARACTERS_MAX  # the count, the length, and characters of four bytes
_HEADER_BYTES = 32
_SPARK_NULLS_BYTES = 8  # Spark writes behind a sketch how many nulls it saw
_OTHER_SPARK = "approx_top_k measures: this Spark writes sketches in another form, use Spark 4.3"
_TEXTS: frozenset[Kind] = frozenset(("string", "boolean", "int", "bigint", "decimal", "date"))


@dataclass(frozen=True)
class FrequentValues(Accumulator):
    """A frequent-items sketch of texts in the public format of DataSketches; null without a value.

    Attributes:
        k: how many different values it holds at least before it drops any.
    """

    name: ClassVar[str] = "top_k"
    takes_dimensions: ClassVar[bool] = False  # a row stands for many events
    k: int

    @property
    def lg_size(self) -> int:
        """Return the logarithm of the places in the sketch's table, of which three quarters are filled."""
        return max(3, (-(-4 * self.k // 3) - 1).bit_length())

    @property
    def values_max(self) -> int:
        return 3 << self.lg_size >> 2

    @property
    def sketch_bytes(self) -> int:
        return _HEADER_BYTES + _VALUE_BYTES * self.values_max

    @property
    def count_error(self) -> float:
        return _ERROR_SCALE / (1 << self.lg_size)

    def result_type(self, source: ColumnType) -> ColumnType:
        return BINARY

    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        return events.sketch_frequencies(self.lg_size)

    def merge(self, partials: GroupedColumn[C], kind: ColumnType) -> C:
        return partials.unite_frequencies(self.lg_size)

    def spark_merge(self, column: str, kind: ColumnType) -> str:
        """Return Spark SQL that makes of the sketch the state of Spark's own function, and the reverse.

        A null counts as an empty sketch, for Spark's function fails of one. A Spark that writes no number of
        nulls behind a sketch is told by what stands there instead.
        `transform(array(x), y -> …)[0]` stands for a name y of the value x, which SQL has none for.
        """
        empty = f"01010a{self.lg_size:02x}03050000"
        nulls = f"X'{'00' * _SPARK_NULLS_BYTES}'"
        sketch = f"concat(coalesce({column}, X'{empty}'), {nulls})"
        state = (
            f"named_struct('sketch', {sketch}, 'maxItemsTracked', {self.values_max}, "
            "'itemDataType', CAST(NULL AS STRING), 'itemDataTypeDDL', 'item STRING')"
        )
        joined = f"approx_top_k_combine({state}, {self.values_max}).sketch"
        is_known = f"substring(joined, -{_SPARK_NULLS_BYTES}) = {nulls}"
        cut = f"substring(joined, 1, length(joined) - {_SPARK_NULLS_BYTES})"
        checked = f"CASE WHEN {is_known} THEN {cut} ELSE raise_error('{_OTHER_SPARK}') END"
        return f"CASE WHEN count({column}) > 0 THEN transform(array({joined}), joined -> {checked})[0] END"


@dataclass(frozen=True)
class GivenFrequentValues(FrequentValues):
    """The union of sketches that events bring along."""

    @property
    def given_form(self) -> GivenForm:
        return GivenForm("frequent_items", self.lg_size)

    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        return events.unite_frequencies(self.lg_size)


class ApproxTopK(Aggregate):
    name: ClassVar[str] = "approx_top_k"
    title: ClassVar[str] = "APPROX_TOP_K"
    sql_key: ClassVar[str] = "approxtopk"
    engine_functions: ClassVar[tuple[str, ...]] = (TOP_K_JSON, "list")
    shown: ClassVar[int] = 81
    takes_k: ClassVar[bool] = True
    takes_sketches: ClassVar[bool] = True
    parameters: ClassVar[Mapping[str, str]] = {"expression": f"a whole number from 1 to {TOP_MAX}"}

    def mismatch(self, column: ColumnType) -> str:
        return (
            "" if column.kind in _TEXTS else "a column of texts, whole numbers, decimals, dates or booleans"
        )

    def accumulators(self, lg_k: int = KLL_K_DEFAULT) -> tuple[Accumulator, ...]:
        return (FrequentValues(lg_k),)

    def given_accumulators(self, lg_k: int) -> tuple[Accumulator, ...]:
        return (GivenFrequentValues(lg_k),)

    def read(self, kind: ColumnType | None) -> str:
        return f"{TOP_K_JSON}(LIST(:top_k), CAST(:expression AS BIGINT))"

    def takes_parameter(self, name: str, value: object) -> bool:
        return not isinstance(value, bool) and 1 <= int(str(value)) <= TOP_MAX
