"""Replication monitoring against a real HBase: in each situation what is shown is what HBase has."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from rtolap.base.errors import NotYet
from rtolap.cli.main import app
from rtolap.metadata.store import Create
from rtolap.model.quantities import span_text
from rtolap.sep.consumer.registration import Registration
from rtolap.sep.hbase import admin_pb2
from rtolap.sep.hbase.peers import ClusterKey, Peer
from rtolap.sep.hbase.znodes import ServerName
from rtolap.sep.status.collect import collect
from rtolap.sep.status.model import DISABLED, NO_SINKS, NOTHING, STANDING, QueueStatus, ReplicationStatus
from rtolap.sep.status.sources import ReplicationSources
from rtolap.sep.status.summary import summarize
from rtolap.sep.status.tables import slept
from rtolap.sep.status.wait import DueLogs, due_logs, wait_delivered
from rtolap.stack.process import ManagedProcess
from typer.testing import CliRunner

from tests.support.hbase import mutations
from tests.support.hbase.client import HBaseClient
from tests.support.sep.consumer_harness import RunningConsumer, running_consumer
from tests.support.waiting import result_of, until

pytestmark = pytest.mark.integration

ROWS = 40
REPORTED_WITHIN_MS = 2_000  # of a busy machine; the next report is made after 300


class Followed:
    """A table, the peer that follows it, and its consumers, whose ports are registered one by one."""

    def __init__(self, client: HBaseClient, server: ManagedProcess, name: str) -> None:
        self.name = name
        self.client = client
        self.folder = server.spec.folder / "data" / "hbase"
        self.root = f"/rtolap/sep/{name}"
        self.key = ClusterKey(server.address)
        self.sources = ReplicationSources.open(
            self.key, root_dir=self.folder.as_uri(), jmx_urls=[f"http://127.0.0.1:{server.spec.ports[2]}"]
        )
        self.written = 0
        self._registrations: list[Registration] = []
        client.create_table(name, splits=[b"m"])
        cluster_id = str(uuid.uuid4()).encode()
        client.store.commit([Create(f"{self.root}/hbaseid", cluster_id), Create(f"{self.root}/rs", b"")])
        configuration = {"replication.source.ratio": "1.0"}
        client.master.add_peer(
            Peer(
                id=name,
                cluster_key=f"{server.address}:{self.root}",
                tables={name: ()},
                configuration=configuration,
            )
        )

    def close(self) -> None:
        self.client.master.remove_peer(self.name)
        self.sources.close()

    @contextmanager
    def consumer(self) -> Iterator[RunningConsumer]:
        """One with three ports."""
        with running_consumer(ports=3) as consumer:
            registrations = [self.registered(port) for port in consumer.ports]
            yield consumer
            for registration in registrations:
                self.withdraw(registration)

    def registered(self, port: int) -> Registration:
        registration = Registration(self.client.store, self.root, [ServerName("127.0.0.1", port, 1)])
        registration.register()
        self._registrations.append(registration)
        return registration

    def withdraw(self, registration: Registration) -> None:
        self._registrations.remove(registration)
        registration.withdraw()

    def renew(self) -> None:
        """Register the ports again where a busy machine has lost the session, as a process of ours does."""
        for registration in self._registrations:
            registration.register()

    def wait_delivered(self, due: DueLogs) -> None:
        def attempt() -> None:
            self.renew()
            wait_delivered(self.sources.znodes, due, timeout_s=1, poll_s=0.1)

        result_of(attempt, NotYet, timeout_s=60)

    def is_delivered(self, *consumers: RunningConsumer) -> bool:
        self.renew()
        return len(delivered(*consumers)) == self.written

    def write(self) -> tuple[int, int]:
        """ROWS rows, over both regions. Return when that began and ended."""
        begun_ms = now_ms()
        letters = b"az"
        rows = [b"%c%06d" % (letters[number % 2], self.written + number) for number in range(ROWS)]
        self.client.write_all(self.name, [mutations.put(row, {"cf:x": bytes(200)}) for row in rows])
        self.written += ROWS
        return begun_ms, now_ms()

    def look(self, before: ReplicationStatus | None = None) -> ReplicationStatus:
        self.renew()
        return collect(self.sources, now_ms(), only=[self.name], before=before)

    def is_idle(self) -> bool:
        """By two looks, between which servers have reported."""
        before = self.look()
        until(
            lambda: {row.reported_ms for row in self.look().queues}.isdisjoint(
                row.reported_ms for row in before.queues
            )
        )
        now = self.look(before)
        return bool(now.queues) and all(row.reason == NOTHING for row in now.queues)

    def roll(self) -> None:
        servers = self.client.region_servers()
        before = {server: self._logs(server) for server in servers}
        for server in servers:
            self.client.roll_log(server)
        until(lambda: all(self._logs(server) - before[server] for server in servers), "another log")

    def _logs(self, server: ServerName) -> set[str]:
        """But for those of hbase:meta, which are not replicated."""
        folder = self.folder / "WALs" / str(server)
        return {path.name for path in folder.glob("*") if path.suffix != ".meta"}


@pytest.fixture
def followed(hbase_server: ManagedProcess, hbase_client: HBaseClient, unique_name: str) -> Iterator[Followed]:
    opened = Followed(hbase_client, hbase_server, unique_name)
    yield opened
    opened.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def delivered(*consumers: RunningConsumer) -> set[bytes]:
    batches = [batch for consumer in consumers for batch, _ in consumer.batches]
    return {row for batch in batches for row in batch.events.column("row").to_pylist()}


def assert_waits_since(status: ReplicationStatus, reason: str, written_ms: tuple[int, int]) -> None:
    """Each queue waits since its first edit that is not shipped, which was written in that time."""
    begun_ms, ended_ms = written_ms
    for row in status.queues:
        assert row.reported_ms is not None
        assert row.since_ms is not None
        # the region server counts until it makes its last report, which comes within the time to the next one
        assert row.reported_ms - ended_ms - REPORTED_WITHIN_MS <= row.since_ms <= status.at_ms - begun_ms
        assert slept(row) == f"{reason}, for {span_text(row.since_ms)}"


def of_hbase(followed: Followed) -> list[admin_pb2.ReplicationLoadSource]:
    """Its own numbers of the peer."""
    status = followed.client.master.cluster_status(admin_pb2.LIVE_SERVERS)
    return [
        source
        for live in status.live_servers
        for source in live.server_load.replLoadSource
        if source.peerID.partition("-")[0] == followed.name
    ]


def test_with_nothing_to_do_every_queue_says_so_and_since_when(followed: Followed) -> None:
    with followed.consumer() as consumer:
        begun_ms, _ = followed.write()
        due = due_logs(followed.sources.znodes, followed.name)
        followed.wait_delivered(due)
        assert followed.is_delivered(consumer)
        # once more, of logs without a single edit
        followed.wait_delivered(due_logs(followed.sources.znodes, followed.name))
        until(lambda: followed.is_idle() and all(row.logs == 1 for row in followed.look().queues))
        status = followed.look()
        assert (status.servers, status.missing) == (2, ())
        assert [row.server for row in status.queues] == sorted(map(str, followed.client.region_servers()))
        by_hbase = of_hbase(followed)
        assert sorted(row.last_shipped_ms or 0 for row in status.queues) == sorted(
            source.timeStampOfLastShippedOp for source in by_hbase
        )
        assert sum(row.shipped_ops or 0 for row in status.queues) == sum(
            source.oPsShipped for source in by_hbase
        )
        # both servers are of one JVM, which counts the logs of equal queues in one gauge
        assert {source.sizeOfLogQueue for source in by_hbase} == {sum(row.logs or 0 for row in status.queues)}
        for row in status.queues:
            assert row.last_shipped_ms is not None
            assert row.since_ms == status.at_ms - row.last_shipped_ms
            assert 0 <= row.since_ms <= status.at_ms - begun_ms
            assert slept(row) == f"{NOTHING}, last shipped {span_text(row.since_ms)} ago"
        (summary,) = summarize(status)
        assert (summary.sinks, summary.catch_up_ms, summary.worst_server) == (3, 0, None)


def test_one_of_three_consumers_that_stops_is_missed_and_the_others_take_its_part(followed: Followed) -> None:
    with running_consumer() as first, running_consumer() as third:
        with running_consumer() as second:
            consumers = (first, second, third)
            registrations = [followed.registered(consumer.port) for consumer in consumers]
            followed.write()
            until(lambda: followed.is_delivered(*consumers))
            assert followed.look().peers[0].sinks == 3
        followed.write()  # its port is gone, and is registered for as long as its session lives
        until(lambda: followed.is_delivered(*consumers))
        assert followed.look().peers[0].sinks == 3
        followed.withdraw(registrations[1])
        assert followed.look().peers[0].sinks == 2
        followed.write()
        until(lambda: followed.is_delivered(*consumers))
        until(followed.is_idle)
        for registration in (registrations[0], registrations[2]):
            followed.withdraw(registration)


def test_a_failing_listener_leaves_a_queue_of_several_logs_with_progress(followed: Followed) -> None:
    with followed.consumer() as consumer:
        followed.write()
        until(lambda: followed.is_delivered(consumer))
        consumer.error = RuntimeError("the target is down")
        written_ms = followed.write()
        followed.roll()
        followed.write()
        followed.roll()
        looks = [followed.look()]

        def failing() -> bool:
            looks.append(followed.look(looks[-1]))
            return all(row.reason == STANDING for row in looks[-1].queues)

        until(failing, looks, poll_s=0.7)
        status = looks[-1]
        assert_waits_since(status, STANDING, written_ms)
        assert all((row.logs or 0) >= 3 for row in status.queues)
        for row in status.queues:
            assert_sizes(followed, row)
        # HBase itself counts logs that are to be read, and reads ahead of what it ships
        assert 2 <= of_hbase(followed)[0].sizeOfLogQueue <= sum(row.logs or 0 for row in status.queues)
        (summary,) = summarize(status, looks[-2])
        assert summary.lag_trend is not None
        assert summary.lag_trend > 0
        due = due_logs(followed.sources.znodes, followed.name)
        with pytest.raises(NotYet, match="logs in its queues"):
            wait_delivered(followed.sources.znodes, due, timeout_s=1, poll_s=0.1)
        consumer.error = None
        followed.wait_delivered(due)
        assert followed.is_delivered(consumer)
        until(followed.is_idle)


def assert_sizes(followed: Followed, row: QueueStatus) -> None:
    """Sizes are those of the files, and the first log is shipped in part."""
    sizes = {path.name: path.stat().st_size for path in followed.folder.glob("*WALs/**/*") if path.is_file()}
    path = f"/hbase/replication/rs/{row.server}/{row.queue}"
    names = sorted(followed.client.store.children(path), key=lambda name: int(name.rpartition(".")[2]))
    assert (row.logs, row.log) == (len(names), names[0])
    assert (row.log_bytes, row.further_bytes) == (sizes[names[0]], sum(sizes[name] for name in names[1:]))
    assert row.progress is not None
    assert 0 < row.progress < 1


def test_without_a_port_the_lag_grows_and_the_reason_is_said(followed: Followed, hbase: str) -> None:
    written_ms = followed.write()
    # a server that has not reported since has no lag to tell
    until(lambda: all(row.reason == NO_SINKS and row.lag_ms for row in followed.look().queues))
    assert_waits_since(followed.look(), NO_SINKS, written_ms)
    arguments = ["sep", "status", "--cluster", hbase, "--peer", followed.name, "--every", "1s", "--json"]
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 0, answer.output
    shown = json.loads(answer.stdout)
    (peer,) = shown["peers"]
    assert (peer["reasons"], peer["sinks"]) == ({NO_SINKS: 2}, 0)
    assert peer["lag_trend"] > 0
    assert {missing["source"] for missing in shown["status"]["missing"]} == {"JMX", "sizes of logs"}
    arguments = ["sep", "wait", followed.name, "--cluster", hbase, "--timeout", "500ms"]
    answer = CliRunner().invoke(app, arguments)
    assert isinstance(answer.exception, NotYet)
    followed.client.master.disable_peer(followed.name)
    status = followed.look()  # region servers may not report what they do not ship: no time is known
    assert [row.reason for row in status.queues] == [DISABLED, DISABLED]


def test_the_queue_of_a_stopped_server_is_shown_as_recovered_until_it_is_delivered(
    followed: Followed, hbase_server: ManagedProcess
) -> None:
    with ExitStack() as ended:
        ended.callback(_restart, hbase_server)
        followed.write()
        until(lambda: all(row.reason == NO_SINKS for row in followed.look().queues))
        due = due_logs(followed.sources.znodes, followed.name)
        stopped, staying = followed.client.region_servers()
        followed.client.stop_region_server(stopped)

        def recovered() -> list[QueueStatus]:
            return [row for row in followed.look().queues if row.recovered_from]

        until(recovered)
        (row,) = recovered()
        assert (row.recovered_from, row.server) == ((str(stopped),), str(staying))
        assert row.queue == f"{followed.name}-{stopped}"
        until(lambda: recovered()[0].reason == NO_SINKS)
        (summary,) = summarize(followed.look())
        assert (summary.servers, summary.queues, summary.recovered_queues) == (1, 2, 1)
        with followed.consumer() as consumer:
            followed.wait_delivered(due)
            assert followed.is_delivered(consumer)
            until(lambda: not recovered())
        followed.write()
    assert len(followed.client.scan(followed.name)) == followed.written  # all that was acknowledged


def _restart(server: ManagedProcess) -> None:
    """By SIGKILL, with both region servers again."""
    server.kill()
    server.start()


def test_a_wait_of_the_command_ends_when_all_is_delivered(
    followed: Followed, hbase: str, tmp_path: Path
) -> None:
    with followed.consumer() as consumer:
        followed.write()
        answer = CliRunner().invoke(app, ["sep", "wait", followed.name, "--cluster", hbase, "--json"])
        assert answer.exit_code == 0, answer.output
        assert json.loads(answer.stdout)["delivered"] is True
        assert followed.is_delivered(consumer)
