"""The actions of the life cycle on a real cluster: settings of its brokers, and drains by its mover."""

from __future__ import annotations

from typing import Protocol

from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.kafka.administration.values import CORDONED_LOG_DIRS, ConfigKind, ConfigResource

EVERY_LOG_DIR = "*"


class Drains(Protocol):
    """Plans and submits what empties a broker; see `brokers.BrokerActions`, `operations.drains`."""

    def submit(self, broker: int, drain_id: str, by: str, reason: str) -> None: ...

    def cancel(self, broker: int, drain_id: str, by: str, reason: str) -> None: ...


class ClusterActions:
    """Implements `brokers.BrokerActions`."""

    def __init__(self, administration: FleetAdministration, drains: Drains) -> None:
        self._administration = administration
        self._drains = drains

    def cordon(self, broker: int) -> None:
        self._set(broker, EVERY_LOG_DIR)

    def uncordon(self, broker: int) -> None:
        self._set(broker, None)

    def submit_drain(self, broker: int, drain_id: str, by: str, reason: str) -> None:
        self._drains.submit(broker, drain_id, by, reason)

    def cancel_drain(self, broker: int, drain_id: str, by: str, reason: str) -> None:
        self._drains.cancel(broker, drain_id, by, reason)

    def unregister(self, broker: int) -> None:
        """Unregister a broker, unless it serves again: it would only register again."""
        if broker not in self._administration.describe_cluster().serving:
            self._administration.unregister_broker(broker)

    def _set(self, broker: int, value: str | None) -> None:
        resource = ConfigResource(ConfigKind.BROKER, str(broker))
        refused = self._administration.alter_configs({resource: {CORDONED_LOG_DIRS: value}})
        if resource in refused:
            raise refused[resource]
