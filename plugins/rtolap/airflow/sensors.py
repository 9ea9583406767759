"""Sensors: one look in the worker, then they wait in the triggerer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowException

from rtolap.airflow.connection import DEFAULT_CONN_ID
from rtolap.airflow.hook import RtolapHook
from rtolap.airflow.operators import instant_ms
from rtolap.airflow.triggers.queue import QueueTrigger
from rtolap.airflow.triggers.watermark import WatermarkTrigger


class RemotePersistedSensor(BaseSensorOperator):
    """Succeeds when a segment waits to be built: any, one of `cube`, or that `segment` of it."""

    template_fields: Sequence[str] = ("cube", "segment")

    def __init__(
        self,
        *,
        cube: str | None = None,
        segment: str | None = None,
        rtolap_conn_id: str = DEFAULT_CONN_ID,
        poke_interval: float = 5.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.cube = cube
        self.segment = segment
        self.rtolap_conn_id = rtolap_conn_id

    def execute(self, context: Context) -> int:
        trigger = QueueTrigger(
            cube=self.cube,
            segment=self.segment,
            poll_s=float(self.poke_interval),
            rtolap_conn_id=self.rtolap_conn_id,
        )
        with RtolapHook(self.rtolap_conn_id).coordinator() as coordinator:
            waiting = len(trigger.wanted(coordinator.queue()))
        if waiting:
            return waiting
        return self.defer(trigger=trigger, method_name="arrived", timeout=timedelta(seconds=self.timeout))

    def arrived(self, context: Context, event: dict[str, Any]) -> int:
        return int(event["waiting"])


class LowWatermarkSensor(BaseSensorOperator):
    """Succeeds when the cube's low watermark is at or beyond `at_least` (ISO 8601 or milliseconds)."""

    template_fields: Sequence[str] = ("cube", "at_least")

    def __init__(
        self,
        *,
        cube: str,
        at_least: str | int | datetime,
        rtolap_conn_id: str = DEFAULT_CONN_ID,
        poke_interval: float = 5.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.cube = cube
        self.at_least = at_least
        self.rtolap_conn_id = rtolap_conn_id

    def execute(self, context: Context) -> int:
        wanted_ms = instant_ms(self.at_least)
        with RtolapHook(self.rtolap_conn_id).coordinator() as coordinator:
            reached_ms = coordinator.watermark(self.cube).low_watermark_ms
        if reached_ms is not None and reached_ms >= wanted_ms:
            return reached_ms
        return self.defer(
            trigger=WatermarkTrigger(
                cube=self.cube,
                at_least_ms=wanted_ms,
                poll_s=float(self.poke_interval),
                rtolap_conn_id=self.rtolap_conn_id,
            ),
            method_name="reached",
            timeout=timedelta(seconds=self.timeout),
        )

    def reached(self, context: Context, event: dict[str, Any]) -> int:
        if "error" in event:
            raise AirflowException(f"the low watermark of {self.cube} cannot be read: {event['error']}")
        return int(event["low_watermark_ms"])
