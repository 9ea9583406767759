"""An approximate distinct count for the seeded runs, held against DataSketches' own word on the plain values.

The sketch is small and the visitors are many, so that runs see all its modes: list, set and registers.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection
from dataclasses import replace

import datasketches
import msgspec
from rtolap.columnar.hll_image import estimate, merge_sketches
from rtolap.model.cube import Measure, Schema
from rtolap.model.table import Column

from tests.support.cubes.builders import Event
from tests.support.cubes.recount import Answer

LG_K = 6
_POOL = 300


def with_visitors(schema: Schema) -> Schema:
    """Return the schema with a column `visitor` and the approximate number of distinct ones as a measure."""
    table = msgspec.structs.replace(
        schema.table, columns=(*schema.table.columns, Column("visitor", "string"))
    )
    measure = Measure("approx_distinct", "visitor", lg_k=LG_K)
    cube = msgspec.structs.replace(schema.cube, measures=(*schema.cube.measures, measure))
    return Schema(table, cube)


def with_visitor(random_: random.Random, value: bytes, event: Event) -> tuple[bytes, Event]:
    visitor = random_.choice((None, "", *(f"v{random_.randrange(_POOL)}" for _ in range(8))))
    return json.dumps({**json.loads(value), "visitor": visitor}).encode(), replace(event, visitor=visitor)


def engine_estimates(answer: Answer) -> Answer:
    """Merge and estimate the images of each row as a query does it."""
    return {key: (*row[:-1], round(estimate(merge_sketches(row[-1], LG_K)))) for key, row in answer.items()}


def plain_estimates(answer: Answer) -> Answer:
    return {key: (*row[:-1], round(plain_estimate(row[-1]))) for key, row in answer.items()}


def plain_estimate(visitors: Collection[str]) -> float:
    """Return the estimate of a union that is given the same sketch twice, which forgets the order of its
    values, as engines have to."""
    sketch = datasketches.hll_sketch(LG_K, datasketches.tgt_hll_type.HLL_8)
    for visitor in sorted(visitors):
        sketch.update(visitor)
    union = datasketches.hll_union(LG_K)
    union.update(sketch)
    union.update(sketch)
    return float(union.get_estimate())
