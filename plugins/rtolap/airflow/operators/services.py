"""The kinds of service that run as tasks without end: a receiver, a loader or a consumer a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rtolap.airflow import loaders
from rtolap.airflow.operators.process import ManagedProcessOperator
from rtolap.protocols.loader.messages import EXIT_FAILED, EXIT_STOPPED, process_key


class ReceiverOperator(ManagedProcessOperator):
    """One receiver, as a task that never ends by itself.

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
        super().__init__(argv=argv, process_key=f"receiver.{receiver_id}", **kwargs)
        self.receiver_id = receiver_id
        self.replica_set = replica_set
        self.port = port
        self.bounds = bounds


class LoaderOperator(ManagedProcessOperator):
    """One loader, as a task that never ends by itself.

    `loader` is the name of its job, `port` that of its process. `complete`: see `loaders.Completeness`. A
    loader that was stopped by `rtolap loader stop` stays so, and its task waits until it is cleared. One that
    has failed for a reason that a restart does not mend is not restarted by the agent; Airflow's retries look
    at it again.
    """

    def __init__(
        self, *, loader: str, port: int, complete: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        declared = loaders.RunningLoader(
            loader, port, None if complete is None else msgspec.convert(complete, loaders.Completeness)
        )
        super().__init__(
            argv=["rtolap", "loader", "run", loader, "--port", str(port)],
            process_key=process_key(loader),
            final_codes=(EXIT_STOPPED, EXIT_FAILED),
            waits_when_done=True,
            labels=loaders.labels(declared),
            **kwargs,
        )
        self.loader = loader
        self.port = port
        self.complete = complete


class SubscriptionOperator(ManagedProcessOperator):
    """A process that takes and delivers the edits of a subscription, as a task that never ends by itself.

    `subscription` is one that `rtolap sep create` has made, on the cluster of the agent's RTOLAP_HBASE.
    `host` and `ports`: where region servers reach it, by default the agent's host by its own name and free
    ports, as many as are declared. Two agents may each run one: one of them leads, the other takes over.
    """

    def __init__(
        self, *, subscription: str, host: str = "", ports: Sequence[int] = (), **kwargs: Any
    ) -> None:
        argv = ["rtolap", "sep", "serve", subscription]
        if host:
            argv += ["--host", host]
        for port in ports:
            argv += ["--port", str(port)]
        super().__init__(argv=argv, process_key=f"sep.{subscription}", **kwargs)
        self.subscription = subscription
        self.host = host
        self.ports = ports
