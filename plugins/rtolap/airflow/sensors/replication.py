"""ReplicationWaitSensor waits until all edits that were written to HBase before an instant have been
delivered to a peer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from rtolap.airflow.hooks.hbase_connection import HBASE_DEFAULT, DueArguments
from rtolap.airflow.hooks.on_demand import open_replication
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.sensors.base import DeferredSensor
from rtolap.airflow.triggers.replication import ReplicationWaitTrigger
from rtolap.airflow.words import iso
from rtolap.base.clock import SystemClock
from rtolap.base.errors import Unavailable
from rtolap.model.instants import instant_ms

if TYPE_CHECKING:
    from rtolap.airflow.hooks.hbase import HBaseReplication

_NAMED_MAX = 3


class ReplicationWaitSensor(DeferredSensor["HBaseReplication"]):
    """Succeeds when all that was written before `before` (an instant; without it, the task's own start) has
    been delivered to `peer`: a subscription, or any other peer of HBase.

    The criterion of `sep.status.wait` is exact: logs that stand in queues of the peer at the instant are
    noted, each region server begins another one, once, and none of the noted ones may be left. The HBase is
    that of the connection `hbase_conn_id`. The result is {"peer", "before"}.
    """

    template_fields: Sequence[str] = ("peer", "before")

    def __init__(
        self,
        *,
        peer: str,
        before: str | int | datetime | None = None,
        hbase_conn_id: str = HBASE_DEFAULT,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.peer = peer
        self.before = before
        self.hbase_conn_id = hbase_conn_id
        self._before_ms: int | None = None
        self._due: DueArguments | None = None

    def client(self, hook: RtolapHook) -> AbstractContextManager[HBaseReplication]:
        return open_replication(self.hbase_conn_id)

    def poll(self, client: HBaseReplication) -> dict[str, Any] | None:
        now_ms = SystemClock().now_ms()
        if self._before_ms is None:
            self._before_ms = now_ms if self.before is None else instant_ms(self.before)
        if self._before_ms > now_ms:
            return None
        try:
            if self._due is None:
                # at the task's own start all queues are noted, whatever the region servers' clocks say
                self._due = client.due(self.peer, None if self.before is None else self._before_ms)
            self._due = client.advance(self._due)
        except Unavailable as error:
            self.log.warning("HBase is waited for: %s", error)
            return None
        return None if self._due["logs"] else self._result()

    def found(self, client: HBaseReplication) -> str:
        if self._due is None:
            return f"HBase has not been asked for the logs of {self.peer}"
        logs = self._due["logs"]
        more = f" and {len(logs) - _NAMED_MAX} more" if len(logs) > _NAMED_MAX else ""
        return f"{len(logs)} logs are not delivered to {self.peer}: {', '.join(logs[:_NAMED_MAX])}{more}"

    def trigger(self, client: HBaseReplication) -> ReplicationWaitTrigger:
        assert self._before_ms is not None
        return ReplicationWaitTrigger(
            peer=self.peer,
            before_ms=self._before_ms,
            due=self._due,
            poll_s=float(self.poke_interval),
            hbase_conn_id=self.hbase_conn_id,
        )

    def fired(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        return self._result()

    def heard(self, context: Context, event: dict[str, Any], waited_for: list[Any]) -> Any:
        self._restore(waited_for)
        return super().heard(context, event, waited_for)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        if next_kwargs and "waited_for" in next_kwargs:
            self._restore(next_kwargs["waited_for"])
        return super().resume_execution(next_method, next_kwargs, context)

    def _restore(self, waited_for: list[Any]) -> None:
        """Return what was noted at the instant, of the wait that ends: later there are other logs."""
        _, arguments = waited_for
        self._before_ms, self._due = arguments["before_ms"], arguments["due"]

    def _result(self) -> dict[str, Any]:
        return {"peer": self.peer, "before": iso(self._before_ms)}
