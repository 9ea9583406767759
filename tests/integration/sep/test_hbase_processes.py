"""An HBase whose processes are killed one by one, and the client and subscriptions that outlive that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rtolap.model.subscription import HBaseSource, Subscription, SubscriptionListener
from rtolap.sep.subscriptions import commands, states
from rtolap.sep.subscriptions.source import open_source

from tests.support.hbase import mutations
from tests.support.hbase.client import HBaseClient
from tests.support.hbase.distributed import DistributedHBase
from tests.support.waiting import until

pytestmark = pytest.mark.integration


@pytest.fixture
def client(hbase_processes: DistributedHBase) -> Iterator[HBaseClient]:
    with HBaseClient(hbase_processes.address) as opened:
        yield opened


def test_rows_survive_a_killed_region_server(
    hbase_processes: DistributedHBase, client: HBaseClient, unique_name: str
) -> None:
    table = client.create_table(unique_name, splits=[b"050"])
    client.write_all(table, [mutations.put(b"%03d" % n, {"cf:x": b"1"}) for n in range(100)])
    (server, *_) = hbase_processes.region_servers
    server.kill()
    until(lambda: len(client.region_servers()) == 1, "the killed server's session is over", timeout_s=30)
    assert len(client.scan(table)) == 100
    server.start()
    until(lambda: len(client.region_servers()) == 2, "the region server is back")


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
