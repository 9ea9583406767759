"""Tasks that tell people once of overdue windows and of refused records. What was told stands with an asset.

    look ──▶ new? ── yes ──▶ tell ──▶ note          a worker that is lost in between tells once more
              └── no: it is noted

Where no notifier is declared, or none gets through, nothing is noted, and the next run tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from airflow.sdk import Asset, BaseOperator, Context

from rtolap.airflow.declared import defined_subscriptions, loader_of
from rtolap.airflow.errors import final_at_once
from rtolap.airflow.hooks.connection import DEFAULT_CONN_ID
from rtolap.airflow.hooks.on_demand import open_kafka
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.notices import LetterTopic, overdue_notice, refused_notice
from rtolap.airflow.notify import tell
from rtolap.airflow.overdue import OVERDUE_AFTER, windows_to_ask_about
from rtolap.airflow.windows import Window, explain
from rtolap.airflow.words import iso
from rtolap.base.clock import SystemClock
from rtolap.base.decoding import convert
from rtolap.base.errors import NotFound, RtolapError
from rtolap.base.settings import Settings
from rtolap.model.subscription import dead_letter_topic
from rtolap.model.table import Table
from rtolap.protocols.coordinator.client import CoordinatorClient

NOTICES = Asset(name="rtolap_notices", uri="x-rtolap://notices")
APPROVAL = "rtolap_window_approval"
LETTERS_MAX = 1_000
_WINDOWS = "windows"


class TellOverdueWindowsOperator(BaseOperator):
    """Tells once of each window that is overdue by `overdue_after`, of each application the oldest
    `windows_max`. A window that was let go and is overdue anew is told of again.

    Windows for which `rtolap_window_approval` has asked a person are passed over: the question was told.
    Returns the windows that were told of.
    """

    template_fields: Sequence[str] = ("overdue_after",)

    def __init__(
        self,
        *,
        overdue_after: str = OVERDUE_AFTER,
        windows_max: int = 12,
        rtolap_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("inlets", [NOTICES])
        super().__init__(**kwargs)
        self.overdue_after = overdue_after
        self.windows_max = windows_max
        self.rtolap_conn_id = rtolap_conn_id

    def execute(self, context: Context) -> list[str]:
        added: list[str] = []
        with final_at_once(), RtolapHook(self.rtolap_conn_id).coordinator() as coordinator:
            store = context["asset_state_store"][NOTICES]
            told = _kept(store.get(_WINDOWS), dict[str, str])
            windows = windows_to_ask_about(coordinator, self.overdue_after, self.windows_max, "build")
            for window in windows:
                if window.run_id not in told and self._tell(context, coordinator, window):
                    told[window.run_id] = iso(SystemClock().now_ms())
                    store.set(_WINDOWS, told)
                    added.append(window.run_id)
        standing = {window.run_id for window in windows}
        store.set(_WINDOWS, {run_id: at for run_id, at in told.items() if run_id in standing})
        return added

    def _tell(self, context: Context, coordinator: CoordinatorClient, window: Window) -> bool:
        if context["ti"].get_dr_count(dag_id=APPROVAL, run_ids=[window.run_id]):
            self.log.info("a person is asked about %s", window.run_id)
            return False
        return tell(overdue_notice(explain(coordinator, window)), context)


class TellDeadLettersOperator(BaseOperator):
    """Tells once of records that tables and loaders have refused, and of events that captures have skipped or
    set apart: one notice a topic and look.

    `topics` are topics of dead letters on the Kafka cluster of `kafka_conn_id`; by default all of them: those
    of the coordinator's tables, of the loaders on the agent, and of the subscriptions in `include/sep`, each
    on its own cluster. At the first look all that a topic holds is told of. Values are in no notice. Returns
    the number of letters by topic.
    """

    template_fields: Sequence[str] = ("topics",)

    def __init__(
        self,
        *,
        topics: Sequence[str] | None = None,
        kafka_conn_id: str | None = None,
        rtolap_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("inlets", [NOTICES])
        super().__init__(**kwargs)
        self.topics = topics
        self.kafka_conn_id = kafka_conn_id
        self.rtolap_conn_id = rtolap_conn_id

    def execute(self, context: Context) -> dict[str, int]:
        with final_at_once():
            sources = self._sources()
        found: dict[str, int] = {}
        failed: list[RtolapError] = []
        for source in sources:
            try:
                number = self._look(context, source)
            except NotFound:
                continue  # made with the first letter
            except RtolapError as error:
                self.log.warning("%s cannot be read: %s", source.topic, error)
                failed.append(error)
                continue
            if number:
                found[source.topic] = number
        if failed:  # those of others were told of
            raise failed[0]
        return found

    def _look(self, context: Context, source: LetterTopic) -> int:
        """Tell of the new letters of a topic; return their number."""
        store, key = context["asset_state_store"][NOTICES], f"letters.{source.cluster}.{source.topic}"
        since = _kept(store.get(key), dict[int, int])
        hook = open_kafka(source.cluster, self.kafka_conn_id)
        new = hook.new_dead_letters(source.topic, since, LETTERS_MAX)
        if new.letters and not tell(refused_notice(source, new.letters, more=new.more), context):
            return 0
        if new.offsets != since:
            store.set(key, {str(partition): offset for partition, offset in new.offsets.items()})
        return len(new.letters)

    def _sources(self) -> list[LetterTopic]:
        if self.topics is not None:
            cluster = self.kafka_conn_id or "kafka_default"
            look = "read the topic, or list what is refused with rtolap dead-letters"
            return [LetterTopic(cluster, topic, topic, look) for topic in self.topics]
        hook = RtolapHook(self.rtolap_conn_id)
        found = [*self._of_tables(hook), *self._of_loaders(hook), *_of_subscriptions()]
        return list({(source.cluster, source.topic): source for source in found}.values())

    def _of_tables(self, hook: RtolapHook) -> list[LetterTopic]:
        with hook.coordinator() as coordinator:
            tables = [convert(coordinator.table(name), Table) for name in coordinator.tables()]
        return [
            LetterTopic(
                table.kafka_cluster,
                table.dead_letter_topic,
                f"table {table.name}",
                f"rtolap dead-letters list {table.name}",
            )
            for table in tables
        ]

    def _of_loaders(self, hook: RtolapHook) -> list[LetterTopic]:
        found: list[LetterTopic] = []
        with hook.agent() as agent:
            running = [loader_of(status) for status in agent.processes() if status.is_live]
        for loader in running:
            if loader is None:
                continue
            try:
                with hook.loader(loader.port) as client:
                    status = client.status()
            except RtolapError as error:
                self.log.warning("loader %s does not say where it keeps its rejects: %s", loader.name, error)
                continue
            if status.rejects_topic:
                look = f"rtolap loader dead-letters list {loader.name}"
                found.append(
                    LetterTopic(status.kafka_cluster, status.rejects_topic, f"loader {loader.name}", look)
                )
        return found


def _of_subscriptions() -> list[LetterTopic]:
    return [
        LetterTopic(
            subscription.listener.cluster,
            dead_letter_topic(name),
            f"subscription {name}",
            f"rtolap sep dead-letters {name}",
        )
        for name, subscription in defined_subscriptions(Settings().include_dir).items()
    ]


def _kept(value: Any, kind: Any) -> Any:
    """Return what is kept; nothing where it is in no form, as another version may have left it."""
    try:
        return convert(value or {}, kind, strict=False)
    except msgspec.ValidationError:
        return {}
