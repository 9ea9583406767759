"""The checks of a loader's definition. Pure; every problem with the way to it."""

from __future__ import annotations

from rtolap.base.errors import DefinitionError
from rtolap.column_types import parse_type
from rtolap.model.backend_hosts import check_backend
from rtolap.model.load_headers import sink_header_problems
from rtolap.model.loader import Loader, LoaderColumn, LoaderSink, SinkPartitions
from rtolap.model.problems import Problem, bound_problems
from rtolap.model.stored.schema import default_value
from rtolap.model.table import VALUE
from rtolap.model.validation.definition import (
    cluster_problems,
    duplicates,
    topic_problems,
    watermark_field_problems,
)
from rtolap.model.validation.names import name_problems
from rtolap.model.validation.record_format import format_problems
from rtolap.model.validation.record_paths import step_problems
from rtolap.model.validation.stored_table import AHEAD_MAX

ROWS_MAX = 5_000_000
BYTES_MAX = 1 << 30
PARALLEL_MAX = 16
PROCESSES_MAX = 64
SHARES_MAX = 256
KEY_MAX = 2**63 - 1
_BOUNDS: tuple[tuple[tuple[str, ...], int, int], ...] = (
    (("batch", "rows"), 1, ROWS_MAX),
    (("batch", "bytes"), 1 << 10, BYTES_MAX),
    (("batch", "interval_ms"), 10, 3_600_000),
    (("parallel",), 1, PARALLEL_MAX),
    (("rejects", "tolerance_percent"), 0, 100),
    (("record_bytes_max",), 1, 64 << 20),
    (("sink", "timeout_ms"), 1_000, 86_400_000),
    (("sink", "label_kept_ms"), 60_000, 365 * 86_400_000),
    (("sink", "label_kept_count"), 1, 100_000_000),
)


def loader_problems(loader: Loader) -> tuple[Problem, ...]:
    found = [
        *name_problems(loader.name, ("name",)),
        *name_problems(loader.database, ("database",)),
        *name_problems(loader.table, ("table",)),
        *topic_problems(loader.topic),
        *cluster_problems(loader.kafka_cluster),
    ]
    found += watermark_field_problems(loader)
    found += format_problems(loader)
    for key, least, most in _BOUNDS:
        value: object = loader
        for step in key:
            value = getattr(value, step)
        if not isinstance(value, int) or not least <= value <= most:
            found.append(Problem(key, "out of bounds", expected=f"{least} to {most}", found=str(value)))
    found += [
        Problem(("columns",), "column is named twice", found=repr(name))
        for name in duplicates(column.name for column in loader.columns)
    ]
    if (application := loader.application) is not None:
        found += name_problems(application.name, ("application", "name"))
        found += name_problems(application.level, ("application", "level"))
        found += bound_problems(("application", "key"), application.key, 0, KEY_MAX)
    if (partitions := loader.sink.partitions) is not None:
        found += _partition_problems(partitions)
    found += [
        problem for place, column in enumerate(loader.columns) for problem in _column_problems(place, column)
    ]
    found += _process_problems(loader)
    found += sink_header_problems(loader.sink)
    found += _target_problems(loader.sink)
    for place, url in enumerate(loader.sink.urls):
        if not url.startswith(("http://", "https://")) or "@" in url:
            found.append(Problem(("sink", "urls", place), "not an address", expected="http(s)://host:port"))
    return tuple(found)


def _process_problems(loader: Loader) -> list[Problem]:
    sharing, at = loader.sharing, ("processes",)
    if sharing is None:
        return []
    if isinstance(loader.processes, int):
        return bound_problems(at, loader.processes, 1, PROCESSES_MAX)
    found = bound_problems((*at, "max"), sharing.max, 1, PROCESSES_MAX)
    found += bound_problems((*at, "min"), sharing.min, 1, max(1, sharing.max))
    if sharing.shares is not None:
        found += bound_problems((*at, "shares"), sharing.shares, 1, SHARES_MAX)
    found += bound_problems((*at, "lag_records"), sharing.lag_records, 1, 10**12)
    found += bound_problems((*at, "up_after_ms"), sharing.up_after_ms, 0, 86_400_000)
    found += bound_problems((*at, "down_after_ms"), sharing.down_after_ms, 0, 86_400_000)
    return found


def _partition_problems(wanted: SinkPartitions) -> list[Problem]:
    at = ("sink", "partitions")
    found = [*name_problems(wanted.column, (*at, "column"))]
    if wanted.host_port is None:
        found.append(Problem((*at, "sql"), "not an address", expected="host:port", found=repr(wanted.sql)))
    for key, value, least, most in (
        ("ahead", wanted.ahead, 0, AHEAD_MAX),
        ("behind", wanted.behind, 0, AHEAD_MAX),
        ("every_ms", wanted.every_ms, 1_000, 86_400_000),
    ):
        found += bound_problems((*at, key), value, least, most)
    return found


def _column_problems(place: int, column: LoaderColumn) -> list[Problem]:
    """Check the path, the type, and the default where the definition says what type it has to fit."""
    wrong = step_problems(place, column) if column.source == VALUE else []
    if wrong or column.type is None:
        return wrong
    at = ("columns", place)
    try:
        kind = parse_type(column.type)
    except DefinitionError as error:
        return [Problem((*at, "type"), error.message, expected=str(error.expected), found=str(error.found))]
    if column.default is not None:
        try:
            default_value(column.default, kind)
        except DefinitionError as error:
            expected = str(error.expected)
            return [Problem((*at, "default"), error.message, expected=expected, found=str(error.found))]
    return []


def _target_problems(sink: LoaderSink) -> list[Problem]:
    found = []
    if sink.target == "starrocks" and sink.format == "arrow":
        found.append(
            Problem(("sink", "format"), "StarRocks reads no Arrow", expected="json or csv", found="arrow")
        )
    if sink.target != "rtolap" and not sink.urls:
        expected = f"addresses of front ends of {sink.target}"
        found.append(Problem(("sink", "urls"), "no address", expected=expected))
    if sink.backends.redirect_policy is not None and sink.target != "doris":
        at = ("sink", "backends", "redirect_policy")
        found.append(Problem(at, "only Doris knows redirect policies", expected="no key", found=sink.target))
    for place, pattern in enumerate(sink.backends.plain):
        try:
            check_backend(pattern)
        except DefinitionError as error:
            key = ("sink", "backends", "plain", place)
            found.append(Problem(key, error.message, expected=str(error.expected), found=str(error.found)))
    return found
