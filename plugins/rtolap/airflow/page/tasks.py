"""Tasks of Airflow that wait for processes: by their links the page leads to a task, its run and its log."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rtolap.base.decoding import copied
from rtolap.protocols.agent.messages import ProcessStatus, WaitingTask


class TaskLink(msgspec.Struct, frozen=True, kw_only=True):
    """The task that waits for a process, and the key of the process, whose log is its log.

    Attributes:
        state: of the process at its agent.
        reason: why it is in its state.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    key: str
    state: str
    reason: str = ""


def task_link(process: ProcessStatus | None) -> TaskLink | None:
    """Return the link of a process; None where no task has started it."""
    if process is None:
        return None
    return link_of(process.key, process.labels, process.state, process.reason)


def link_of(key: str, labels: Mapping[str, str], state: str = "", reason: str = "") -> TaskLink | None:
    """Return the link of a process that has these labels. state: empty for one that is not there any more."""
    task = WaitingTask.of(labels)
    if task is None:
        return None
    return copied(TaskLink, task, key=key, state=state, reason=reason)
