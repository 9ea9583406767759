"""Stages of requests on real brokers with their agents: read, summed, judged; who is slow, and where."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic
from rtolap.base.clock import SystemClock
from rtolap.base.metrics import Metrics
from rtolap.cli.main import app
from rtolap.fleet.monitoring.causes import cause_of
from rtolap.fleet.monitoring.clients import parse_client_page
from rtolap.fleet.monitoring.collect import StageLook, StageReader
from rtolap.fleet.monitoring.log_findings import LogCounts
from rtolap.fleet.monitoring.log_watch import LogWatch
from rtolap.fleet.monitoring.slow import BrokerRequests, BrokerStanding, Key, SlowRule, SlowState, judge
from rtolap.fleet.monitoring.sources import FleetSources, read_sources
from rtolap.fleet.monitoring.stages import PARTS, RequestType, Stage, StageWindow, between
from rtolap.fleet.monitoring.topic_rates import COUNTED_S, SourceRates
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.rates import TopicRates
from rtolap.kafka import consumer as kafka_consumer
from rtolap.kafka.administration.client import KafkaAdministration
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.statistics import ClientStatistics
from rtolap.stack.artifacts import JavaArtifacts
from typer.testing import CliRunner

from tests.support.commands import called, ended
from tests.support.cubes.services import Services
from tests.support.fleet.agents import PASSWORD, USER, Agents
from tests.support.fleet.brokers import Brokers
from tests.support.fleet.exporters import Exporters
from tests.support.fleet.slow_disk import SlowDisk
from tests.support.kafka_topics import create_topic
from tests.support.query.prices import define_prices
from tests.support.twins.clock import ManualClock
from tests.support.waiting import SLOWNESS, until

pytestmark = pytest.mark.integration

# On a machine where all is slower, what is well takes longer, and so must what is not.
_SLOWER = min(SLOWNESS, 3.0)
_RULE = SlowRule(
    threshold_ms=SlowRule.threshold_ms * _SLOWER,
    recovered_ms=SlowRule.recovered_ms * _SLOWER,
    requests_min=10,
    looks=2,
)
_LOOKS_MAX = 12
# Kafka cuts each stage of a request, and its total, down to whole milliseconds.
_CUT_MS_MAX = len(PARTS) - 1


class Fleet:
    """Brokers with agents, topics on them, and looks at them."""

    def __init__(
        self, brokers: Brokers, sources: Path, disks: SlowDisk, agents: Agents, exporters: Exporters
    ) -> None:
        self.brokers = brokers
        self.disks = disks
        self.agents, self.exporters = agents, exporters
        self.sources_file = sources
        self.sources: FleetSources = read_sources(sources)
        self.reader = StageReader(self.sources, timeout_s=10 * SLOWNESS)
        self._topics = 0

    def create(self, *replicas: int, config: dict[str, str] | None = None) -> str:
        """A topic of one partition, led by the first of them."""
        self._topics += 1
        topic = f"watched{self._topics}"
        new = NewTopic(topic, num_partitions=1, replica_assignment=[list(replicas)], config=config or {})
        create_topic(self.brokers.cluster.servers, new)
        return topic

    def declare(self, path: Path, urls: dict[int, str]) -> FleetSources:
        """Other sources of the same brokers. urls: `jolokia: '…'` or `prometheus: '…'`."""
        lines = [f"  {node}: {{{url}}}" for node, url in urls.items()]
        access = f"access: {{user: {USER}, password: {{file: '{self.agents.password_file}'}}}}"
        path.write_text("\n".join(["brokers:", *lines, access, ""]))
        path.chmod(0o600)
        return read_sources(path)

    def exporter(self, node: int) -> str:
        return f"prometheus: '{self.exporters.url(node)}'"

    def agent(self, node: int) -> str:
        return f"jolokia: '{self.agents.url(node)}'"

    def look(self, reader: StageReader | None = None) -> StageLook:
        return (reader or self.reader).look(SystemClock().now_ms())

    @contextmanager
    def stopped(self, node: int) -> Iterator[None]:
        """The broker's process gets no time meanwhile."""
        pid = self.brokers.servers[node].pid()
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def fleet(java: JavaArtifacts) -> Iterator[Fleet]:
    with tempfile.TemporaryDirectory(prefix="rtolap-watched-") as folder:
        agents, disks = Agents(Path(folder) / "agents"), SlowDisk(Path(folder) / "disks")
        exporters = Exporters(Path(folder) / "exporters", ours=[2], usual=[3])
        overrides = {
            "broker.session.timeout.ms": 20_000,  # who is stopped for seconds stays in the cluster
            "replica.lag.time.max.ms": 8_000,
            "replica.high.watermark.checkpoint.interval.ms": 500,
        }
        brokers = Brokers(
            Path(folder),
            java,
            overrides=overrides,
            jvm_options=lambda node: (*agents.jvm_options(node), *exporters.jvm_options(node)),
            environment=disks.environment,
            log_level="info",
        )
        with brokers:
            sources = agents.write_sources(Path(folder) / "sources.yaml", brokers)
            fleet = Fleet(brokers, sources, disks, agents, exporters)
            yield fleet
            fleet.reader.close()


def write(fleet: Fleet, topic: str, messages: int, *, client_id: str = "writer", size: int = 100) -> None:
    """One after the other, each when the one before it is acknowledged by all."""
    producer = Producer(
        {
            "bootstrap.servers": fleet.brokers.cluster.servers,
            "acks": "all",
            "linger.ms": 0,
            "client.id": client_id,
        }
    )
    for _ in range(messages):
        producer.produce(topic, b"x" * size)
        assert producer.flush(60) == 0


@contextmanager
def under_way(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """`work` goes on, in a thread, until the event is set; what it raises is raised here."""
    ended = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work(ended)
        except BaseException as error:  # noqa: BLE001  told below
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)
    assert not failures, failures


def judged(
    standings: dict[Key, BrokerStanding], before: StageLook, now: StageLook, rule: SlowRule = _RULE
) -> tuple[dict[Key, BrokerStanding], dict[Key, BrokerRequests], StageWindow]:
    window = between(before.stages, before.at_ms, now.stages, now.at_ms)
    after, rows = judge(standings, window, rule)
    return after, {(row.broker, row.request): row for row in rows}, window


def has_counted(fleet: Fleet, before: StageLook, key: Key, requests: int) -> bool:
    return new_requests(fleet, before, key) >= requests


def look_once_counted(
    fleet: Fleet, before: StageLook, writes: int, nodes: tuple[int, ...] = (2,)
) -> StageLook:
    """Return a look that began when each of the brokers had counted all stages of so many writes.

    A broker counts a request after its answer has left, so the writer may know of it first.
    """
    for node in nodes:
        key = (node, RequestType.PRODUCE)
        until(partial(has_counted, fleet, before, key, writes), f"{writes} writes in the counts of {node}")
    return fleet.look()


def test_stages_of_every_broker_are_read_and_add_up_to_the_total(fleet: Fleet) -> None:
    topic = fleet.create(2, 1, 3)
    first = fleet.look()
    write(fleet, topic, 5)
    before = look_once_counted(fleet, first, 5)
    write(fleet, topic, 200)
    consumer = Consumer({"bootstrap.servers": fleet.brokers.cluster.servers, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read: list[Any] = []

    def all_read() -> bool:
        read.extend(consumer.consume(100, 0.1))
        return len(read) == 205

    until(all_read, "all that was written")
    consumer.close()
    now = look_once_counted(fleet, before, 200)
    assert now.missing == ()
    assert sorted(now.gauges) == [1, 2, 3]
    for gauges in now.gauges.values():
        assert gauges.offline_log_dirs == ()
        assert gauges.handlers_idle is not None
        assert gauges.lag_records_max is not None
        assert gauges.isr_shrinks is not None
    window = between(before.stages, before.at_ms, now.stages, now.at_ms)
    rows = {(int(window.brokers[row]), int(window.requests[row])): row for row in range(len(window))}
    produce = rows[2, RequestType.PRODUCE]
    assert window.counts[produce] == 200
    assert window.counts[rows[2, RequestType.FETCH_CONSUMER]] > 0
    assert window.counts[rows[2, RequestType.FETCH_FOLLOWER]] > 0
    # Only of requests that have all ended: a fetch that ends while its broker is read is in some stages only.
    parts_ms, total_ms = window.mean_ms[produce, PARTS].sum(), window.mean_ms[produce, Stage.TOTAL]
    assert 0 <= round(200 * (total_ms - parts_ms)) <= 200 * _CUT_MS_MAX
    assert total_ms > 0
    assert now.stages.p99_ms[produce, Stage.TOTAL] >= now.stages.p50_ms[produce, Stage.TOTAL]


def produce_row(window: StageWindow, node: int) -> int:
    (row,) = np.flatnonzero((window.brokers == node) & (window.requests == RequestType.PRODUCE)).tolist()
    return row


def test_an_exporter_tells_the_stages_that_the_agent_of_the_broker_tells(
    fleet: Fleet, tmp_path: Path
) -> None:
    """Ours all of them; by the usual rules counts and percentiles."""
    topics = {node: fleet.create(node, 1) for node in (2, 3)}
    sources = fleet.declare(tmp_path / "exporters.yaml", {node: fleet.exporter(node) for node in (2, 3)})
    with StageReader(sources, timeout_s=60) as exporters:  # the usual rules tell of every bean
        looks = [(fleet.look(), fleet.look(exporters))]
        for topic in topics.values():
            write(fleet, topic, 50)
        looks.append((look_once_counted(fleet, looks[0][0], 50, (2, 3)), fleet.look(exporters)))
    assert looks[1][1].missing == ()
    by_agent, by_exporter = (
        between(before.stages, before.at_ms, now.stages, now.at_ms)
        for before, now in zip(*looks, strict=True)
    )
    for node in (2, 3):
        told, expected = produce_row(by_exporter, node), produce_row(by_agent, node)
        assert by_exporter.counts[told] == by_agent.counts[expected] == 50
        np.testing.assert_allclose(by_exporter.histogram_p99_ms[told], by_agent.histogram_p99_ms[expected])
    ours, usual = produce_row(by_exporter, 2), produce_row(by_exporter, 3)
    np.testing.assert_allclose(by_exporter.mean_ms[ours], by_agent.mean_ms[produce_row(by_agent, 2)])
    assert np.isnan(by_exporter.mean_ms[usual]).all()
    agent, exporter = looks[1][0].gauges[2], looks[1][1].gauges[2]
    assert exporter.offline_log_dirs == agent.offline_log_dirs == ()
    assert (exporter.isr_shrinks, exporter.under_replicated) == (agent.isr_shrinks, agent.under_replicated)
    assert exporter.handlers_idle is not None
    assert exporter.network_idle is not None
    assert exporter.lag_records_max is not None


def test_an_exporter_asks_for_the_password_and_listens_on_the_loopback_alone(
    fleet: Fleet, tmp_path: Path
) -> None:
    assert httpx.get(fleet.exporters.url(2)).status_code == 401
    assert httpx.get(fleet.exporters.url(2), auth=(USER, PASSWORD)).status_code == 200
    pid = fleet.brokers.servers[2].pid()
    assert pid is not None
    addresses = {
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in psutil.Process(pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == fleet.exporters.ports[2]
    }
    assert addresses == {"127.0.0.1"}
    swapped = fleet.declare(tmp_path / "swapped.yaml", {1: fleet.exporter(2)})
    with StageReader(swapped) as reader:
        (missing,) = fleet.look(reader).missing
    assert "agent of broker 2" in missing.reason


def test_rates_of_a_snapshot_are_those_of_agent_and_exporter(fleet: Fleet, tmp_path: Path) -> None:
    """Of each broker by another kind of source, and each sum what the broker itself has counted."""
    topics = {node: fleet.create(node, 1 + node % 3) for node in (1, 2, 3)}
    for topic in topics.values():
        write(fleet, topic, 30, size=10_000)
    sources = fleet.declare(
        tmp_path / "mixed.yaml", {1: fleet.agent(1), 2: fleet.exporter(2), 3: fleet.exporter(3)}
    )
    agents = SourceRates(fleet.sources, timeout_s=60)

    def are_counted() -> bool:
        told = agents([1, 2])
        return all(rate_of(told, node, topics[node]) > 0 for node in (1, 2))

    until(are_counted, "Kafka counts rates every five seconds")
    clock = ManualClock()

    def write_meanwhile(seconds: float) -> None:
        write(fleet, topics[3], 20, size=10_000)
        clock.advance_ms(int(seconds * 1000))

    (log,) = [
        file for log_dir in fleet.brokers.log_dirs(3) for file in (log_dir / f"{topics[3]}-0").glob("*.log")
    ]
    administration = KafkaAdministration(fleet.brokers.cluster)
    try:
        before, size = agents([1, 2]), log.stat().st_size
        reader = SourceRates(sources, timeout_s=60, clock=clock, sleep=write_meanwhile)
        snapshot = collect_snapshot(administration, SystemClock(), reader)
        written = log.stat().st_size - size
    finally:
        administration.close()
    assert snapshot.missing == ()
    found = {
        snapshot.topics.names[topic]: rate
        for topic, rate in zip(
            snapshot.partitions.topics.tolist(), snapshot.partitions.bytes_in_per_s.tolist(), strict=True
        )
    }
    for node in (1, 2):  # in five seconds without a write it falls by half a percent
        assert found[topics[node]] == pytest.approx(rate_of(before, node, topics[node]), rel=0.05)
    assert found[topics[3]] == pytest.approx(written / COUNTED_S)
    assert min(found[topic] for topic in topics.values()) > 0


def rate_of(told: TopicRates, broker: int, topic: str) -> float:
    """What is written, a second."""
    rows = [row for row, name in enumerate(told.topics) if (int(told.brokers[row]), name) == (broker, topic)]
    return float(told.bytes_in_per_s[rows[0]]) if rows else 0.0


def test_the_advised_policy_lets_nobody_change_a_broker_or_read_its_properties(fleet: Fleet) -> None:
    url = fleet.sources.brokers[1].jolokia + "/"
    asked = [
        {"type": "exec", "mbean": "java.lang:type=Memory", "operation": "gc"},
        {"type": "write", "mbean": "java.lang:type=Memory", "attribute": "Verbose", "value": True},
        {"type": "read", "mbean": "java.lang:type=Runtime", "attribute": "SystemProperties"},
        {"type": "read", "mbean": "java.lang:type=Memory", "attribute": "Verbose"},
    ]
    answers = httpx.post(url, json=asked, auth=(USER, PASSWORD)).json()
    assert [answer["status"] for answer in answers] == [403, 403, 403, 200]
    assert httpx.post(url, json=asked).status_code == 401


def test_an_idle_broker_with_long_polls_is_not_called_slow(fleet: Fleet) -> None:
    topic = fleet.create(3)
    write(fleet, topic, 1)
    consumer = Consumer(
        {
            "bootstrap.servers": fleet.brokers.cluster.servers,
            "group.id": "unused",
            "fetch.wait.max.ms": round(400 * _SLOWER),
        }
    )
    consumer.assign([TopicPartition(topic, 0, 1)])

    def poll(ended: threading.Event) -> None:
        while not ended.is_set():
            consumer.poll(0.1)
        consumer.close()

    standings: dict[Key, BrokerStanding] = {}
    key = (3, RequestType.FETCH_CONSUMER)
    polled = 0
    with under_way(poll):
        before = fleet.look()
        while polled < 3 * _RULE.requests_min:
            wait_requests(fleet, before, key)
            now = fleet.look()
            standings, rows, window = judged(standings, before, now)
            polled += rows[key].requests
            before = now
    row = next(row for row in range(len(window)) if (int(window.brokers[row]), window.requests[row]) == key)
    assert window.p99_ms[row, Stage.TOTAL] > _RULE.threshold_ms
    assert window.mean_ms[row, Stage.REMOTE] > _RULE.threshold_ms
    assert rows[key].p99_ms_max < _RULE.recovered_ms
    assert {standing.state for standing in standings.values()} == {SlowState.NORMAL}


def new_requests(fleet: Fleet, before: StageLook, key: Key) -> int:
    now = fleet.look()
    window = between(before.stages, before.at_ms, now.stages, now.at_ms)
    found = (window.brokers == key[0]) & (window.requests == key[1])
    return int(window.counts[found].max(initial=0))


def pulse(fleet: Fleet, node: int) -> None:
    """The fault itself takes time: stopped for most of a second, then running for a moment."""
    with fleet.stopped(node):
        threading.Event().wait(0.7 * _SLOWER)
    threading.Event().wait(0.3)


def wait_requests(fleet: Fleet, before: StageLook, key: Key) -> None:
    until(lambda: new_requests(fleet, before, key) >= _RULE.requests_min, f"requests of {key}")


def test_a_stopped_follower_makes_writes_slow_at_the_leader_in_the_remote_stage(fleet: Fleet) -> None:
    topic = fleet.create(2, 3)
    key = (2, RequestType.PRODUCE)
    standings: dict[Key, BrokerStanding] = {}
    before = fleet.look()

    def write_on(ended: threading.Event) -> None:
        while not ended.is_set():
            write(fleet, topic, 1)

    row: BrokerRequests | None = None
    with under_way(write_on):
        for _ in range(_LOOKS_MAX):
            while new_requests(fleet, before, key) < _RULE.requests_min + 5:
                pulse(fleet, 3)  # some of the requests get no answer of the follower for so long
            now = fleet.look()
            standings, rows, window = judged(standings, before, now)
            row, before = rows[key], now
            if row.is_slow:
                break
        with fleet.stopped(3), StageReader(fleet.sources, timeout_s=0.5) as impatient:
            look = fleet.look(impatient)
    assert row is not None
    assert row.standing.state is SlowState.SLOW, (row, window.mean_ms)
    assert row.stage is Stage.REMOTE
    assert row.p99_ms > _RULE.threshold_ms
    assert row.share > 0.5
    cause = cause_of(row, look, window, {})
    assert cause is not None
    assert cause.brokers == (3,)
    assert look.silent_brokers == (3,)


def test_a_quota_shows_as_throttling_and_not_as_a_slow_broker(fleet: Fleet) -> None:
    topic = fleet.create(1)
    administration = KafkaAdministration(fleet.brokers.cluster)
    entity = (("client-id", "greedy"),)
    administration.alter_client_quotas({entity: {"producer_byte_rate": 20_000.0}})
    until(lambda: administration.client_quotas(), "the quota")
    try:
        before = fleet.look()
        write(fleet, topic, 25, client_id="greedy", size=20_000)
        now = fleet.look()
    finally:
        administration.alter_client_quotas({entity: {"producer_byte_rate": None}})
        administration.close()
    _, rows, window = judged(
        {}, before, now, SlowRule(requests_min=10, looks=2, threshold_ms=1_000 * _SLOWER)
    )
    row = rows[1, RequestType.PRODUCE]
    assert row.throttle_p99_ms > 1_000
    assert row.standing.state is SlowState.NORMAL
    assert row.p99_ms < 1_000 * _SLOWER, window.p99_ms


def test_commands_read_the_brokers_and_tell_no_password(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RTOLAP_FLEET_SOURCES", str(fleet.sources_file))
    looks, picture = tmp_path / "looks.jsonl", tmp_path / "stages.png"
    topic = fleet.create(1, 2)
    for arguments in (
        ("stages", "--record", str(looks), "--every", "500ms"),
        ("slow", "--all", "--record", str(looks), "--every", "500ms"),
        ("stages", "--looks", str(looks), "--plot", str(picture)),
    ):
        write(fleet, topic, 3)
        answer = CliRunner().invoke(app, ["fleet", *arguments])
        assert answer.exit_code in (0, 3), answer.output
        assert "FetchFollower" in answer.output
        assert PASSWORD not in answer.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert PASSWORD not in looks.read_text()


def test_a_client_of_a_broker_that_is_stopped_again_and_again_finds_it_slow(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_consumer, "INTERVAL_MS", 2000)
    topic = fleet.create(3)
    statistics, metrics = ClientStatistics(), Metrics("receiver")
    statistics.show(metrics)
    consumer = KafkaConsumer(fleet.brokers.cluster, topic, statistics=statistics)
    consumer.assign({0: 0})

    def poll(ended: threading.Event) -> None:
        while not ended.is_set():
            consumer.poll(100, 0.05)

    def rtt_p99_s() -> float:
        row = statistics.rows().get((topic, 3))
        return 0.0 if row is None or "rtt" not in row.latencies else row.latencies["rtt"][1]

    with under_way(poll):
        until(lambda: 0 < rtt_p99_s() < 0.3 * _SLOWER, rtt_p99_s)
        assert statistics.rows()[topic, 3].requests > 5

        def told() -> bool:
            """By the page of the process, as `rtolap fleet clients` reads it."""
            pulse(fleet, 3)
            rows = parse_client_page("http://receiver/metrics", metrics.render()[0])
            return any(row.broker == 3 and row.answered_p99_ms > _RULE.threshold_ms for row in rows)

        until(told, rtt_p99_s)
    consumer.close()
    assert statistics.rows() == {}


@pytest.fixture
def services(fleet: Fleet, zookeeper: str, unique_name: str, tmp_path: Path) -> Iterator[Services]:
    """A coordinator, and a receiver that waits for little at a broker."""
    clusters = tmp_path / "clusters.yaml"
    servers = fleet.brokers.cluster.servers
    clusters.write_text(f"clusters: {{default: {{bootstrap.servers: '{servers}', fetch.wait.max.ms: 10}}}}\n")
    clusters.chmod(0o600)
    started = Services(tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=servers, coordinators=1)
    started.environment["RTOLAP_KAFKA_CLUSTERS"] = str(clusters)
    started.environment["RTOLAP_FLEET_SOURCES"] = str(fleet.sources_file)
    try:
        started.start_coordinators()
        started.start_receiver("r1", "only")
        started.coordinator.put_replica_set("only", ["r1"])
        until(lambda: started.coordinator.receivers(), "the receiver lives", poll_s=0.1)
        yield started
    finally:
        started.close()


def test_from_a_receiver_that_reads_slowly_commands_go_to_broker_stage_and_disk(
    fleet: Fleet, services: Services, tmp_path: Path
) -> None:
    """A whole receiver, which its coordinator names, reads from a broker one of whose disks becomes slow."""
    node, wait_ms, threshold_ms = 3, round(150 * _SLOWER), round(100 * _SLOWER)
    # every batch in the index: a fetch reads the log once or twice to find where to begin
    topic = fleet.create(node, config={"index.interval.bytes": "0"})
    producer = Producer({"bootstrap.servers": fleet.brokers.cluster.servers, "linger.ms": 0})
    event = json.dumps({"ts": "2024-05-01T01:00:00", "kind": "pen", "price": "1.10"}).encode()
    for _ in range(20_000):  # most of what the broker's disks hold
        producer.produce(topic, event)
    assert producer.flush(60) == 0
    disk = next(log_dir for log_dir in fleet.brokers.log_dirs(node) if (log_dir / f"{topic}-0").is_dir())
    created = ended(services.environment, "create", str(define_prices(tmp_path, topic)), "--enable")
    assert created.returncode == 0, created

    def write_on(stopping: threading.Event) -> None:
        while not stopping.wait(0.02):
            producer.produce(topic, event)
            producer.poll(0)
        assert producer.flush(60) == 0

    def command(name: str, *arguments: str) -> tuple[int, Any]:
        done = called(services.environment, "fleet", name, "--json", "--every", "2s", *arguments)
        assert done.returncode in (0, 3), done
        return done.returncode, json.loads(done.stdout)

    def client() -> tuple[int, Any]:
        """The exit code, and what is told of the receiver at the broker."""
        code, told = command("clients", "--threshold", f"{threshold_ms}ms", "--cluster", "default")
        assert told["missing"] == []
        rows = [row for row in told["clients"] if (row["topic"], row["broker"]) == (topic, node)]
        return code, rows[0] if rows else None

    def is_well() -> bool:
        code, row = client()
        return code == 0 and row is not None and row["requests"] >= 20

    def is_behind_the_disk() -> bool:
        code, row = client()
        return (
            code == 3 and row is not None and row["behind"] is not None and row["behind"]["stage"] == "local"
        )

    with under_way(write_on):
        until(is_well, client, poll_s=1)
        _, well = client()
        assert well["service"] == "receiver"
        assert 0 < well["rtt_p50_ms"] <= well["rtt_p99_ms"] < threshold_ms
        assert well["lag_p99"] >= 0
        with fleet.disks.slow(disk, wait_ms):
            until(is_behind_the_disk, client, poll_s=1)
            _, slow = client()
            assert slow["is_slow"]
            assert slow["rtt_p99_ms"] >= wait_ms
            assert slow["behind"]["log_dir"] == str(disk)
            assert f"broker {node}, local" in slow["behind"]["text"]
            assert slow["behind"]["broker"]["broker"] == node

            code, told = command(
                *("slow", "--threshold", f"{threshold_ms}ms", "--recovered", f"{threshold_ms * 4 // 5}ms"),
                *("--cluster", "default"),
                *("--requests-min", "3", "--readings", "2"),
            )
            (row,) = [row for row in told["rows"] if row["request"] == "FetchConsumer" and row["is_slow"]]
            assert (code, told["slow_brokers"], row["broker"], row["stage"]) == (3, [node], node, "local")
            assert row["cause"]["log_dir"] == str(disk)

            _, told = command("stages")
            (row,) = [
                row for row in told["stages"] if (row["broker"], row["request"]) == (node, "FetchConsumer")
            ]
            assert row["stages"]["local"]["p99_ms"] >= wait_ms
        until(is_well, client, poll_s=1)


def test_a_storm_of_isr_shrinks_is_counted_in_the_log_of_the_leader(fleet: Fleet) -> None:
    """A follower that gets no time leaves the ISR of every partition that it follows, within a moment."""
    partitions, leader, follower = 24, 2, 3
    new = NewTopic(
        "shrinking", num_partitions=partitions, replica_assignment=[[leader, follower]] * partitions
    )
    create_topic(fleet.brokers.cluster.servers, new)
    administration = KafkaAdministration(fleet.brokers.cluster)

    def in_sync() -> bool:
        described = administration.describe_topics(["shrinking"]).get("shrinking")
        return described is not None and all(len(each.in_sync) == 2 for each in described.partitions)

    def shrinks() -> tuple[int, dict[str, Any]]:
        """The exit code, and what is counted at the leader since its start."""
        answer = CliRunner().invoke(app, ["fleet", "logs", "--json", "--sources", str(fleet.sources_file)])
        rows = json.loads(answer.stdout)["rules"]
        found = [row for row in rows if (row["rule"], row["broker"]) == ("isr_shrink", leader)]
        return answer.exit_code, found[0] if found else {"lines": 0}

    servers = fleet.brokers.cluster.servers
    by_all, by_leader = (Producer({"bootstrap.servers": servers, "acks": acks}) for acks in ("all", "1"))

    def write_to_each(producer: Producer) -> None:
        for number in range(partitions):
            producer.produce("shrinking", b"x", partition=number)
        assert producer.flush(60) == 0

    write_to_each(by_leader)  # it knows the leader before another broker may not answer
    write_to_each(by_all)
    until(in_sync, "followers in sync", poll_s=0.1)
    before = shrinks()[1]["lines"]
    with fleet.stopped(follower):
        write_to_each(by_leader)  # a follower that has all there is stays in sync
        until(lambda: shrinks()[1]["lines"] >= before + partitions, shrinks, poll_s=0.3)
    code, row = shrinks()
    assert code == 3
    assert row["serious"]
    assert row["storm_ms"] is not None
    until(in_sync, "followers in sync again", poll_s=0.2)
    administration.close()


def test_a_lost_disk_is_found_by_the_log_and_by_the_agent(fleet: Fleet) -> None:
    """The last test of the module: the broker goes on without its second directory."""
    node = 3
    lost = fleet.brokers.log_dirs(node)[1]
    logs = {node: list(fleet.sources.brokers[node].logs)}
    watch, counts = LogWatch(logs), LogCounts()
    counts.add_hits(watch.hits())
    assert watch.missing == ()
    assert "disk_error" not in {row.rule for row in counts.rows()}
    lost.rename(lost.with_name("lost"))

    def found() -> bool:
        counts.add_hits(watch.hits())
        return any(row.rule == "disk_error" and str(lost) in row.log_dirs for row in counts.rows())

    until(found, lambda: [(row.rule, row.log_dirs) for row in counts.rows()])
    until(lambda: fleet.look().gauges[node].offline_log_dirs == (str(lost),), "the agent")
