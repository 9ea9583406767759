"""Progress of a build on stdout, a line per step: `rtolap-progress: {json}`. Airflow's operator reads it."""

from __future__ import annotations

import sys
import threading
from itertools import dropwhile

import msgspec
from pyspark.errors import PythonException

from rtolap.base.ids import ids
from rtolap.model.build_spec import BuildSpec
from rtolap.model.cube import Cuboid

EXIT_REFUSED, EXIT_FAILED = 3, 4
_saying = threading.Lock()
ERROR_CHARS = 2000


def report(event: str, spec: BuildSpec, **fields: object) -> None:
    """Report progress. `spec` is the build meant, or the first of the batch."""
    _say({"event": event, "cube": spec.cube, "segment": spec.segment, "build_id": spec.build_id, **fields})


def report_cuboid(spec: BuildSpec, cuboid: Cuboid, size_bytes: int, done: int, total: int) -> None:
    """Report that a cuboid is written, as one of so many that are done."""
    report("cuboid", spec, name=cuboid.name, bytes=size_bytes, done=done, total=total)


def report_batch(event: str, cube: str, batch: str, **fields: object) -> None:
    """Report progress of a batch that is staged."""
    _say({"event": event, "cube": cube, "batch": batch, **fields})


def _say(fields: dict[str, object]) -> None:
    """Write a whole line at once, with the ids of the job that are not in it: several threads report, and a
    line that holds two is read as none."""
    known = {name: value for name, value in ids().items() if name not in fields}
    line = f"rtolap-progress: {msgspec.json.encode({**known, **fields}).decode()}\n"
    with _saying:
        sys.stdout.write(line)
        sys.stdout.flush()


def error_text(error: Exception) -> str:
    """Return the error's text; of one in a task of ours what it says, without the way there."""
    text = str(error)
    if isinstance(error, PythonException):
        _, _, after = text.rpartition('\n  File "')
        last = dropwhile(lambda line: line.startswith(" "), after.splitlines()[1:])
        text = "\n".join(last) or text
    return text[:ERROR_CHARS]
