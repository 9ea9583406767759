"""The present status of each part."""

from __future__ import annotations

import time

import msgspec

from rtolap.stack.process import ManagedProcess

_LOG_LINES = 8


class PartStatus(msgspec.Struct, frozen=True):
    """state: ready | starting (runs, does not answer) | crashed | stopped; `problem` says more."""

    name: str
    state: str
    address: str
    pid: int | None
    uptime_s: float | None
    log: str
    problem: str = ""


def part_status(process: ManagedProcess) -> PartStatus:
    missing = process.missing()
    started_s = process.started_s()
    state = "ready" if missing is None else "starting" if started_s is not None else str(process.state())
    problem = missing if missing and state == "starting" else ""
    if started_s is not None and not problem and not process.log_is_written():
        problem = "its log is lost: the process that writes it has ended; down and up begin it again"
    if state == "crashed":
        problem = f"ended by itself; its log ends with:\n{process.log_tail(_LOG_LINES)}"
    return PartStatus(
        name=process.name,
        state=state,
        address=process.address,
        pid=process.pid(),
        uptime_s=None if started_s is None else round(time.time() - started_s, 1),
        log=str(process.log_path),
        problem=problem,
    )
