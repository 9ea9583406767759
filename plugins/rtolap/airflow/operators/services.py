"""Services that run as tasks without end: a receiver, a loader or a consumer a task, in one DAG a kind."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, BaseOperatorLink, PokeReturnValue, Variable, XComArg, task

from rtolap.airflow.declared import (
    Completeness,
    RunningLoader,
    ServiceKind,
    consumer_key,
    loader_labels,
    receiver_labels,
)
from rtolap.airflow.links import ConsumersLink, LoaderProcessesLink, PageLink, ProcessLogLink
from rtolap.airflow.notify import Notify
from rtolap.airflow.operators.process import ManagedProcessOperator
from rtolap.base.decoding import convert
from rtolap.base.settings import Settings
from rtolap.protocols.loader.messages import EXIT_FAILED, EXIT_STOPPED, process_key

log = logging.getLogger(__name__)

LOOK_S = 60.0  # between two looks for declarations while there are none
NEVER_S = timedelta(days=3650).total_seconds()

# For about a day, ever more slowly, before a human is needed.
_RETRIES: dict[str, Any] = {
    "retries": 100,
    "retry_delay": timedelta(seconds=20),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=15),
}


class ReceiverOperator(ManagedProcessOperator):
    """Runs a receiver, as a task that never ends by itself.

    `port` 0 lets the receiver find a free one; `bounds` are options of `rtolap receiver serve` by name.
    """

    def __init__(
        self,
        *,
        receiver_id: str,
        replica_set: str,
        port: int = 0,
        bounds: Mapping[str, int | float] | None = None,
        **kwargs: Any,
    ) -> None:
        argv = ["rtolap", "receiver", "serve", "--id", receiver_id, "--replica-set", replica_set]
        argv += ["--port", str(port)]
        for name, value in sorted((bounds or {}).items()):
            argv += [f"--{name.replace('_', '-')}", str(value)]
        super().__init__(
            argv=argv, process_key=f"receiver.{receiver_id}", labels=receiver_labels(receiver_id), **kwargs
        )
        self.receiver_id = receiver_id
        self.replica_set = replica_set
        self.port = port
        self.bounds = bounds


class LoaderOperator(ManagedProcessOperator):
    """Runs a loader, as a task that never ends by itself.

    `loader` is the name of its job, `port` that of its process. `complete` is a `Completeness`. A loader that
    was stopped by `rtolap loader stop` stays stopped, and its task waits until it is cleared. One that has
    failed for a reason that a restart does not mend is not restarted by the agent; Airflow's retries look at
    it again.
    """

    operator_extra_links: tuple[BaseOperatorLink, ...] = (
        ProcessLogLink(),
        LoaderProcessesLink(),
        PageLink(),
    )

    def __init__(
        self, *, loader: str, port: int, complete: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        declared = RunningLoader(loader, port, None if complete is None else convert(complete, Completeness))
        super().__init__(
            argv=["rtolap", "loader", "run", loader, "--port", str(port)],
            process_key=process_key(loader),
            final_codes=(EXIT_STOPPED, EXIT_FAILED),
            waits_when_done=True,
            labels=loader_labels(declared),
            **kwargs,
        )
        self.loader = loader
        self.port = port
        self.complete = complete


class SubscriptionOperator(ManagedProcessOperator):
    """Runs the process that takes and delivers the edits of a subscription, as a task that never ends by
    itself.

    `subscription` is one that `rtolap sep create` has made, on the cluster of the agent's RTOLAP_HBASE.
    Region servers reach it at `host` and `ports`, by default at the agent's host by its own name and at free
    ports, as many as are declared. Several agents may each run one: as many as the subscription declares as
    `consumers` are active, the others take over.
    """

    operator_extra_links: tuple[BaseOperatorLink, ...] = (ProcessLogLink(), ConsumersLink(), PageLink())

    def __init__(
        self, *, subscription: str, host: str = "", ports: Sequence[int] = (), **kwargs: Any
    ) -> None:
        argv = ["rtolap", "sep", "serve", subscription]
        if host:
            argv += ["--host", host]
        for port in ports:
            argv += ["--port", str(port)]
        super().__init__(argv=argv, process_key=consumer_key(subscription), **kwargs)
        self.subscription = subscription
        self.host = host
        self.ports = ports


class PublicationOperator(ManagedProcessOperator):
    """A process that publishes history as an Iceberg table, as a task that never ends by itself.

    `publication` is one that `rtolap publish create` has made. Two agents may each run one: one of them
    works, the other takes over.
    """

    def __init__(self, *, publication: str, **kwargs: Any) -> None:
        argv = ["rtolap", "publish", "serve", publication]
        super().__init__(argv=argv, process_key=f"publish.{publication}", **kwargs)
        self.publication = publication


def service_dag(kind: ServiceKind, doc_md: str | None) -> DAG:
    """Return the DAG `rtolap_<plural>`, to be used with `with`: it keeps the declared services of a kind
    running.

    Unpausing it starts them; its run ends when no task is left, and the next one begins at once.
    """
    return DAG(
        dag_id=f"rtolap_{kind.plural}",
        schedule="@continuous",
        start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
        max_active_runs=1,
        catchup=False,
        default_args={
            **_RETRIES,
            "on_failure_callback": Notify(),
        },  # of every task: a wrong declaration would else make run after run
        tags=["rtolap"],
        doc_md=doc_md,
    )


def declared_services(kind: ServiceKind) -> XComArg:
    """Return the task that reads the declarations; its result is the arguments of an operator, one set each.

    While nothing is declared it waits: a run without a task would end, and the next begin at once.
    """

    @task.sensor(mode="reschedule", poke_interval=LOOK_S, timeout=NEVER_S)
    def declared() -> PokeReturnValue:
        include_dir = Settings().include_dir
        variable = Variable.get(kind.variable, default=None, deserialize_json=True)
        found = kind.declared(variable, include_dir)
        if not found:
            log.info(
                "no %s are declared, in Variable %s or %s; the next look is in %g s",
                *(kind.plural, kind.variable, include_dir / f"{kind.plural}.yaml", LOOK_S),
            )
        return PokeReturnValue(bool(found), found)

    services: XComArg = declared()
    return services
