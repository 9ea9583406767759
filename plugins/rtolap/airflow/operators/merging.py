"""MergeSegmentsOperator merges small segments, some intervals per spark-submit, and commits the sets.

    execute ──▶ a merge of this cube runs, or its result waits?  ── yes ──▶ wait for that one
       ▲                        │ no
       │              plan at the coordinator, one process at the agent ──▶ wait (trigger)
       │                                                                        │
       └── more can be merged ◀── commit the written sets, name the others ◀────┘

What a loss of the worker after each step leaves behind: plans without a process, which change nothing and are
cleaned up; a process (adopted by its key); a result not yet read (read by the next execution: a process is
acknowledged only when all of its merges are committed or void).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperatorLink, Context
from airflow.sdk.exceptions import AirflowException

from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.hooks.spark import SPARK_DEFAULT, spark_options
from rtolap.airflow.links import PageLink, ProcessLogLink, SegmentsLink
from rtolap.airflow.operators.process import ManagedProcessOperator, failure, find
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import ProcessStatus
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.merge_jobs import (
    JOB,
    job_arguments,
    job_files,
    job_labels,
    process_key,
    settle,
)


class MergeSegmentsOperator(ManagedProcessOperator):
    """Merges the segments of `cube` to the levels `to`, by default those that the cube declares; returns the
    intervals that it has merged.

    One merging process per cube at any time, under the key `merge.<cube>`: a second run, a retry or a cleared
    task waits for the one that is there. A merge whose members have changed meanwhile is void: they are
    planned again. A merge that fails is named, after the others are committed, and fails the task. Answers
    stay the same before, during and after. Spark is submitted as the Airflow connection `spark_conn_id` says.
    """

    template_fields: Sequence[str] = ("cube", "to", "process_key", "env")
    operator_extra_links: tuple[BaseOperatorLink, ...] = (ProcessLogLink(), SegmentsLink(), PageLink())
    ui_color = "#f4e3d7"

    def __init__(
        self,
        *,
        cube: str,
        to: Sequence[str] = (),
        spark_conn_id: str = SPARK_DEFAULT,
        spark_master: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
        job: str = JOB,
        **kwargs: Any,
    ) -> None:
        super().__init__(argv=(), process_key=process_key(cube), one_shot=True, **kwargs)
        self.cube = cube
        self.to = list(to)
        self.spark_conn_id = spark_conn_id
        self.spark_master = spark_master
        self.spark_conf = dict(spark_conf or {})
        self.job = job

    def execute(self, context: Context) -> list[str]:
        self.process_key = process_key(self.cube)  # a mapped or templated cube is known only now
        hook = RtolapHook(self.rtolap_conn_id)
        with hook.agent() as agent, hook.coordinator() as coordinator:
            running = find(agent, self.process_key)
            if running is not None and running.is_live:
                self.log.info("waiting for %s, which is under way", running.key)
                return self.wait(context, running.generation)
            merged: list[str] = []
            if running is not None:
                merged, errors = self._settle(agent, coordinator, running)
                for error in errors:  # of an execution that was ended: this one starts over
                    self.log.warning("an earlier merge failed: %s", error)
            return self._next(context, agent, coordinator, merged)

    def process_ended(self, context: Context, event: dict[str, Any], generation: int) -> list[str]:
        self.process_key = process_key(self.cube)
        hook = RtolapHook(self.rtolap_conn_id)
        with hook.agent() as agent, hook.coordinator() as coordinator:
            status = find(agent, self.process_key)
            if status is None or status.is_live or status.generation != generation:
                self.log.info("another task has read the result: looking again")
                return self.execute(context)
            merged, errors = self._settle(agent, coordinator, status)
            if errors:
                lines = "\n".join((*errors, *status.log_tail))
                raise AirflowException(f"{len(errors)} merges of {self.cube} failed:\n{lines}")
            if not merged:  # all were void: a later run looks at what there is then
                self.log.info("no merge of %s could be committed now", self.cube)
                return merged
            return self._next(context, agent, coordinator, merged)

    def _next(
        self, context: Context, agent: AgentClient, coordinator: CoordinatorClient, merged: list[str]
    ) -> list[str]:
        """Start the next merges and wait for them; or, with none left, end."""
        plans = coordinator.plan_merges(self.cube, to=self.to)
        for refused in plans.refused:
            self.log.info("%s %s is not merged now: %s", refused.level, refused.interval, refused.reason)
        if not plans.merges:
            self.log.info(
                "nothing of %s can be merged now; %d intervals are merged, %d are too new",
                *(self.cube, plans.merged, plans.too_new),
            )
            return merged
        options = spark_options(
            self.process_key, self.spark_conf, conn_id=self.spark_conn_id, master=self.spark_master
        )
        self.log.info("merging %s", ", ".join(f"{each.level} {each.interval}" for each in plans.merges))
        generation = self.start(
            context,
            agent,
            job_arguments(options, self.job),
            labels=job_labels(plans),
            files=job_files(plans),
        )
        return self.wait(context, generation)

    def _settle(
        self, agent: AgentClient, coordinator: CoordinatorClient, status: ProcessStatus
    ) -> tuple[list[str], list[str]]:
        """Commit what was written. Return the merged intervals, and the errors of those that are not
        written."""
        settled = settle(agent, coordinator, status)
        for void in settled.void:
            self.log.warning("a merge is void: %s", void)
        errors = [f"{interval} is not written" for interval in settled.unwritten]
        if errors and status.state != "SUCCEEDED":
            errors.append(failure(status))
        return list(settled.merged), errors
