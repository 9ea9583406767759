"""The sensor of moves of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from rtolap.airflow.sensors.base import CoordinatorSensor
from rtolap.airflow.triggers.moves import MoveTrigger, move_stands, move_state
from rtolap.protocols.coordinator.client import CoordinatorClient


class MoveStandsSensor(CoordinatorSensor):
    """Succeeds when the assignment of `epoch`, which a move prepares, stands. Fails where the move was
    cancelled, or given up because the topic has new partitions. Result: `epoch`."""

    template_fields: Sequence[str] = ("cube", "epoch")

    def __init__(self, *, cube: str, epoch: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cube = cube
        self.epoch = epoch

    def trigger(self, coordinator: CoordinatorClient) -> MoveTrigger:
        return MoveTrigger(
            cube=self.cube,
            epoch=int(self.epoch),
            poll_s=float(self.poke_interval),
            rtolap_conn_id=self.rtolap_conn_id,
        )

    def poll(self, coordinator: CoordinatorClient) -> int | None:
        status = coordinator.cube(self.cube)
        stands = move_stands(status, int(self.epoch))
        return None if stands is None else self._result(stands, move_state(status))

    def found(self, coordinator: CoordinatorClient) -> str:
        return f"{move_state(coordinator.cube(self.cube))}; expected assignment {self.epoch} to stand"

    def fired(self, context: Context, event: dict[str, Any]) -> int:
        return self._result(event["stands"], event["found"])

    def _result(self, stands: bool, found: str) -> int:
        if not stands:
            raise AirflowFailException(f"the move to assignment {self.epoch} was given up: {found}")
        self.log.info(found)
        return int(self.epoch)
