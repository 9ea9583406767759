"""Long-running processes as deferred tasks.

A task requests a generation of a process and waits in a trigger. The generation is in the task
state store, which survives retry and clear: each execution raises it, and the agent ends the old process
before it starts the new one. So a clear that overtakes its own stop request never leaves two processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from airflow.sdk import NEVER_EXPIRE, BaseOperator, BaseOperatorLink, Context  # type: ignore[attr-defined,unused-ignore]
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from rtolap.airflow.hooks.connection import DEFAULT_CONN_ID
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.links import PageLink, ProcessLogLink
from rtolap.airflow.triggers.process import LOST, SUPERSEDED, ProcessTrigger
from rtolap.base.errors import NotFound
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import (
    LEASE_S_DEFAULT,
    ORPHAN_S_DEFAULT,
    STOP_GRACE_S_DEFAULT,
    ProcessSpec,
    ProcessStatus,
    RestartPolicy,
    WaitingTask,
)

GENERATION_KEY = "generation"


class ManagedProcessOperator(BaseOperator):
    """Keeps a process running (or, with `one_shot`, runs it once) on the agent's host.

    `process_key` names the process on its host: two tasks with the same key take it from each other, and the
    task that lost it fails without a retry. A long-running process that ends has failed: crashes are the
    agent's to restart, up to `restarts_max` and not after one of `final_codes`, and Airflow's `retries` come
    after that. A one-shot that is executed again while it runs (a clear, a lost worker) is adopted, not
    started twice. With `waits_when_done`, a process that ends with code 0, as was requested elsewhere, keeps
    the task waiting until it is cleared. `labels` go with the process, so that others find it on the agent.
    While Airflow is away nobody asks for a process, and it goes on; after `orphan_s` it is stopped.
    """

    template_fields: Sequence[str] = ("argv", "process_key", "env")
    operator_extra_links: tuple[BaseOperatorLink, ...] = (ProcessLogLink(), PageLink())
    ui_color = "#dfeef2"

    def __init__(
        self,
        *,
        argv: Sequence[str],
        process_key: str,
        env: Mapping[str, str] | None = None,
        one_shot: bool = False,
        lease_s: float = LEASE_S_DEFAULT,
        orphan_s: float = ORPHAN_S_DEFAULT,
        stop_grace_s: float = STOP_GRACE_S_DEFAULT,
        restarts_max: int = 5,
        restart_backoff_s: float = 2.0,
        final_codes: Sequence[int] = (),
        waits_when_done: bool = False,
        labels: Mapping[str, str] | None = None,
        poll_s: float = 2.0,
        rtolap_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.argv = list(argv)
        self.process_key = process_key
        self.env = dict(env or {})
        self.one_shot = one_shot
        self.lease_s = lease_s
        self.orphan_s = orphan_s
        self.stop_grace_s = stop_grace_s
        self.restarts_max = restarts_max
        self.restart_backoff_s = restart_backoff_s
        self.final_codes = tuple(final_codes)
        self.waits_when_done = waits_when_done
        self.labels = dict(labels or {})
        self.poll_s = poll_s
        self.rtolap_conn_id = rtolap_conn_id

    def execute(self, context: Context) -> Any:
        with RtolapHook(self.rtolap_conn_id).agent() as agent:
            running = find(agent, self.process_key) if self.one_shot else None
            if running is not None and self.adopts(running):
                self.log.info("%s generation %d goes on: %s", running.key, running.generation, running.state)
                generation = running.generation
            else:
                generation = self.start(context, agent, self.argv)
        return self.wait(context, generation)

    def adopts(self, status: ProcessStatus) -> bool:
        """Return True if this one-shot, running or not yet read, is the one that this task would start."""
        return (status.is_live or status.state == "SUCCEEDED") and list(status.argv) == list(self.argv)

    def start(
        self,
        context: Context,
        agent: AgentClient,
        argv: Sequence[str],
        *,
        labels: dict[str, str] | None = None,
        files: dict[str, str] | None = None,
    ) -> int:
        """Ensure a new generation; returns it. The number is stored before it is used: a worker that is lost
        in between leaves a gap in the numbers, never two processes under one.
        """
        store = context["task_state_store"]
        stored = store.get(GENERATION_KEY)
        known = agent.generation(self.process_key)
        generation = max(stored if isinstance(stored, int) else 0, known) + 1
        store.set(GENERATION_KEY, generation, retention=NEVER_EXPIRE)
        spec = ProcessSpec(
            generation=generation,
            argv=tuple(argv),
            env=self.env,
            lease_s=self.lease_s,
            orphan_s=self.orphan_s,
            restart=RestartPolicy(
                max=self.restarts_max, backoff_s=self.restart_backoff_s, final_codes=self.final_codes
            ),
            one_shot=self.one_shot,
            stop_grace_s=self.stop_grace_s,
            labels={**(labels or self.labels), **_waiting_task(context).label()},
            files=files or {},
        )
        status = agent.ensure(self.process_key, spec)
        self.log.info("%s generation %d: %s", self.process_key, generation, status.reason or status.state)
        return generation

    def wait(self, context: Context, generation: int) -> NoReturn:
        task = _waiting_task(context)
        trigger = ProcessTrigger(
            process_key=self.process_key,
            generation=generation,
            dag_id=task.dag_id,
            run_id=task.run_id,
            task_id=task.task_id,
            map_index=task.map_index,
            poll_s=self.poll_s,
            waits_when_done=self.waits_when_done,
            rtolap_conn_id=self.rtolap_conn_id,
        )
        self.defer(trigger=trigger, method_name="process_ended", kwargs={"generation": generation})

    def process_ended(self, context: Context, event: dict[str, Any], generation: int) -> Any:
        """End the task when a trigger has fired. `generation` is the generation that was waited for. Only
        one-shots can succeed.

        What another one says (see `AddressedTrigger`) is not meant: after a clear, that the former process
        was replaced.
        """
        if (event.get("process_key"), event.get("generation")) != (self.process_key, generation):
            self.log.info("the event is another task's, so the wait goes on: %s", event)
            self.wait(context, generation)
        with RtolapHook(self.rtolap_conn_id).agent() as agent:
            status = self.ended_status(agent, event)
            if self.one_shot:
                agent.acknowledge(status.key, status.generation)
        if self.one_shot and status.state == "SUCCEEDED":
            self.log.info("%s is done:\n%s", status.key, "\n".join(status.log_tail))
            return status.exit_code
        raise AirflowException(failure(status))

    def ended_status(self, agent: AgentClient, event: dict[str, Any]) -> ProcessStatus:
        """Return the ended process of this wait; raises for one that was replaced or lost."""
        if event["state"] == SUPERSEDED:
            raise AirflowFailException(
                f"{self.process_key} generation {event['generation']} was replaced: {event['reason']}; "
                "another task runs this process now"
            )
        if event["state"] == LOST:
            raise AirflowException(f"{self.process_key} is out of sight: {event['reason']}")
        status = find(agent, self.process_key)
        if status is None or status.generation != event["generation"]:
            raise AirflowFailException(f"{self.process_key} ended and was taken over by another task")
        return status


def _waiting_task(context: Context) -> WaitingTask:
    ti = context["ti"]
    return WaitingTask(ti.dag_id, ti.run_id, ti.task_id, -1 if ti.map_index is None else ti.map_index)


def find(agent: AgentClient, key: str) -> ProcessStatus | None:
    try:
        return agent.get(key)
    except NotFound:
        return None


def failure(status: ProcessStatus) -> str:
    lines = "\n".join(status.log_tail)
    return f"{status.key} generation {status.generation} is {status.state}: {status.reason}\n{lines}"
