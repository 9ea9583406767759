"""A listener in Python, installed into a folder: it notes each event in a file of its process."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

LISTENER = "keeping"
_MODULE = """
import json, os, threading, time
from pathlib import Path

from rtolap.sep.events.columns import column_values
from rtolap.sep.events.values import decode_values

LOCK = threading.Lock()
FILE = Path(os.environ["KEEPING_FOLDER"]) / f"{os.getpid()}.jsonl"


def keep(batch):
    numbers = decode_values(column_values(batch, b"cf", b"n"), "long").column.to_pylist()
    events = batch.events.to_pylist()
    with LOCK, FILE.open("a") as out:
        for event, number in zip(events, numbers, strict=True):
            out.write(json.dumps({
                "pid": os.getpid(), "at_ns": time.monotonic_ns(), "row": event["row"].decode(), "n": number,
                "sequence_id": event["sequence_id"], "region": event["region"], "late": event["late"],
            }) + "\\n")
"""


class Kept(msgspec.Struct, frozen=True):
    """An event as the listener has noted it. `at_ns` is of the host's one monotonic clock."""

    pid: int
    at_ns: int
    row: str
    n: int
    sequence_id: int
    region: str
    late: bool


class Installed(NamedTuple):
    """`environment`: what a process needs in order to find the listener. `folder`: where it notes events."""

    environment: dict[str, str]
    folder: Path

    def kept(self) -> list[Kept]:
        """Return what all processes have noted, in the order of time. A line without its end is not noted:
        its process was killed in the middle of it."""
        found: list[Kept] = []
        for file in self.folder.glob("*.jsonl"):
            lines = file.read_bytes().split(b"\n")[:-1]
            found += [msgspec.json.decode(line, type=Kept) for line in lines]
        return sorted(found, key=lambda each: each.at_ns)


def install(folder: Path, python_path: str) -> Installed:
    """Write a distribution with the entry point into `folder`, as `pip install` would."""
    library, kept = folder / "library", folder / "kept"
    info = library / "keeping-1.dist-info"
    info.mkdir(parents=True)
    kept.mkdir()
    (library / "keeping.py").write_text(_MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: keeping\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[rtolap.sep.listeners]\n{LISTENER} = keeping:keep\n")
    path = f"{library}:{python_path}" if python_path else str(library)
    return Installed({"PYTHONPATH": path, "KEEPING_FOLDER": str(kept)}, kept)
