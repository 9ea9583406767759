"""The heartbeat of a receiver to the coordinator, once a second, and the handling of its response."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

import msgspec

from rtolap.base.clock import Clock
from rtolap.base.errors import RtolapError
from rtolap.cubes.receiver.reports import cube_report
from rtolap.cubes.receiver.runner import CubeRunner
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.store import Election
from rtolap.model.completeness import Completeness
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import CubeReport, HeartbeatRequest

log = logging.getLogger(__name__)

HEARTBEAT_EVERY_S = 1.0


class Heartbeats:
    """`run` on a thread of its own. `runners` gives the cubes that are served now, by name; `not_started`
    those that Kafka does not let this receiver start, with the reason: they are reported as FAILED."""

    def __init__(
        self,
        *,
        receiver_id: str,
        replica_set: str,
        token: str,
        metadata: ClusterMetadata,
        election: Election,
        clock: Clock,
        runners: Callable[[], Mapping[str, CubeRunner]],
        not_started: Callable[[], Mapping[str, str]],
    ) -> None:
        self._receiver_id = receiver_id
        self._replica_set = replica_set
        self._token = token
        self._metadata = metadata
        self._election = election
        self._clock = clock
        self._runners = runners
        self._not_started = not_started
        self._coordinators: tuple[str, ...] = ()
        self._client: CoordinatorClient | None = None

    def run(self, stopping: threading.Event) -> None:
        while not stopping.wait(HEARTBEAT_EVERY_S):
            try:
                self._beat()
            except RtolapError as error:
                log.info("heartbeat: %s", error)
            except Exception:
                log.exception("heartbeat")
        if self._client is not None:
            self._client.close()

    def _beat(self) -> None:
        runners = self._runners()
        client = self._coordinator()
        if client is None:
            return
        response = client.heartbeat(
            HeartbeatRequest(
                receiver_id=self._receiver_id,
                replica_set=self._replica_set,
                is_leader=self._election.is_leader(),
                cubes={
                    **{
                        name: CubeReport(state=ConsumerState.FAILED, reason=reason)
                        for name, reason in self._not_started().items()
                    },
                    **{name: cube_report(runner.core, self._clock) for name, runner in runners.items()},
                },
            )
        )
        for name, low_watermark_ms in response.low_watermark_ms.items():
            if name in runners:
                runners[name].offer_watermark(low_watermark_ms)
        for name, windows in response.windows.items():
            if name in runners:
                runners[name].offer_windows(
                    tuple(msgspec.convert(window.model_dump(), Completeness) for window in windows)
                )

    def _coordinator(self) -> CoordinatorClient | None:
        """Coordinators are found where they stand for election; without ZooKeeper the last ones are kept."""
        if self._metadata.store.connected():
            urls: Sequence[str] = self._metadata.coordinators()
            if urls and set(urls) != set(self._coordinators):
                if self._client is not None:
                    self._client.close()
                self._coordinators = tuple(urls)
                self._client = CoordinatorClient(urls, self._token)
        return self._client
