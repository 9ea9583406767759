"""A file of refused records that several processes of a host append to, some of which die meanwhile."""

from __future__ import annotations

import base64
import multiprocessing
from pathlib import Path

import msgspec
import numpy as np
from rtolap.events.rejects import Rejects
from rtolap.kafka.interfaces import Batch
from rtolap.stored.loader.records.rejects import FileBox

PROCESSES, BATCHES, RECORDS = 3, 20, 5
VALUE_BYTES = 40_000  # more than a write buffer holds


def keep(path: Path, partition: int, batches: int = BATCHES) -> None:
    """Keep batches of refused records, each with values of its own."""
    box = FileBox(path)
    for batch in range(batches):
        offsets = np.arange(batch * RECORDS, (batch + 1) * RECORDS, dtype=np.int64)
        values: list[bytes | None] = [value_of(partition, int(offset)) for offset in offsets]
        kept = Batch(values, np.full(RECORDS, partition, np.int32), offsets)
        box.keep("t", kept, Rejects(np.arange(RECORDS, dtype=np.int64), ["bad"] * RECORDS, [""] * RECORDS))
    box.close()


def value_of(partition: int, offset: int) -> bytes:
    return bytes([65 + partition]) * VALUE_BYTES + str(offset).encode()


def read(lines: list[bytes]) -> list[tuple[int, int]]:
    found = []
    for line in lines:
        record = msgspec.json.decode(line)
        place = int(record["partition"]), int(record["offset"])
        assert base64.b64decode(record["value"]) == value_of(*place)
        found.append(place)
    return found


def test_records_of_several_processes_are_whole_lines_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "j.rejects.jsonl"
    spawned = multiprocessing.get_context("spawn")
    processes = [spawned.Process(target=keep, args=(path, number)) for number in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    found = read(path.read_bytes().splitlines())
    assert sorted(found) == [(p, o) for p in range(PROCESSES) for o in range(BATCHES * RECORDS)]


def test_half_a_line_of_a_process_that_died_spoils_no_line_of_another(tmp_path: Path) -> None:
    path = tmp_path / "j.rejects.jsonl"
    keep(path, 0, 1)
    whole = path.read_bytes()
    torn = whole.splitlines()[0][:1_000]
    path.write_bytes(whole + torn)
    keep(path, 1, 1)
    lines = path.read_bytes().splitlines()
    assert lines.pop(RECORDS) == torn
    assert read(lines) == [(partition, offset) for partition in (0, 1) for offset in range(RECORDS)]
