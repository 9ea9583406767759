"""Plans, stages and applies a batch: segments whose events another source than the topic says.

    plan at the coordinator ──▶ stage_batch.py at the agent, awaited by a trigger ──▶ apply at the coordinator

Each step may be repeated: the same batch id is the same plan, a batch that is staged is not read again, and a
segment that was handed over is not handed over twice. A worker that is lost anywhere leaves what the next
execution goes on from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from rtolap.airflow.errors import final_at_once
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.operators.process import failure, find
from rtolap.airflow.operators.spark_rounds import SparkOperator
from rtolap.model.instants import instant_ms
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.coordinator.operations import HEARD_WITHIN_S, applied_batch, planned_batch

SPEC_FILE = "batch.json"
EXIT_REFUSED = 3  # of stage_batch.py: a retry cannot help


class BatchOperator(SparkOperator):
    """Has `cube`'s segments in `[range_start, range_end)` replaced by what `source` says.

    Instants are ISO 8601 or milliseconds. `batch` is the id, new for each batch: a clear or a retry goes on
    with the same one. `source`: `rtolap.model.batch.BatchSource` as a mapping or its JSON; the host's
    operator has to allow it (RTOLAP_SPARK_ALLOWED). Spark is submitted as the Airflow connection
    `spark_conn_id` says. Rows that no event of the cube could be, and rows outside the range, fail the task
    without a retry; nothing is changed then. Right after a change of the leading coordinator, it waits up to
    `plan_wait_s` until that one has heard the cube's receivers; a task that has waited in vain is retried.

    Result: {"cube", "batch"}, the arguments of a `BatchReadySensor`: the segments are built by
    `rtolap_segment_build`.
    """

    template_fields: Sequence[str] = ("cube", "batch", "range_start", "range_end", "source", "env")

    def __init__(
        self,
        *,
        cube: str,
        batch: str,
        range_start: str | int,
        range_end: str | int,
        source: Mapping[str, Any] | str,
        job: str = "stage_batch.py",
        plan_wait_s: float = HEARD_WITHIN_S,
        **kwargs: Any,
    ) -> None:
        super().__init__(cube=cube, job=job, process_key=f"batch.{cube}.{batch}", **kwargs)
        self.batch = batch
        self.range_start = range_start
        self.range_end = range_end
        self.source = source
        self.plan_wait_s = plan_wait_s

    def execute(self, context: Context) -> Any:
        self._named()
        hook = RtolapHook(self.rtolap_conn_id)
        with hook.agent() as agent, hook.coordinator() as coordinator, final_at_once():
            running = find(agent, self.process_key)
            if running is not None and (running.is_live or running.state == "SUCCEEDED"):
                self.log.info("%s generation %d goes on", running.key, running.generation)
                return self.wait(context, running.generation)
            source = json.loads(self.source) if isinstance(self.source, str) else dict(self.source)
            start_ms, end_ms = instant_ms(self.range_start), instant_ms(self.range_end)
            planned = planned_batch(
                coordinator, self.cube, self.batch, start_ms, end_ms, source, wait_s=self.plan_wait_s
            )
            self.log.info(
                "batch %s of %s replaces %d segments, and may begin %d others",
                *(self.batch, self.cube, planned.replaced, planned.fresh),
            )
            generation = self._stage(context, agent, json.dumps(planned.spec))
        return self.wait(context, generation)

    def process_ended(self, context: Context, event: dict[str, Any], generation: int) -> Any:
        self._named()
        if (event.get("process_key"), event.get("generation")) != (self.process_key, generation):
            self.log.info("the event is another task's, so the wait goes on: %s", event)
            self.wait(context, generation)
        hook = RtolapHook(self.rtolap_conn_id)
        with hook.agent() as agent, hook.coordinator() as coordinator, final_at_once():
            status = self.ended_status(agent, event)
            if status.state != "SUCCEEDED":
                agent.acknowledge(status.key, status.generation)
                refused = status.exit_code == EXIT_REFUSED
                raise (AirflowFailException if refused else AirflowException)(failure(status))
            progress = applied_batch(coordinator, self.cube, self.batch)
            agent.acknowledge(status.key, status.generation)
        self.log.info("%d segments with %d events are handed over", len(progress.segments), progress.events)
        return {"cube": self.cube, "batch": self.batch}

    def _stage(self, context: Context, agent: AgentClient, spec: str) -> int:
        argv = ["spark-submit", *self.options(), self.job, "{files}/" + SPEC_FILE]
        return self.start(context, agent, argv, labels={"kind": "batch"}, files={SPEC_FILE: spec})

    def _named(self) -> None:
        self.process_key = f"batch.{self.cube}.{self.batch}"  # templates are known only now
