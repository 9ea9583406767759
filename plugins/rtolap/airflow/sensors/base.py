"""Base of the sensors: one look in the worker, then they wait in the triggerer."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeVar

from airflow.sdk import BaseOperatorLink, BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowSensorTimeout, AirflowSkipException
from airflow.triggers.base import BaseTrigger

from rtolap.airflow.errors import final_at_once
from rtolap.airflow.hooks.connection import DEFAULT_CONN_ID
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.links import PageLink
from rtolap.airflow.triggers.base import address_of, addressed
from rtolap.base.errors import RtolapError
from rtolap.protocols.coordinator.client import CoordinatorClient

Client = TypeVar("Client")


class DeferredSensor(BaseSensorOperator, Generic[Client]):
    """Base of the sensors that wait for a service's state; `timeout` is in seconds, as everywhere in Airflow.

    When the time is over it looks once more: then it succeeds after all, or says what it found instead.
    Errors of the types in `passing` are retried, although another operator would fail at once.
    """

    operator_extra_links: tuple[BaseOperatorLink, ...] = (PageLink(),)
    passing: ClassVar[tuple[type[RtolapError], ...]] = ()

    def __init__(
        self, *, rtolap_conn_id: str = DEFAULT_CONN_ID, poke_interval: float = 5.0, **kwargs: Any
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.rtolap_conn_id = rtolap_conn_id

    @abstractmethod
    def client(self, hook: RtolapHook) -> AbstractContextManager[Client]:
        """Return the client of the service that it queries."""

    @abstractmethod
    def poll(self, client: Client) -> Any:
        """Return the sensor's result, or None while it has to wait."""

    @abstractmethod
    def found(self, client: Client) -> str:
        """Return a sentence about the expected and the found state, when the sensor times out."""

    @abstractmethod
    def trigger(self, client: Client) -> BaseTrigger:
        """Return the trigger that waits in the triggerer."""

    @abstractmethod
    def fired(self, context: Context, event: dict[str, Any]) -> Any:
        """Return the sensor's result, of what its trigger has fired."""

    def announce(self, context: Context, result: Any) -> None:
        """Add the events of assets that others wait for, as the sensor succeeds with `result`."""

    def execute(self, context: Context) -> Any:
        with final_at_once(*self.passing), self.client(RtolapHook(self.rtolap_conn_id)) as client:
            result = self.poll(client)
            if result is not None:
                return self._announced(context, result)
            trigger = addressed(self.trigger(client))
        return self.defer(
            trigger=trigger,
            method_name="heard",
            kwargs={"waited_for": address_of(trigger)},
            timeout=timedelta(seconds=self.timeout),
        )

    def heard(self, context: Context, event: dict[str, Any], waited_for: list[Any]) -> Any:
        if event.get("waited_for") != waited_for:
            self.log.info("the event is another task's, so the wait goes on: %s", event)
            return self.execute(context)
        return self._announced(context, self.fired(context, event["said"]))

    def _announced(self, context: Context, result: Any) -> Any:
        self.announce(context, result)
        return result

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except (AirflowSensorTimeout, AirflowSkipException) as ended:
            if isinstance(ended, AirflowSkipException) and not isinstance(
                ended.__cause__, AirflowSensorTimeout
            ):
                raise
            with final_at_once(*self.passing), self.client(RtolapHook(self.rtolap_conn_id)) as client:
                result = self.poll(client)
                if result is not None:
                    return self._announced(context, result)
                reason = f"waited {self.timeout:g} s without success: {self.found(client)}"
            raise type(ended)(reason) from ended


class CoordinatorSensor(DeferredSensor[CoordinatorClient]):
    """Base of the sensors that wait for the coordinator's state."""

    def client(self, hook: RtolapHook) -> AbstractContextManager[CoordinatorClient]:
        return hook.coordinator()
