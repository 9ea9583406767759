"""The aggregate functions, by the word that declares them. A new one is a module and a line here.

`BY_SQL_KEY` also has those that read the sketches of a declared one, see `sketch_bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping

from rtolap.aggregates.approx_distinct import ApproxDistinct
from rtolap.aggregates.approx_percentile import ApproxPercentile
from rtolap.aggregates.approx_top_k import ApproxTopK
from rtolap.aggregates.avg import Avg
from rtolap.aggregates.bit_and import BitAnd
from rtolap.aggregates.bit_or import BitOr
from rtolap.aggregates.bit_xor import BitXor
from rtolap.aggregates.by_time import First, Last
from rtolap.aggregates.count import Count
from rtolap.aggregates.count_distinct import CountDistinct
from rtolap.aggregates.function import Aggregate
from rtolap.aggregates.group_concat import GroupConcat
from rtolap.aggregates.max import Max
from rtolap.aggregates.min import Min
from rtolap.aggregates.sketch_bytes import SKETCH_BYTES
from rtolap.aggregates.sum import Sum
from rtolap.aggregates.variance import StddevPop, StddevSamp, VarPop, VarSamp

APPROX_DISTINCT = ApproxDistinct()  # SQL asks for either by the other's words, where only one is declared
COUNT_DISTINCT = CountDistinct()

_FUNCTIONS: tuple[Aggregate, ...] = (
    Count(),
    Sum(),
    Min(),
    Max(),
    Avg(),
    APPROX_DISTINCT,
    COUNT_DISTINCT,
    BitAnd(),
    BitOr(),
    BitXor(),
    VarPop(),
    VarSamp(),
    StddevPop(),
    StddevSamp(),
    ApproxPercentile(),
    ApproxTopK(),
    First(),
    Last(),
    GroupConcat(),
)
AGGREGATES: Mapping[str, Aggregate] = {each.name: each for each in _FUNCTIONS}
BY_SQL_KEY: Mapping[str, Aggregate] = {each.sql_key: each for each in (*_FUNCTIONS, *SKETCH_BYTES)}
