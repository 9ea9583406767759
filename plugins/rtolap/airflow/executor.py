"""LocalExecutor for tasks that defer: one execution of a task at a time. See docs/decisions/0014.

Its workers have imported beforehand what tasks import. See docs/decisions/0098.
"""

# mypy: disable-error-code="no-untyped-call"
# (Airflow's executors carry no annotations.)
from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

from airflow.executors.local_executor import LocalExecutor

from rtolap.airflow import operators, sensors

if TYPE_CHECKING:
    from airflow.executors.workloads import ExecutorWorkload
    from airflow.executors.workloads.types import WorkloadKey, WorkloadState

IN_FLIGHT_S_MAX = 120.0  # Airflow never reports the end of an execution whose worker was killed

# Airflow imports these in each process of a task, or in each worker, once it is forked.
_RUNS_TASKS = (
    "airflow.dag_processing.dagbag",
    "airflow.sdk.execution_time.supervisor",
    "airflow.sdk.execution_time.task_runner",
)


def import_for_tasks() -> None:
    """Import what runs tasks, and all operators and sensors of the product, so that forked processes have it.

    None of these modules starts a thread or opens a connection: a fork would break either. Clients of Kafka
    and ZooKeeper may do so, and only tasks that use them import them (`hooks.on_demand`).
    """
    for name in _RUNS_TASKS:
        import_module(name)
    for package in (operators, sensors):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)


class OrderedLocalExecutor(LocalExecutor):
    """Airflow's LocalExecutor, except that a resumed task waits in the queue until its earlier execution has
    ended.

    A task that defers ends its process, and a quick trigger resumes it sooner than that end is read. The
    scheduler then takes the late end for that of the resumed execution, and marks the task as failed or as up
    for retry while it runs. A task in the queue is known to be resumed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._executing: set[WorkloadKey] = set()
        self._waiting_since_s: dict[WorkloadKey, float] = {}

    def start(self) -> None:
        """Start the workers, which are forked and have what this process has imported."""
        if self.is_mp_using_fork:
            import_for_tasks()
        super().start()

    def _process_workloads(self, workload_list: Sequence[ExecutorWorkload]) -> None:
        ready = [workload for workload in workload_list if self._may_start(workload.key)]
        self._executing.update(workload.key for workload in ready)
        super()._process_workloads(ready)

    def change_state(
        self, key: WorkloadKey, state: WorkloadState, info: Any = None, remove_running: bool = True
    ) -> None:
        self._executing.discard(key)
        super().change_state(key, state, info, remove_running)

    def _may_start(self, key: WorkloadKey) -> bool:
        if key not in self._executing:
            self._waiting_since_s.pop(key, None)
            return True
        now_s = time.monotonic()
        waited_s = now_s - self._waiting_since_s.setdefault(key, now_s)
        if waited_s < IN_FLIGHT_S_MAX:
            return False
        self.log.warning("the end of %s was not reported within %d s, so it is started again", key, waited_s)
        del self._waiting_since_s[key]
        return True
