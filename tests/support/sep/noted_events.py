"""A Python listener that notes each event in a file, and the distribution that declares it."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from rtolap.sep.events.columns import column_values
from rtolap.sep.events.edit_batch import EditBatch

ENTRY_POINT = "noted"
_FILE_VARIABLE = "NOTED_EVENTS"


def process_events(batch: EditBatch) -> None:
    """Write a line at once, since several threads call this."""
    numbers = column_values(batch, b"cf", b"n").to_pylist()
    rows, late = batch.events["row"].to_pylist(), batch.events["late"].to_pylist()
    lines = [
        json.dumps((row.decode(), int.from_bytes(number, "big"), is_late)) + "\n"
        for row, number, is_late in zip(rows, numbers, late, strict=True)
    ]
    file = os.open(os.environ[_FILE_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, "".join(lines).encode())
    finally:
        os.close(file)


def installed(folder: Path) -> Mapping[str, str]:
    """Declare the function in a distribution below `folder`; return the variables with which it is found."""
    declared = folder / "noted-1.0.dist-info"
    declared.mkdir(parents=True)
    (declared / "METADATA").write_text("Metadata-Version: 2.1\nName: noted\nVersion: 1.0\n")
    (declared / "entry_points.txt").write_text(
        f"[rtolap.sep.listeners]\n{ENTRY_POINT} = {__name__}:process_events\n"
    )
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, _FILE_VARIABLE: str(folder / "events")}


def noted(folder: Path) -> dict[bytes, list[int]]:
    """Return the numbers of each row as they came. Those that are not flagged as late have to grow."""
    rows: dict[bytes, list[int]] = defaultdict(list)
    file = folder / "events"
    for line in file.read_text().splitlines() if file.exists() else ():
        row, number, is_late = json.loads(line)
        numbers = rows[row.encode()]
        assert is_late or number > max(numbers, default=0), (row, number, numbers)
        numbers.append(number)
    return rows
