"""Nodes of aggregate functions that the parser does not know: those that read sketches as bytes."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp

from rtolap.aggregates.sketch_bytes import SKETCH_BYTES


class SketchCall(exp.Expression, exp.AggFunc):
    """A function whose value is bytes."""

    arg_types: ClassVar = {"this": True}


class HllSketch(SketchCall):
    _sql_names: ClassVar = ["HLL_SKETCH"]


class KllSketch(SketchCall):
    _sql_names: ClassVar = ["KLL_SKETCH"]


class FrequentItemsSketch(SketchCall):
    _sql_names: ClassVar = ["FREQUENT_ITEMS_SKETCH"]


OWN_NODES: dict[str, type[exp.Expr]] = {
    each.key: each for each in (HllSketch, KllSketch, FrequentItemsSketch)
}
# Names that SQL may call them by.
OWN_NAMES: dict[str, type[exp.Expr]] = {
    name: OWN_NODES[each.sql_key] for each in SKETCH_BYTES for name in (each.title, *each.spellings)
}
