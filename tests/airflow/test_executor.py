"""The executor's order, without worker processes: what is handed to them, and when; and what they have."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.executors.local_executor import LocalExecutor
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState
from rtolap.airflow import executor as executor_module
from rtolap.airflow.executor import IN_FLIGHT_S_MAX, OrderedLocalExecutor

from tests.support.waiting import patience_s

DAGS = Path(__file__).resolve().parents[2] / "dags"
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


def test_a_forked_task_has_the_modules_of_every_shipped_dag_and_no_thread_came_with_them() -> None:
    script = (
        "import os, sys, threading\n"
        f"sys.path.insert(0, {str(DAGS)!r})\n"
        "import airflow.jobs.scheduler_job_runner\n"
        "from rtolap.airflow.executor import import_for_tasks\n"
        "import_for_tasks()\n"
        "threads = threading.active_count(), len(os.listdir('/proc/self/task'))\n"
        "before = set(sys.modules)\n"
        f"import {', '.join(sorted(path.stem for path in DAGS.glob('*.py')))}\n"
        "parts = 'rtolap.airflow.operators', 'rtolap.airflow.sensors', 'airflow.sdk'\n"
        "print(*threads, [name for name in set(sys.modules) - before if name.startswith(parts)])\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=patience_s(120)
    ).stdout.splitlines()
    assert said[-1] == "1 1 []"


def test_what_tasks_import_is_there_when_the_workers_are_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(executor_module, "import_for_tasks", lambda: order.append("imported"))
    monkeypatch.setattr(LocalExecutor, "start", lambda self: order.append("forked"))
    executor = OrderedLocalExecutor()
    executor.is_mp_using_fork = True
    executor.start()
    assert order == ["imported", "forked"]
    executor.is_mp_using_fork = False  # a spawned worker has nothing of what this process has imported
    executor.start()
    assert order == ["imported", "forked", "forked"]
