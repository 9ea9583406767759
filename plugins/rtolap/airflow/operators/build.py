"""SparkBuildOperator drains a cube's queue, a few segments per spark-submit, and promotes the finished
builds.

    execute ──▶ a build of this cube runs, or its result waits?  ── yes ──▶ wait for that one
       ▲                        │ no
       │              start attempts at the coordinator, one process at the agent ──▶ wait (trigger)
       │                                                                                │
       └── the queue holds more ◀── promote the built ones in order, report the others ◀─┘

What a loss of the worker after each step leaves behind: attempts without a process (the next execution starts
others, which take their right of promotion); a process (adopted by its key); a result not yet read (read by
the next execution: a process is acknowledged only when all its attempts are promoted or reported).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.operators import build_batch as batch
from rtolap.airflow.operators.build_batch import Build, BuildOutcome
from rtolap.airflow.operators.lineage import build_lineage
from rtolap.airflow.operators.spark_rounds import SparkRoundsOperator
from rtolap.airflow.outlets.datasets import Lineage, operator_lineage
from rtolap.airflow.overdue import incomplete_builds, waiting_for_approval
from rtolap.airflow.ready_assets import READY_SEGMENTS, announce, noted_versions, remember
from rtolap.airflow.words import state_of
from rtolap.base.errors import NotFound, NotYet, Refused
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import LOG_BYTES_MAX, ProcessStatus
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import BuildSpecMessage, QueueEntry

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

PROMOTE_POLL_S = 1.0


class SparkBuildOperator(SparkRoundsOperator):
    """Builds and promotes all queued segments of `cube`; returns the names of the last batch.

    One build process per cube at any time, under the key `build.<cube>`: a second run, a retry or a cleared
    task waits for the one that is there. `segments_max`: how many segments share one Spark session, whose
    start costs more than a small build. A failed attempt is reported to the coordinator and fails the task
    after the others are promoted; a retry starts a new attempt.

    Builds are submitted as the Airflow connection `spark_conn_id` says (master, deploy mode, queue,
    configuration), read again for each batch; `spark_master` and `spark_conf` go before it. The agent owns
    the process, and refuses settings that it does not allow, by name. `incomplete_builds`: `build` or
    `approve`, see `incomplete_builds`.

    Has the outlet `READY_SEGMENTS`: each promoted version is an event of the asset of the cube.
    """

    template_fields: Sequence[str] = ("cube", "process_key", "env", "incomplete_builds")
    work = "builds"

    def __init__(
        self,
        *,
        cube: str,
        segments_max: int = 128,
        job: str = "build_segment.py",
        promote_wait_s: float = 20.0,
        incomplete_builds: str = "build",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("outlets", [READY_SEGMENTS])
        super().__init__(cube=cube, job=job, **kwargs)
        self.segments_max = segments_max
        self.promote_wait_s = promote_wait_s
        self.incomplete_builds = incomplete_builds
        self.lineage: Lineage | None = None

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """Return the topic that was read, and the cube's history that was written."""
        return operator_lineage(self.lineage)

    @staticmethod
    def key_of(cube: str) -> str:
        return f"build.{cube}"

    def next_round(
        self, context: Context, agent: AgentClient, coordinator: CoordinatorClient, made: list[str]
    ) -> list[str]:
        unfinished = coordinator.segments(self.cube, state="IMMUTABLE")
        queued = [entry for entry in coordinator.queue().entries if entry.cube == self.cube]
        waiting = (
            waiting_for_approval(coordinator, queued)
            if incomplete_builds(self.incomplete_builds) == "approve"
            else {}
        )
        for entry, explanation in waiting.items():
            self.log.info(
                "%s was closed by force and waits for approval: %s", entry.segment, state_of(explanation)
            )
        entries = batch.choose(queued, self.cube, self.segments_max, unfinished, waiting)
        if not entries:
            self.log.info("nothing of %s can be built now", self.cube)
            ready = noted_versions(context, self.cube, coordinator)
            self.log.info("%d READY versions are announced", announce(context, self.cube, ready))
            self.lineage = build_lineage(coordinator, self.cube, ready, RtolapHook(self.rtolap_conn_id))
            return made
        specs = self._attempts(coordinator, entries)
        builds = [batch.build_of(spec) for spec in specs]
        self.log.info("building %s", ", ".join(f"{build.segment} v{build.version}" for build in builds))
        generation = self.start(
            context,
            agent,
            batch.argv(self.options(), self.job),
            labels=batch.labels(builds),
            files={batch.SPECS_FILE: batch.specs_file(specs)},
        )
        return self.wait(context, generation)

    def _attempts(
        self, coordinator: CoordinatorClient, entries: Sequence[QueueEntry]
    ) -> list[BuildSpecMessage]:
        """Return an attempt per segment, up to the first that cannot be built any more (purged meanwhile)."""
        specs: list[BuildSpecMessage] = []
        for entry in entries:
            try:
                specs.append(coordinator.start_build(entry.cube, entry.segment))
            except (Refused, NotFound):
                if not specs:
                    raise
                self.log.warning("%s cannot be built any more", entry.segment, exc_info=True)
                break
        return specs

    def settle(
        self, context: Context, agent: AgentClient, coordinator: CoordinatorClient, status: ProcessStatus
    ) -> tuple[list[str], list[str]]:
        """Promote what was built, in order; report the rest; then release the process.

        Returns the promoted segments and the errors of the others.
        """
        outcomes = batch.outcomes(agent.log(status.key, LOG_BYTES_MAX))
        everything_built = status.state == "SUCCEEDED"
        promoted: list[str] = []
        errors: list[str] = []
        builds = batch.builds_of(status)
        remember(context, [(build.segment, build.version) for build in builds])
        for build in builds:
            outcome = (
                BuildOutcome(built=True) if everything_built else outcomes.get(build.build_id, BuildOutcome())
            )
            error = outcome.error or f"the process is {status.state}: {status.reason}"
            if outcome.built and not errors:
                try:
                    if self._promote(coordinator, build):
                        promoted.append(build.segment)
                    continue
                except NotYet as refusal:  # an earlier segment was closed meanwhile and is built first
                    error = str(refusal)
            elif outcome.built:
                error = "an earlier segment of the batch failed"
            errors.append(f"{build.segment}: {error}")
            self._report(coordinator, build, error)
        try:
            agent.acknowledge(status.key, status.generation)
        except (Refused, NotFound) as error:
            self.log.info("another task has read the result as well: %s", error)
        return promoted, errors

    def _promote(self, coordinator: CoordinatorClient, build: Build) -> bool:
        """Return True once READY; False if a later attempt or a purge made this one void.

        NotYet, an earlier segment comes first, is retried until `promote_wait_s` and raised then.
        """
        deadline_s = time.monotonic() + self.promote_wait_s
        while True:
            try:
                coordinator.promote(build.cube, build.segment, build.build_id)
            except NotYet:
                if time.monotonic() >= deadline_s:
                    raise
                time.sleep(PROMOTE_POLL_S)
            except (Refused, NotFound) as error:
                if not self._void(coordinator, build):
                    raise
                self.log.warning("%s %s is void: %s", build.segment, build.build_id, error)
                return False
            else:
                self.log.info("%s version %d is READY", build.segment, build.version)
                return True

    def _void(self, coordinator: CoordinatorClient, build: Build) -> bool:
        try:
            segment = coordinator.segment(build.cube, build.segment)
        except NotFound:
            return True
        newest = segment.build
        return segment.state != "REMOTE_PERSISTED" or newest is None or newest.build_id != build.build_id

    def _report(self, coordinator: CoordinatorClient, build: Build, error: str) -> None:
        try:
            coordinator.fail_build(build.cube, build.segment, build.build_id, error)
        except (Refused, NotFound) as refused:
            self.log.info("%s needs no report: %s", build.segment, refused)
