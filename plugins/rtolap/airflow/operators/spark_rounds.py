"""Spark work of one cube in rounds: each a process at the agent, whose result the next execution settles.

execute ──▶ a process of this cube runs, or its result waits?  ── yes ──▶ wait for that one
   ▲                        │ no
   │              start the next round, one process at the agent ──▶ wait (trigger)
   │                                                                     │
   └── more is to be done ◀── settle what the round has made, name the others
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperatorLink, Context
from airflow.sdk.exceptions import AirflowException

from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.hooks.spark import SPARK_DEFAULT, spark_options
from rtolap.airflow.links import PageLink, ProcessLogLink, SegmentsLink
from rtolap.airflow.operators.process import ManagedProcessOperator, find
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import ProcessStatus
from rtolap.protocols.coordinator.client import CoordinatorClient


class SparkOperator(ManagedProcessOperator):
    """Base of operators that do Spark work of `cube`. Spark is submitted as the Airflow connection
    `spark_conn_id` says, read again for each process; `spark_master` and `spark_conf` go before it."""

    operator_extra_links: tuple[BaseOperatorLink, ...] = (ProcessLogLink(), SegmentsLink(), PageLink())
    ui_color = "#f4e3d7"

    def __init__(
        self,
        *,
        cube: str,
        job: str,
        spark_conn_id: str = SPARK_DEFAULT,
        spark_master: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(argv=(), one_shot=True, **kwargs)
        self.cube = cube
        self.spark_conn_id = spark_conn_id
        self.spark_master = spark_master
        self.spark_conf = dict(spark_conf or {})
        self.job = job

    def options(self) -> list[str]:
        """Return the options of spark-submit for the next process."""
        return spark_options(
            self.process_key, self.spark_conf, conn_id=self.spark_conn_id, master=self.spark_master
        )


class SparkRoundsOperator(SparkOperator):
    """Base of operators that do Spark work of `cube` until none is left, and return what was made.

    At most one process of a kind and cube runs at any time. A second run, a retry or a cleared task waits
    for the one that is there.

    Attributes:
        work: what a failure is said of, in the plural.
    """

    work = ""

    def __init__(self, *, cube: str, **kwargs: Any) -> None:
        super().__init__(cube=cube, process_key=self.key_of(cube), **kwargs)

    @staticmethod
    @abstractmethod
    def key_of(cube: str) -> str:
        """Return the key of the cube's process of this kind."""

    @abstractmethod
    def next_round(
        self, context: Context, agent: AgentClient, coordinator: CoordinatorClient, made: list[str]
    ) -> list[str]:
        """Start the next round and wait for it; or, with nothing left, return what was made."""

    @abstractmethod
    def settle(
        self, context: Context, agent: AgentClient, coordinator: CoordinatorClient, status: ProcessStatus
    ) -> tuple[list[str], list[str]]:
        """Take over what a process has made, and acknowledge it. Return that, and the errors of the rest."""

    def goes_on(self, made: Sequence[str]) -> bool:
        """Return whether another round may find work after one that has made this."""
        return True

    def execute(self, context: Context) -> list[str]:
        self.process_key = self.key_of(self.cube)  # a mapped or templated cube is known only now
        hook = RtolapHook(self.rtolap_conn_id)
        with hook.agent() as agent, hook.coordinator() as coordinator:
            running = find(agent, self.process_key)
            if running is not None and running.is_live:
                self.log.info("waiting for %s, which is under way", running.key)
                return self.wait(context, running.generation)
            made: list[str] = []
            if running is not None:
                made, errors = self.settle(context, agent, coordinator, running)
                for error in errors:  # of an execution that was ended: this one starts over
                    self.log.warning("an earlier attempt failed: %s", error)
            return self.next_round(context, agent, coordinator, made)

    def process_ended(self, context: Context, event: dict[str, Any], generation: int) -> list[str]:
        self.process_key = self.key_of(self.cube)
        hook = RtolapHook(self.rtolap_conn_id)
        with hook.agent() as agent, hook.coordinator() as coordinator:
            status = find(agent, self.process_key)
            if status is None or status.is_live or status.generation != generation:
                self.log.info("another task has read the result: looking again")
                return self.execute(context)
            made, errors = self.settle(context, agent, coordinator, status)
            if errors:
                lines = "\n".join((*errors, *status.log_tail))
                raise AirflowException(f"{len(errors)} {self.work} of {self.cube} failed:\n{lines}")
            return self.next_round(context, agent, coordinator, made) if self.goes_on(made) else made
