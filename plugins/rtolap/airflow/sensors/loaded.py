"""LoadedSensor waits until a table holds the rows that its loader was to bring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.sdk import Context

from rtolap.airflow.completeness import behind
from rtolap.airflow.declared import find_loader
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.operators.lineage import load_lineage
from rtolap.airflow.outlets.datasets import Lineage, operator_lineage
from rtolap.airflow.outlets.loads import LOADED_TABLES, announce_load
from rtolap.airflow.sensors.base import DeferredSensor
from rtolap.airflow.triggers.loaded import LoadedTrigger, offsets_of, outcome, words
from rtolap.base.errors import DefinitionError, NotFound, Unavailable
from rtolap.model.instants import instant_ms
from rtolap.protocols.loader.client import LoaderClient

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage


class Loader(NamedTuple):
    """The process of a loader, by its port, and the client of it."""

    port: int
    client: LoaderClient


class LoadedSensor(DeferredSensor[Loader]):
    """Succeeds when the table shows what `loader` has loaded up to `offsets` ({partition: next-to-read}), or
    all that was in its topic at the instant `until` (ISO 8601 or milliseconds, by the clock: when records
    came, not event time).

    The sensor finds the loader by its name on the agent, and waits for a loader that is not running. The
    result is {"loaded": {partition: offset}, "loader", "topic", "database", "table", "rows",
    "kafka_cluster", "target", "server"}.

    With the outlet `LOADED_TABLES`, the wait that succeeds is an event of the asset of the table. Only one
    sensor of a table is to have it: Airflow fails one of two tasks that make an asset at the same moment.
    """

    template_fields: Sequence[str] = ("loader", "until", "offsets")
    passing = (NotFound,)  # until the DAG of loaders has started it

    def __init__(
        self,
        *,
        loader: str,
        until: str | int | datetime | None = None,
        offsets: Mapping[Any, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.loader = loader
        self.until = until
        self.offsets = offsets
        self.lineage: Lineage | None = None

    def client(self, hook: RtolapHook) -> AbstractContextManager[Loader]:
        return _asking(hook, self.loader)

    def poll(self, client: Loader) -> dict[str, Any] | None:
        """Return a result for offsets only: the trigger waits for an instant and all in the topic then."""
        offsets = offsets_of(self._offsets())
        try:
            status = client.client.status()
        except Unavailable as error:
            self.log.warning("loader %s is waited for: %s", self.loader, error)
            return None
        return outcome(status) if offsets and not behind(status, offsets) else None

    def found(self, client: Loader) -> str:
        try:
            return words(client.client.status(), offsets_of(self._offsets()))
        except Unavailable as error:
            return str(error)

    def trigger(self, client: Loader) -> LoadedTrigger:
        return LoadedTrigger(
            loader=self.loader,
            port=client.port,
            until_ms=None if self.until is None else instant_ms(self.until),
            offsets=self._offsets(),
            poll_s=float(self.poke_interval),
            rtolap_conn_id=self.rtolap_conn_id,
        )

    def fired(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        return event

    def announce(self, context: Context, result: dict[str, Any]) -> None:
        if LOADED_TABLES in self.outlets:
            announce_load(context, result)
        self.lineage = load_lineage(result, RtolapHook(self.rtolap_conn_id))

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """Return the topic that was read, and the table that was loaded."""
        return operator_lineage(self.lineage)

    def _offsets(self) -> dict[str, int]:
        """Return the offsets as JSON has them.

        Raises DefinitionError unless exactly one of `offsets` and `until` is given.
        """
        given = self.offsets or {}
        try:
            offsets = {str(int(partition)): int(offset) for partition, offset in given.items()}
        except (TypeError, ValueError, AttributeError):
            offsets = {}
        if bool(given) == (self.until is not None) or len(offsets) != len(given):
            raise DefinitionError(
                "the end of the wait is not given",
                expected="until, an instant; or offsets, {partition: offset}",
                found=f"until={self.until!r}, offsets={self.offsets!r}",
            )
        return offsets


@contextmanager
def _asking(hook: RtolapHook, name: str) -> Iterator[Loader]:
    with hook.agent() as agent:
        port = find_loader(agent, name).port
    with hook.loader(port) as client:
        yield Loader(port, client)
