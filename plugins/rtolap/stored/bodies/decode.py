"""The whole way: bytes → batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache

import pyarrow as pa

from rtolap.base.errors import DefinitionError
from rtolap.model.stored.schema import StoredSchema
from rtolap.stored.bodies.batches import DecodedBatch
from rtolap.stored.bodies.clauses import Expression
from rtolap.stored.bodies.compression import unpacked
from rtolap.stored.bodies.csv.reader import CsvReader
from rtolap.stored.bodies.expressions import Engine
from rtolap.stored.bodies.files import FileBody, open_file
from rtolap.stored.bodies.json.members import Kind
from rtolap.stored.bodies.json.paths import Step, parse_path
from rtolap.stored.bodies.json.reader import JsonReader
from rtolap.stored.bodies.options import LoadOptions
from rtolap.stored.bodies.plan import Direct, LoadPlan, MissingColumn, load_plan
from rtolap.stored.bodies.settings import BodySettings
from rtolap.stored.bodies.target import BodyTarget

_DEFAULTS = BodySettings()
_KINDS: dict[str, Kind] = {"int": "integer", "bigint": "integer", "boolean": "boolean"}


def decode_body(
    chunks: Iterator[bytes],
    options: LoadOptions,
    schema: StoredSchema,
    settings: BodySettings = _DEFAULTS,
) -> Iterator[DecodedBatch]:
    """Decode a body. It blocks on `chunks`, whose errors pass through. `settings` bounds the memory.

    DefinitionError: options and table do not go together (before the first chunk is read, unless it
    takes the body to see). Corrupted: the body is not what its headers say. TooLarge: it is larger than it
    may be. Nothing of a body that raises may be loaded. Close the iterator when it is not read to its end.
    """
    with ExitStack() as opened:

        @cache
        def engine() -> Engine:
            engine_of_load = Engine(settings.expression_memory_bytes_max, options.timezone)
            opened.callback(engine_of_load.close)
            return engine_of_load

        plan = load_plan(options, schema)
        packed = unpacked(chunks, options.compression, settings)
        if options.format in ("parquet", "orc", "arrow"):
            body = opened.enter_context(open_file(packed, options.format, settings))
            plan = load_plan(options, schema, body.schema.names)
            yield from _typed(body, plan, BodyTarget(plan, options, engine, _types(plan, body.schema)))
            return
        target = BodyTarget(plan, options, engine, dict.fromkeys(plan.sources, pa.string()))
        if options.format == "json":
            sources = JsonReader(_paths(plan, options), options, engine, settings, _kinds(plan)).read(packed)
        else:
            sources = CsvReader(plan.sources, options.format, options.csv, settings).read(packed)
        for source in sources:
            yield target.batch(source)


def _typed(body: FileBody, plan: LoadPlan, target: BodyTarget) -> Iterator[DecodedBatch]:
    """Return typed columns. Only columns that are used are read."""
    own = {name.lower(): name for name in body.schema.names}
    wanted = {name: own[name.lower()] for name in plan.used}
    for source in body.read(list(dict.fromkeys(wanted.values()))):
        columns = {name: source.columns[written] for name, written in wanted.items()}
        yield target.batch(replace(source, columns=columns))


def _types(plan: LoadPlan, schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return the types of the plan's source columns. DefinitionError for columns that the file lacks."""
    own = {name.lower(): schema.field(name).type for name in schema.names}
    absent = [name for name in plan.used if name.lower() not in own]
    if absent:
        raise DefinitionError(
            "the body lacks columns", expected=", ".join(absent), found=", ".join(schema.names) or "none"
        )
    return {name: own[name.lower()] for name in plan.sources if name.lower() in own}


def _kinds(plan: LoadPlan) -> dict[str, Kind]:
    """Return which columns of a body of JSON need no text: those that nothing but whole numbers or truth
    values of a table is made of."""
    targets = [target for target in plan.targets if isinstance(target, Direct)]
    made = Counter(target.source for target in targets)
    if len(targets) != len([each for each in plan.targets if not isinstance(each, MissingColumn)]):
        return {}  # expressions take a body's columns as text
    if isinstance(plan.where, Expression) or isinstance(plan.deletes, Expression):
        return {}
    kinds = {target.source: _KINDS.get(target.column.definition.load_type.kind) for target in targets}
    others = (plan.deletes, plan.undeletable)
    return {name: kind for name, kind in kinds.items() if kind and made[name] == 1 and name not in others}


def _paths(plan: LoadPlan, options: LoadOptions) -> dict[str, tuple[Step, ...]]:
    """Return the paths of columns in a record: `jsonpaths` in order, else by their names."""
    written = options.json.paths
    if not written:
        return {name: (name,) for name in plan.sources}
    if len(written) != len(plan.sources):
        raise DefinitionError(
            "header jsonpaths",
            expected=f"one for each of {', '.join(plan.sources)}",
            found=f"{len(written)} paths",
        )
    return {name: parse_path(path, "jsonpaths") for name, path in zip(plan.sources, written, strict=True)}
