"""Samples the process in which `begin` is called: its processor time by function, written into a file.

A thread's processor time since the last sample counts for the function in which it is found: the innermost of
the product, and the innermost of all. Threads that Python did not start (those of the Flight server that run
Python now, those of librdkafka) are told by their names to the kernel.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

SAMPLE_S, WRITE_S, SWITCH_S = 0.003, 0.5, 0.0002
TASKS = Path("/proc/self/task")


def _place(frame: FrameType) -> str:
    """Return `innermost of the product > innermost`, as module.function."""
    leaf, inner = _name(frame), None
    at: FrameType | None = frame
    while at is not None and inner is None:
        inner = _name(at) if "/rtolap/" in at.f_code.co_filename else None
        at = at.f_back
    return f"{inner or '-'} > {leaf}"


def _name(frame: FrameType) -> str:
    parts = Path(frame.f_code.co_filename).with_suffix("").parts
    return f"{'.'.join(parts[-2:])}.{frame.f_code.co_name}"


def _cpu_ns() -> dict[int, int]:
    taken = {}
    for task in TASKS.iterdir():
        try:
            taken[int(task.name)] = int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return taken


def sample(path: Path) -> None:
    sys.setswitchinterval(SWITCH_S)
    dice, totals = random.Random(1), Counter[str]()
    me, before, written_s = threading.get_native_id(), _cpu_ns(), time.monotonic()
    while True:
        time.sleep(SAMPLE_S * (0.5 + dice.random()))
        frames, now = sys._current_frames(), _cpu_ns()
        known = {each.native_id: each for each in threading.enumerate() if each.native_id in now}
        own = {each.ident for each in known.values()}
        foreign = [_place(frame) for ident, frame in frames.items() if ident not in own]
        for task, taken in now.items():
            delta = taken - before.get(task, taken)
            if not delta:
                continue
            thread = known.get(task)
            if task == me:
                totals["sampler |"] += delta
            elif thread is not None and thread.ident in frames:
                totals[f"{thread.name} | {_place(frames[thread.ident])}"] += delta
            else:
                word = _comm(task)
                places = foreign if foreign and not word.startswith("rdk") else [""]
                for place in places:
                    totals[f"{word} | {place}"] += delta // len(places)
        before = now
        if time.monotonic() - written_s > WRITE_S:
            written_s = time.monotonic()
            unfinished = path.with_suffix(".new")
            unfinished.write_text(json.dumps(totals))
            unfinished.replace(path)


def _comm(task: int) -> str:
    try:
        return (TASKS / str(task) / "comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


def begin(path: str) -> None:
    threading.Thread(target=sample, args=(Path(path),), name="sampler", daemon=True).start()
