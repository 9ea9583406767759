"""Sensor of batches. One that times out says what it waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from rtolap.airflow.batches import BatchOutcome, BatchWatch
from rtolap.airflow.rebuilt import FAILED_AFTER_S
from rtolap.airflow.sensors.base import CoordinatorSensor
from rtolap.airflow.triggers.batches import BatchTrigger
from rtolap.protocols.coordinator.client import CoordinatorClient


class BatchReadySensor(CoordinatorSensor):
    """Succeeds when all segments of a staged and applied batch are READY, and fails with the names and errors
    of those that will not be. Result: {"cube", "batch"}.

    A segment fails when its builds have failed for `failed_after_s`; the batch when one was withdrawn, purged
    or replaced by another batch.
    """

    template_fields: Sequence[str] = ("cube", "batch")

    def __init__(
        self, *, cube: str, batch: str, failed_after_s: float = FAILED_AFTER_S, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.cube = cube
        self.batch = batch
        self.failed_after_s = failed_after_s

    def trigger(self, coordinator: CoordinatorClient) -> BatchTrigger:
        return BatchTrigger(
            cube=self.cube,
            batch=self.batch,
            failed_after_s=self.failed_after_s,
            poll_s=float(self.poke_interval),
            rtolap_conn_id=self.rtolap_conn_id,
        )

    def poll(self, coordinator: CoordinatorClient) -> dict[str, Any] | None:
        seen = self._seen(coordinator)
        self.log.info("%s: %s", self.cube, seen.text)
        return self._result(seen.text, seen.failed) if seen.is_done or seen.failed else None

    def found(self, coordinator: CoordinatorClient) -> str:
        return f"{self.cube}: {self._seen(coordinator).text}"

    def fired(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        return self._result(event["text"], event["failed"])

    def _seen(self, coordinator: CoordinatorClient) -> BatchOutcome:
        return BatchWatch(self.failed_after_s).look(coordinator.batch_progress(self.cube, self.batch), 0.0)

    def _result(self, text: str, failed: Mapping[str, str]) -> dict[str, Any]:
        if failed:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
            raise AirflowFailException(f"batch {self.batch} of {self.cube} is not history: {reasons}")
        self.log.info("%s: %s", self.cube, text)
        return {"cube": self.cube, "batch": self.batch}
