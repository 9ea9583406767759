"""Merges as jobs of an agent: the same for the command and for the task of Airflow.

One merging process per cube at any time, under the key `merge.<cube>`. Its labels name the merges that it
writes, so whoever reads its result commits them.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rtolap.base.errors import NotFound, NotYet, Refused
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import ProcessSpec, ProcessStatus
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import MergePlans

JOB = "merge_segments.py"
SPECS_FILE = "merges.json"
POLL_S = 1.0
_LABEL = "merges"


class Settled(NamedTuple):
    """The outcome of a merging process.

    Attributes:
        merged: intervals whose sets are committed.
        void: intervals whose members have changed meanwhile, with the refusal.
        unwritten: intervals whose sets were not written.
        log_tail: the last lines of the process's log where some are unwritten.
    """

    merged: tuple[str, ...]
    void: tuple[str, ...]
    unwritten: tuple[str, ...]
    log_tail: tuple[str, ...]


def process_key(cube: str) -> str:
    return f"merge.{cube}"


def job_arguments(options: Sequence[str], job: str = JOB) -> list[str]:
    """Return the command of the process. `options`: of spark-submit."""
    return ["spark-submit", *options, job, "{files}/" + SPECS_FILE]


def job_labels(plans: MergePlans) -> dict[str, str]:
    named = [[each.cube, each.merge, each.interval] for each in plans.merges]
    return {"kind": "merge", _LABEL: json.dumps(named)}


def job_files(plans: MergePlans) -> dict[str, str]:
    return {SPECS_FILE: json.dumps([each.spec for each in plans.merges])}


def settle(agent: AgentClient, coordinator: CoordinatorClient, status: ProcessStatus) -> Settled:
    """Commit what an ended process has written, then release the process. It may be repeated."""
    merged: list[str] = []
    void: list[str] = []
    unwritten: list[str] = []
    for cube, merge, interval in json.loads(status.labels.get(_LABEL, "[]")):
        try:
            coordinator.commit_merge(cube, merge)
        except NotYet:
            unwritten.append(interval)
        except (Refused, NotFound) as error:
            void.append(f"{interval}: {error}")
        else:
            merged.append(interval)
    with contextlib.suppress(Refused, NotFound):  # where somebody else has read the result as well
        agent.acknowledge(status.key, status.generation)
    log_tail = tuple(status.log_tail) if unwritten else ()
    return Settled(tuple(merged), tuple(void), tuple(unwritten), log_tail)


def merge_all(
    agent: AgentClient,
    coordinator: CoordinatorClient,
    cube: str,
    *,
    to: Sequence[str],
    options: Sequence[str],
    planned: Callable[[MergePlans], None],
) -> list[Settled]:
    """Merge what can be merged now, and wait until that is done. `planned` is called with each plan.

    Goes on with a process that is there. Ends when nothing is left, or a round has merged nothing.
    """
    rounds: list[Settled] = []
    key = process_key(cube)
    while not rounds or (rounds[-1].merged and not rounds[-1].unwritten):
        status = _found(agent, key)
        if status is None:
            plans = coordinator.plan_merges(cube, to=to)
            planned(plans)
            if not plans.merges:
                return rounds
            spec = ProcessSpec(
                generation=agent.generation(key) + 1,
                argv=tuple(job_arguments(options)),
                one_shot=True,
                labels=job_labels(plans),
                files=job_files(plans),
            )
            status = agent.ensure(key, spec)
        while status.is_live:
            time.sleep(POLL_S)
            status = agent.renew(key, status.generation)
        rounds.append(settle(agent, coordinator, status))
    return rounds


def _found(agent: AgentClient, key: str) -> ProcessStatus | None:
    try:
        return agent.get(key)
    except NotFound:
        return None
