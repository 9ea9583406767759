"""The executor's order, without worker processes: what is handed to them, and when."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.executors.local_executor import LocalExecutor
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState
from rtolap.airflow.executor import IN_FLIGHT_S_MAX, OrderedLocalExecutor

FIRST = TaskInstanceKey("d", "t", "r", 1, -1)
OTHER = TaskInstanceKey("d", "other", "r", 1, -1)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[TaskInstanceKey]:
    """What a worker was given, in order."""
    given: list[TaskInstanceKey] = []

    def process(executor: LocalExecutor, workloads: list[Any]) -> None:
        for workload in workloads:
            given.append(executor.queued_tasks.pop(workload.key).key)

    monkeypatch.setattr(LocalExecutor, "_process_workloads", process)
    return given


def queue(executor: OrderedLocalExecutor, key: TaskInstanceKey) -> None:
    workload: Any = SimpleNamespace(key=key, ti=SimpleNamespace(key=key, priority_weight=1))
    executor.queued_tasks[key] = workload
    executor.trigger_tasks(4)


def task(key: TaskInstanceKey) -> Any:
    return SimpleNamespace(id=key.task_id, key=key)


def test_a_task_is_resumed_when_the_end_of_its_execution_before_is_known(
    started: list[TaskInstanceKey],
) -> None:
    executor = OrderedLocalExecutor()
    queue(executor, FIRST)
    queue(executor, FIRST)  # resumed by a quick trigger, while its process still ends
    queue(executor, OTHER)
    assert started == [FIRST, OTHER]
    executor.success(FIRST)
    assert executor.has_task(task(FIRST)), "the scheduler sees that this end is not that of the task"
    executor.trigger_tasks(4)
    assert started == [FIRST, OTHER, FIRST]
    executor.success(FIRST)
    assert not executor.has_task(task(FIRST))
    states = {key: state for key, (state, _) in executor.get_event_buffer().items()}
    assert states == {FIRST: TaskInstanceState.SUCCESS}


def test_an_end_that_is_never_told_is_not_waited_for_without_end(
    started: list[TaskInstanceKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    executor = OrderedLocalExecutor()
    queue(executor, FIRST)
    queue(executor, FIRST)
    now_s = IN_FLIGHT_S_MAX - 1
    executor.trigger_tasks(4)
    assert started == [FIRST]
    now_s = IN_FLIGHT_S_MAX
    executor.trigger_tasks(4)
    assert started == [FIRST, FIRST]
