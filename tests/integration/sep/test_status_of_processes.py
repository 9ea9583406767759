"""What status shows when processes of a subscription stop: the ports are those of the one that leads."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

import msgspec
import pytest
from rtolap.model.subscription import HBaseSource
from rtolap.sep.hbase.peers import ClusterKey
from rtolap.sep.status.collect import collect
from rtolap.sep.status.sources import ReplicationSources
from rtolap.sep.subscriptions import commands
from rtolap.sep.subscriptions.source import open_source

from tests.support.hbase.client import HBaseClient
from tests.support.sep.consumers import ConsumerProcess, ports_of, wait_for_leader
from tests.support.sep.numbered_rows import Topic, Writer, subscription_of
from tests.support.waiting import until

pytestmark = pytest.mark.integration


def test_status_counts_the_ports_of_the_leader_whichever_of_three_processes_stop(
    hbase: str, kafka: str, hbase_client: HBaseClient, unique_name: str, tmp_path: Path
) -> None:
    table = hbase_client.create_table(unique_name, splits=[b"20"])
    subscription = msgspec.structs.replace(subscription_of(unique_name, table, hbase), ports=3)
    with ExitStack() as opened:
        source = opened.enter_context(open_source(HBaseSource(hbase)))
        sources = ReplicationSources.open(ClusterKey(hbase), with_jmx=False)
        opened.callback(sources.close)
        commands.create(source, subscription, time.time_ns() // 1_000_000)
        processes = []
        for number in range(3):
            processes.append(ConsumerProcess(unique_name, hbase, kafka, tmp_path / f"{number}.log"))
            opened.callback(processes[-1].kill)
        opened.callback(commands.drop, source, unique_name)

        def sinks() -> int | None:
            return collect(sources, time.time_ns() // 1_000_000, only=[unique_name]).peers[0].sinks

        def ports() -> set[str]:
            return set(ports_of(hbase_client.store, unique_name))

        leader = wait_for_leader(processes)
        topic = Topic(kafka, f"{unique_name}_changes")
        opened.callback(topic.close)
        writer = Writer(hbase_client, table, Random(3))
        writer.write(5)
        until(lambda: topic.poll() >= writer.total, "every write with all three")
        before = ports()
        assert (len(before), sinks()) == (3, 3)

        standby, successor = (process for process in processes if process is not leader)
        standby.kill()
        writer.write(5)
        until(lambda: topic.poll() >= writer.total, "every write without one that stood by")
        assert (ports(), sinks()) == (before, 3)

        leader.stop()
        writer.write(5)
        assert sinks() in (0, 3)
        wait_for_leader([successor])
        assert sinks() == 3
        assert ports().isdisjoint(before)
        until(lambda: topic.poll() >= writer.total, "every write after the leader")
        counts = topic.counts_by_row()
    assert counts == {row: list(range(1, count + 1)) for row, count in writer.written.items() if count}
