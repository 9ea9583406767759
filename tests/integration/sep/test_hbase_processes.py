"""Commands on an HBase whose master and whose ZooKeeper are killed meanwhile."""

from __future__ import annotations

import pytest
from rtolap.model.subscription import HBaseSource, Subscription, SubscriptionListener
from rtolap.sep.subscriptions import commands, states
from rtolap.sep.subscriptions.source import open_source

from tests.support.hbase.distributed import DistributedHBase
from tests.support.waiting import until

pytestmark = pytest.mark.integration


def test_commands_wait_for_a_master_and_a_zookeeper_that_come_back(
    hbase_processes: DistributedHBase, unique_name: str
) -> None:
    subscription = Subscription(
        name=unique_name,
        source=HBaseSource(hbase_processes.address),
        tables={"t": ()},
        listener=SubscriptionListener("kafka", topic="t"),
    )
    with open_source(subscription.source, timeout_s=60) as source:
        commands.create(source, subscription, 5)
        hbase_processes.master.kill()
        hbase_processes.master.start(wait=False)
        commands.pause(source, unique_name)
        hbase_processes.master.wait_ready()
        hbase_processes.zookeeper.kill()
        hbase_processes.zookeeper.start()
        until(source.store.connected, "the session is back")
        commands.resume(source, unique_name)
        assert states.state(source, unique_name).state == "waiting"
        commands.drop(source, unique_name)
