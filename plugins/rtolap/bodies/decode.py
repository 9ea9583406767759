"""The whole way: bytes → batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache

import pyarrow as pa

from rtolap.bodies.batches import DecodedBatch
from rtolap.bodies.compression import unpacked
from rtolap.bodies.csv_reader import CsvReader
from rtolap.bodies.expressions import Engine
from rtolap.bodies.options import LoadOptions
from rtolap.bodies.plan import load_plan
from rtolap.bodies.settings import BodySettings
from rtolap.bodies.target import Target
from rtolap.model.stored_schema import StoredSchema

_DEFAULTS = BodySettings()


def decode_body(
    chunks: Iterator[bytes],
    options: LoadOptions,
    schema: StoredSchema,
    settings: BodySettings = _DEFAULTS,
) -> Iterator[DecodedBatch]:
    """Blocks on `chunks`; what it raises passes through. Memory is bounded by `settings`.

    DefinitionError: options and table do not go together (before the first chunk is asked for, unless it
    takes the body to see). Corrupted: the body is not what its headers say. Refused: it is larger than it may
    be. Nothing of a body that raises may be loaded. Close the iterator when it is not read to its end.
    """
    with ExitStack() as held:

        @cache
        def engine() -> Engine:
            made = Engine(settings.expression_memory_bytes_max, options.timezone)
            held.callback(made.close)
            return made

        plan = load_plan(options, schema)
        bytes_ = unpacked(chunks, options.compression, settings)
        text = dict.fromkeys(plan.sources, pa.string())
        target = Target(plan, options, engine, text)
        reader = CsvReader(plan.sources, options.format, options.csv, settings)
        for source in reader.read(bytes_):
            yield target.batch(source)
