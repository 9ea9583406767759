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

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context

from rtolap.airflow.operators.process import failure
from rtolap.airflow.operators.spark_rounds import SparkRoundsOperator
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


class MergeSegmentsOperator(SparkRoundsOperator):
    """Merges the segments of `cube` to the levels `to`, by default those that the cube declares; returns the
    intervals that it has merged.

    One merging process per cube at any time, under the key `merge.<cube>`: a second run, a retry or a cleared
    task waits for the one that is there. A merge whose members have changed meanwhile is void: they are
    planned again. A merge that fails is named, after the others are committed, and fails the task. Answers
    stay the same before, during and after. Spark is submitted as the Airflow connection `spark_conn_id` says.
    """

    template_fields: Sequence[str] = ("cube", "to", "process_key", "env")
    work = "merges"

    def __init__(self, *, cube: str, to: Sequence[str] = (), job: str = JOB, **kwargs: Any) -> None:
        super().__init__(cube=cube, job=job, **kwargs)
        self.to = list(to)

    @staticmethod
    def key_of(cube: str) -> str:
        return process_key(cube)

    def goes_on(self, made: Sequence[str]) -> bool:
        if not made:  # all were void: a later run looks at what there is then
            self.log.info("no merge of %s could be committed now", self.cube)
        return bool(made)

    def next_round(
        self, context: Context, agent: AgentClient, coordinator: CoordinatorClient, made: list[str]
    ) -> list[str]:
        plans = coordinator.plan_merges(self.cube, to=self.to)
        for refused in plans.refused:
            self.log.info("%s %s is not merged now: %s", refused.level, refused.interval, refused.reason)
        if not plans.merges:
            self.log.info(
                "nothing of %s can be merged now; %d intervals are merged, %d are too new",
                *(self.cube, plans.merged, plans.too_new),
            )
            return made
        self.log.info("merging %s", ", ".join(f"{each.level} {each.interval}" for each in plans.merges))
        generation = self.start(
            context,
            agent,
            job_arguments(self.options(), self.job),
            labels=job_labels(plans),
            files=job_files(plans),
        )
        return self.wait(context, generation)

    def settle(
        self, context: Context, agent: AgentClient, coordinator: CoordinatorClient, status: ProcessStatus
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
