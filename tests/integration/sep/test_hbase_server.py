"""The HBase that the other tests here stand on."""

from __future__ import annotations

import ipaddress

import psutil
import pytest
from rtolap.stack.process import ManagedProcess

pytestmark = pytest.mark.integration


def test_hbase_answers_and_listens_on_loopback_only(hbase_server: ManagedProcess) -> None:
    assert hbase_server.missing() is None
    pid = hbase_server.pid()
    assert pid is not None
    listening = [
        connection.laddr
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 5  # ZooKeeper, the master, its page, two region servers
    assert all(ipaddress.ip_address(address.ip.removeprefix("::ffff:")).is_loopback for address in listening)
