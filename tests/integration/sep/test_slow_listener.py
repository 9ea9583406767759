"""A listener takes longer than HBase waits: the same call comes again, and yet each edit counts once."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from random import Random

import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.settings import Settings
from rtolap.kafka.clusters import KafkaClusters
from rtolap.model.subscription import HBaseSource
from rtolap.sep.consumer.registration import Registration
from rtolap.sep.delivery.journal import Journal
from rtolap.sep.delivery.listener import DeliveryOutcome, EventGroup, Listener
from rtolap.sep.delivery.serving import DeliveryThread
from rtolap.sep.events.decode import EditDecoder
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.hbase.znodes import ServerName
from rtolap.sep.listeners import assembly
from rtolap.sep.subscriptions import commands
from rtolap.sep.subscriptions.source import open_source

from tests.support.hbase.client import HBaseClient
from tests.support.sep.consumer_harness import RunningConsumer, running_consumer
from tests.support.sep.numbered_rows import Topic, Writer, subscription_of
from tests.support.waiting import until

pytestmark = pytest.mark.integration

SLOW_GROUPS = 2

Edit = tuple[str, int]  # region, sequence id


class Arrivals:
    """Edits of the calls that came to a port, in front of delivery."""

    def __init__(self, thread: DeliveryThread) -> None:
        self.counts: Counter[Edit] = Counter()
        self._thread = thread

    async def deliver(self, batch: EditBatch, deadline_s: float) -> None:
        self.counts.update(edits_of(batch))
        await self._thread.deliver(batch, deadline_s)


class SlowListener:
    """Listener. Begins its first groups only when HBase has given up on a call and sent it again."""

    def __init__(self, inner: Listener) -> None:
        self.arrivals: list[Arrivals] = []
        self.at_work: set[Edit] = set()
        self.slow_groups = 0
        self._inner = inner

    def deliver(self, group: EventGroup) -> DeliveryOutcome:
        if self.slow_groups < SLOW_GROUPS:
            self.at_work = edits_of(group.batch)
            until(self._has_come_again, "the same edits again")
            self.at_work = set()
            self.slow_groups += 1
        return self._inner.deliver(group)

    def recover(self, journal: Journal) -> None:
        self._inner.recover(journal)

    def close(self) -> None:
        self._inner.close()

    def _has_come_again(self) -> bool:
        return any(sum(arrivals.counts[edit] for arrivals in self.arrivals) > 1 for edit in self.at_work)


def edits_of(batch: EditBatch) -> set[Edit]:
    events = batch.events
    return set(zip(events["region"].to_pylist(), events["sequence_id"].to_pylist(), strict=True))


def test_what_comes_again_while_the_first_call_still_works_is_delivered_once_and_in_order(
    hbase: str, kafka: str, hbase_client: HBaseClient, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[SlowListener] = []
    open_listener = assembly.open_listener

    def open_slow_listener(*arguments: object) -> SlowListener:
        made.append(SlowListener(open_listener(*arguments)))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(assembly, "open_listener", open_slow_listener)
    monkeypatch.setenv("RTOLAP_KAFKA", kafka)
    settings, clock = Settings(), SystemClock()
    servers = hbase_client.region_servers()
    table = hbase_client.create_table(unique_name, splits=[b"20"])
    subscription = subscription_of(unique_name, table, hbase)
    with ExitStack() as opened:
        source = opened.enter_context(open_source(HBaseSource(hbase)))
        kept = commands.create(source, subscription, clock.now_ms())
        opened.callback(commands.drop, source, unique_name)
        cluster = KafkaClusters.of_host(settings).get("default")
        delivery = assembly.open_delivery(
            subscription, kept.cluster_id, cluster, clock, settings, lambda: True, hbase_client.store
        )
        opened.callback(delivery.close)
        delivery.recover()
        thread = DeliveryThread(delivery, clock)
        (listener,) = made
        thread.start()
        opened.callback(thread.close)

        def port() -> tuple[RunningConsumer, Registration]:
            arrivals = Arrivals(thread)
            listener.arrivals.append(arrivals)
            consumer = opened.enter_context(
                running_consumer(decoder=EditDecoder(start_ms=kept.start_ms), deliver=arrivals.deliver)
            )
            sink = ServerName("127.0.0.1", consumer.port, time.time_ns() // 1_000_000)
            return consumer, Registration(hbase_client.store, kept.paths.root, [sink])

        (_, first), (_, second) = port(), port()
        topic = Topic(kafka, f"{unique_name}_changes")
        opened.callback(topic.close)
        first.register()
        opened.callback(first.withdraw)
        writer = Writer(hbase_client, table, Random(5))
        writer.write(10)
        until(lambda: listener.at_work, "a call at work")
        at_work = set(listener.at_work)
        second.register()
        opened.callback(second.withdraw)
        first.withdraw()
        writer.write(10)  # of the same rows, behind those that are at work
        until(lambda: listener.slow_groups == 1, "the end of the first slow group")
        assert at_work & set(listener.arrivals[1].counts), "it came again at the other port"
        first.register()
        writer.write(10)
        until(lambda: topic.poll() >= writer.total, "every write")
        topic.poll()
        counts = topic.counts_by_row()
    assert counts == {row: list(range(1, count + 1)) for row, count in writer.written.items() if count}
    assert not any(record.is_late for record in topic.records)
    assert listener.slow_groups == SLOW_GROUPS
    assert delivery.counts.duplicates > 0
    assert hbase_client.region_servers() == servers, "none has aborted"
