"""An aggregate function: how it is declared, what it keeps, and what SQL reads back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

from rtolap.aggregates.accumulator import Accumulator, Partial
from rtolap.column_types import ColumnType

LG_K_DEFAULT = 12
LG_MAX_DEFAULT = 20  # a million values
Finish = Literal["value", "count", "sum", "mean", "distinct", "set_size"]  # see `query.plan.MergedColumn`


class Aggregate(ABC):
    """A function over the events of a group.

    Attributes:
        name: the word in a cube's definition.
        title: the name in SQL.
        sql_key: the key that the SQL parser gives to a call of it, or to the DISTINCT of COUNT(DISTINCT …).
        in_count: True if SQL calls it as COUNT(DISTINCT …), which is no name of a function.
        is_distinct: True if its argument in SQL stands behind DISTINCT.
        engine_functions: the embedded engine's functions that a call of it, and `read`, may hold.
        shown: a column that is selected by itself stands for a function that the cube keeps of it, the one
            with the smallest number.
        empty: the result over no values; None: NULL.
        takes_events: True if it may be declared without a column.
        takes_event_time: True if SQL may ask for it of an event time that only a measure stores.
        takes_lg_k: True if the declaration's `lg_k` says something.
        takes_k: True if its `k` does. Such a function gets k in the place of lg_k.
        reads_source: True if `read` gets the type of the column that is asked for, instead of the partial's.
        parameters: further arguments of a call, each a constant: the parser's name → what it has to be.
        takes_lg_max: True if the declaration's `lg_max` does.
        takes_bytes_max: True if the declaration's `bytes_max` does. Such a function gets it in the place of
            lg_k.
        takes_sketches: True if events may bring sketches along (`input: sketch`), which it merges.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    sql_key: ClassVar[str]
    engine_functions: ClassVar[tuple[str, ...]]
    shown: ClassVar[int]
    empty: ClassVar[int | None] = None
    takes_events: ClassVar[bool] = False
    takes_event_time: ClassVar[bool] = False
    takes_lg_k: ClassVar[bool] = False
    takes_k: ClassVar[bool] = False
    reads_source: ClassVar[bool] = False
    parameters: ClassVar[Mapping[str, str]] = {}
    takes_lg_max: ClassVar[bool] = False
    takes_bytes_max: ClassVar[bool] = False
    is_distinct: ClassVar[bool] = False
    in_count: ClassVar[bool] = False
    takes_sketches: ClassVar[bool] = False

    @abstractmethod
    def mismatch(self, column: ColumnType) -> str:
        """Return what kind of column is expected instead of one of this type; empty if it fits."""

    @abstractmethod
    def accumulators(self, lg_k: int = LG_K_DEFAULT) -> tuple[Accumulator, ...]:
        """Return the accumulators that are stored of a column. `lg_k`: of the declaration."""

    def call(self, argument: str) -> str:
        """Return the SQL of a call."""
        return f"{self.title}({argument})"

    def partials(
        self, column: str, kind: ColumnType, lg_k: int, lg_max: int = LG_MAX_DEFAULT
    ) -> tuple[Partial, ...]:
        """Return the physical columns over a table's column of this type.

        `lg_k` and `lg_max`: of the declaration.
        """
        is_given = kind.kind == "binary" and self.takes_sketches
        return tuple(
            Partial(each.column_name(column), each, each.result_type(kind), column)
            for each in (self.given_accumulators(lg_k) if is_given else self.accumulators(lg_k))
        )

    def given_accumulators(self, lg_k: int) -> tuple[Accumulator, ...]:
        """Return the accumulators of a column of sketches, called as those of values."""
        raise AssertionError(f"{self.name} takes no sketches: validated when the definition was read")

    def partials_of_events(self) -> tuple[Partial, ...]:
        """Return the physical columns without a column, of a function that takes events."""
        raise AssertionError(f"{self.name} needs a column: validated when the definition was read")

    @abstractmethod
    def read(self, kind: ColumnType | None) -> str:
        """Return the engine's SQL for the result over rows of partials.

        `:name` stands for the partials of the accumulator with that name; each is inside one aggregate of the
        engine. It stands for a parameter, too. `kind`: the type of the first partial; None: an expression
        stands in its place.
        """

    def takes_parameter(self, name: str, value: object) -> bool:
        """Return True if the value of a parameter is what `parameters` says."""
        raise AssertionError(f"{self.name} has no parameter {name}")

    def finish(self, kind: ColumnType) -> Finish | None:
        """Return how the result follows from the partials of one group without the engine.

        None leaves it to the engine. `kind`: the type of the first partial.
        """
        return None
