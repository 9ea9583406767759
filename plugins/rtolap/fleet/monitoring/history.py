"""Stores looks in a file, one JSON document per line. Matrices are stored by rows, unknown values as null."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rtolap.base.decoding import decode_json
from rtolap.base.errors import Corrupted
from rtolap.base.files import read_named, write_named
from rtolap.fleet.monitoring.collect import MissingSource, StageLook
from rtolap.fleet.monitoring.readings import BrokerGauges
from rtolap.fleet.monitoring.stages import Floats, RequestStages, Stage

_VERSION = 1
_MATRICES = ("mean_ms", "p50_ms", "p95_ms", "p99_ms", "p999_ms")


class _StoredLook(msgspec.Struct, frozen=True):
    """A look in the file, with a row for each broker and request type.

    Attributes:
        counts: A list for each row, in the order of `Stage`.
        times: Matrices by name, each a list for each row.
    """

    version: int
    at_ms: int
    brokers: list[int]
    requests: list[int]
    counts: list[list[int]]
    times: dict[str, list[list[float | None]]]
    gauges: dict[int, BrokerGauges]
    missing: tuple[MissingSource, ...] = ()


def append_look(path: Path, look: StageLook) -> None:
    """Append a look. Raises RtolapError where the file cannot be written."""
    stages = look.stages
    stored = _StoredLook(
        version=_VERSION,
        at_ms=look.at_ms,
        brokers=stages.brokers.tolist(),
        requests=stages.requests.tolist(),
        counts=stages.counts.tolist(),
        times={name: getattr(stages, name).tolist() for name in _MATRICES},
        gauges=dict(look.gauges),
        missing=look.missing,
    )
    write_named(path, msgspec.json.encode(stored) + b"\n", append=True)  # NaN is written as null


def read_looks(path: Path) -> list[StageLook]:
    """Read the looks in the order of time. An incomplete last line was still being written, and is left out.

    Raises NotFound, Corrupted; RtolapError where it cannot be read.
    """
    lines = read_named(path, "file", action="keep looks by --record").split(b"\n")[:-1]
    looks: list[StageLook] = []
    for number, line in enumerate(lines, 1):
        try:
            looks.append(_look(decode_json(line, _StoredLook)))
        except (msgspec.DecodeError, Corrupted, ValueError) as error:
            raise Corrupted(f"{path}, line {number} is no look at brokers", found=error) from error
    return sorted(looks, key=lambda look: look.at_ms)


def _look(stored: _StoredLook) -> StageLook:
    if stored.version != _VERSION:
        raise Corrupted("a look of another version", expected=_VERSION, found=stored.version)
    rows = len(stored.brokers)
    times: dict[str, Any] = {name: _matrix(stored.times.get(name, []), rows) for name in _MATRICES}
    stages = RequestStages(
        np.array(stored.brokers, np.int32),
        np.array(stored.requests, np.int8),
        np.array(stored.counts, np.int64).reshape(rows, -1) if rows else np.zeros((0, len(Stage)), np.int64),
        **times,
    )
    stages.check()
    return StageLook(stored.at_ms, stages, stored.gauges, stored.missing)


def _matrix(rows: list[list[float | None]], count: int) -> Floats:
    if not count:
        return np.zeros((0, len(Stage)))
    return np.array(rows, np.float64).reshape(count, -1)
