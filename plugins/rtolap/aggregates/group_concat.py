"""GROUP_CONCAT(DISTINCT): the smallest distinct texts of a group that fit into a declared number of bytes.

A partial is bytes:

| byte | |
|---|---|
| 0 … 3 | `bytes_max`, unsigned, most significant byte first |
| 4 … | texts, each once, ascending by their UTF-8, each followed by 0xFF, which never occurs in UTF-8 |

Every text counts its bytes and one more, for a separator. A partial holds the smallest texts up to and
including the first with which the count exceeds `bytes_max`. That text is not shown; it says that the group
was cut, and where. Let f(S) be this part of a set S. Then f(f(A) ∪ f(B)) = f(A ∪ B): below the smallest text
that f(A) or f(B) ends with by being cut, no text of A ∪ B is missing, and at that text the count of A ∪ B
exceeds the bound already. So merging is associative, commutative and idempotent, the bound included.

Of a text with more than `bytes_max` bytes the first `bytes_max` + 1 are kept: it is beyond the bound wherever
it stands, and in the same place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator, C, GroupedColumn
from rtolap.aggregates.function import Aggregate
from rtolap.column_types import BINARY, ColumnType

BYTES_MAX_DEFAULT, BYTES_MAX_MIN, BYTES_MAX_MAX = 1024, 1, 1 << 20
# The engine's functions, see `query.engine_functions.joined_texts`.
JOINED_TEXTS, TEXTS_ARE_CUT = "joined_texts", "texts_are_cut"
SEPARATOR = ","
HEADER_BYTES = 4


@dataclass(frozen=True)
class SmallestTexts(Accumulator):
    """The smallest texts of a column up to the bound; null without any."""

    name: ClassVar[str] = "texts"
    takes_dimensions: ClassVar[bool] = False  # their values are answered by the engine
    is_idempotent: ClassVar[bool] = True
    bytes_max: int

    @property
    def header(self) -> bytes:
        return self.bytes_max.to_bytes(HEADER_BYTES, "big")

    @property
    def sketch_bytes(self) -> int:
        return HEADER_BYTES + 2 * (self.bytes_max + 1)

    def result_type(self, source: ColumnType) -> ColumnType:
        return BINARY

    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        return events.collect_texts(self.bytes_max)

    def merge(self, partials: GroupedColumn[C], kind: ColumnType) -> C:
        return partials.unite_texts(self.bytes_max)

    def spark_merge(self, column: str, kind: ColumnType) -> str:
        """Return Spark SQL that unites texts as strings of bytes, which it sorts as bytes."""
        end = "chr(255)"
        parts = f"split(substring(decode({column}, 'ISO-8859-1'), {HEADER_BYTES + 1}), {end})"
        texts = f"transform(array({parts}), parts -> slice(parts, 1, size(parts) - 1))[0]"  # of null, null
        united = f"sort_array(array_distinct(flatten(collect_list({texts}))))"
        longer = (
            f"named_struct('bytes', kept.bytes + length(text) + 1, 'texts', concat(kept.texts, text, {end}))"
        )
        kept = (
            f"aggregate({united}, named_struct('bytes', CAST(0 AS BIGINT), 'texts', ''), "
            f"(kept, text) -> CASE WHEN kept.bytes > {self.bytes_max} THEN kept ELSE {longer} END, "
            "kept -> kept.texts)"
        )
        made = f"concat(X'{self.header.hex()}', encode({kept}, 'ISO-8859-1'))"
        return f"CASE WHEN count({column}) > 0 THEN {made} END"


class GroupConcat(Aggregate):
    name: ClassVar[str] = "group_concat"
    title: ClassVar[str] = "GROUP_CONCAT"
    sql_key: ClassVar[str] = "groupconcat"
    engine_functions: ClassVar[tuple[str, ...]] = (
        JOINED_TEXTS,
        TEXTS_ARE_CUT,
        "list",
        "listagg",
        "string_agg",
    )
    shown: ClassVar[int] = 92
    takes_bytes_max: ClassVar[bool] = True
    is_distinct: ClassVar[bool] = True
    parameters: ClassVar[Mapping[str, str]] = {"separator": "a text"}

    def mismatch(self, column: ColumnType) -> str:
        return "" if column.kind == "string" else "a column of texts"

    def accumulators(self, lg_k: int = BYTES_MAX_DEFAULT) -> tuple[Accumulator, ...]:
        return (SmallestTexts(lg_k),)

    def call(self, argument: str) -> str:
        return f"{self.title}(DISTINCT {argument})"

    def read(self, kind: ColumnType | None) -> str:
        return f"{JOINED_TEXTS}(LIST(:texts), :separator)"

    def takes_parameter(self, name: str, value: object) -> bool:
        return isinstance(value, str)
