"""Progress of a build on stdout, a line per step: `rtolap-progress: {json}`. Airflow's operator reads it."""

from __future__ import annotations

from itertools import dropwhile

import msgspec
from pyspark.errors import PythonException

from rtolap.base.ids import ids
from rtolap.model.build_spec import BuildSpec

EXIT_REFUSED, EXIT_FAILED = 3, 4
ERROR_CHARS = 2000


def report(event: str, spec: BuildSpec, **fields: object) -> None:
    """Report progress. `spec` is the build meant, or the first of the batch."""
    line = {"event": event, "cube": spec.cube, "segment": spec.segment, "build_id": spec.build_id, **fields}
    _print(line)


def report_batch(event: str, cube: str, batch: str, **fields: object) -> None:
    """Report progress of a batch that is staged."""
    _print({"event": event, "cube": cube, "batch": batch, **fields})


def _print(line: dict[str, object]) -> None:
    """Print the line, with the ids of the job that are not in it."""
    known = {name: value for name, value in ids().items() if name not in line}
    print(f"rtolap-progress: {msgspec.json.encode({**known, **line}).decode()}", flush=True)


def error_text(error: Exception) -> str:
    """Return the error's text; of one in a task of ours what it says, without the way there."""
    text = str(error)
    if isinstance(error, PythonException):
        _, _, after = text.rpartition('\n  File "')
        last = dropwhile(lambda line: line.startswith(" "), after.splitlines()[1:])
        text = "\n".join(last) or text
    return text[:ERROR_CHARS]
