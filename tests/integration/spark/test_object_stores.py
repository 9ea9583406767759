"""Staged parts, builds, promotion and answers on a real S3 server and on a real HDFS, and what both owe.

Both keep their data in a folder of the tests; Spark reaches them through its own clients, S3A and DFS.
"""

from __future__ import annotations

import re
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import hdfs_native
import httpx
import msgspec
import pyarrow as pa
import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import NotFound, Unavailable
from rtolap.cli.main import app
from rtolap.coordinator.builds.queue import Builds
from rtolap.coordinator.purge import Purge
from rtolap.coordinator.views import Views
from rtolap.cubes.format import history
from rtolap.cubes.format.staged import write_staged_part
from rtolap.metadata import segments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import SegmentRecord
from rtolap.metadata.zookeeper import ZooKeeperStore
from rtolap.model.build_spec import BuildSpec
from rtolap.model.offsets import PartRange
from rtolap.model.segment import SegmentState, parse_segment_name
from rtolap.object_store.store import ObjectStore, StoredFile, open_store
from rtolap.protocols.receiver.client import ReceiverClients
from rtolap.query.cluster.view import Cluster
from rtolap.query.cubes.history import EmbeddedHistory
from rtolap.query.cubes.realtime import FlightSource
from rtolap.query.history_cache.cache import HistoryCache
from rtolap.query.history_cache.folder import CacheFolder
from rtolap.query.history_cache.keeper import HistoryKeeper
from rtolap.query.history_cache.states import Condition
from rtolap.query.lookups import Lookups
from rtolap.query.statement_service import QueryService
from rtolap.sep.status.sources import ReplicationSources, WalSizes
from rtolap.stack.artifacts import JavaArtifacts
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from typer.testing import CliRunner

from tests.support.commands import kill_when
from tests.support.cubes.built import assert_nothing_else, assert_recount
from tests.support.cubes.flights import flights_world
from tests.support.cubes.object_servers import (
    HdfsPorts,
    S3Keys,
    datanode_spec,
    namenode_spec,
    new_keys,
    s3_spec,
    s3_uri,
    spark_s3_jars,
)
from tests.support.cubes.object_store_contract import ObjectStoreContract
from tests.support.cubes.staging import CUBE, SCHEMA, SEGMENT, TABLE, Staging, raw_events, roll_up
from tests.support.sep.replication_looks import SERVERS, LookedAtCluster, log_name
from tests.support.servers import running
from tests.support.waiting import result_of, until

pytestmark = pytest.mark.integration

SEED = 20260301
WINDOW = parse_segment_name(SEGMENT)
SQL = """SELECT shop, COUNT(*) AS n, SUM(price) AS price, SUM(big) AS big, MIN(buyer) AS buyer
    FROM sales_cube GROUP BY shop"""
Submit = Callable[..., Any]
Command = Callable[..., tuple[list[str], dict[str, str]]]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rtolap-objects-", ignore_cleanup_errors=True) as made:
        yield Path(made)


@pytest.fixture(scope="module")
def s3_keys() -> S3Keys:
    return new_keys()


@pytest.fixture(scope="module")
def s3_server(java: JavaArtifacts, folder: Path, s3_keys: S3Keys) -> Iterator[ManagedProcess]:
    """The server, and what a deployment has: a credentials file, and Spark's jars in its defaults."""
    spec = s3_spec(folder / "s3", free_port(), s3_keys)
    conf = folder / "spark-conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(f"spark.jars {','.join(map(str, spark_s3_jars()))}\n")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(s3_keys.profile(folder / "aws")))
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("SPARK_CONF_DIR", str(conf))
        with running(spec) as server:
            yield server


@pytest.fixture(scope="module")
def hdfs_servers(java: JavaArtifacts, folder: Path) -> Iterator[tuple[ManagedProcess, ManagedProcess]]:
    numbers: set[int] = set()
    while len(numbers) < len(HdfsPorts._fields):
        numbers.add(free_port(numbers))
    ports = HdfsPorts(*numbers)
    with (
        running(namenode_spec(folder / "hdfs", ports)) as namenode,
        running(datanode_spec(folder / "hdfs", ports)) as datanode,
    ):
        yield namenode, datanode


def s3_port(server: ManagedProcess) -> int:
    return int(server.address.rpartition(":")[2])


class TestS3(ObjectStoreContract):
    servers_own = re.compile(r"/\d{4}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")

    @pytest.fixture
    def uri(self, s3_server: ManagedProcess, unique_name: str) -> str:
        return s3_uri(s3_port(s3_server), unique_name)


class TestHdfs(ObjectStoreContract):
    @pytest.fixture
    def uri(self, hdfs_servers: tuple[ManagedProcess, ManagedProcess], unique_name: str) -> str:
        return f"hdfs://{hdfs_servers[0].address}/{unique_name}"


@pytest.fixture(params=["s3", "hdfs"])
def uri(request: pytest.FixtureRequest, unique_name: str) -> str:
    if request.param == "s3":
        return s3_uri(s3_port(request.getfixturevalue("s3_server")), unique_name)
    return f"hdfs://{request.getfixturevalue('hdfs_servers')[0].address}/{unique_name}"


@pytest.fixture
def metadata(zookeeper: str, unique_name: str) -> Iterator[ClusterMetadata]:
    store = ZooKeeperStore(zookeeper, root=f"/{unique_name}", session_timeout_s=10)
    made = ClusterMetadata(store, SystemClock())
    made.create_table(TABLE)
    made.create_cube(CUBE)
    made.update_control(
        CUBE.name, lambda control: msgspec.structs.replace(control, enabled=True, first_offsets={0: 0, 1: 0})
    )
    yield made
    store.close()


def stage(metadata: ClusterMetadata, store: ObjectStore) -> pa.Table:
    """Close the segment and upload a part of each of two replica sets. Returns the raw events."""
    first = metadata.control(CUBE.name).first_offsets
    vector = {0: 700, 1: 400}
    now_ms = metadata.clock.now_ms()
    metadata.update_segment(
        CUBE.name, WINDOW, lambda record: segments.close(record, vector, now_ms=now_ms, by="rs0")
    )
    raw = [raw_events(SEED, partition, 0, end) for partition, end in vector.items()]
    for partition, events in enumerate(raw):
        part = write_staged_part(
            store,
            schema=SCHEMA,
            cube=CUBE.name,
            segment=SEGMENT,
            version=1,
            replica_set=f"rs{partition}",
            ranges=(PartRange(partition, 0, vector[partition]),),
            tables=[roll_up(events, CUBE.all_dimensions)],
            events=events.num_rows,
            unique="once",
        )

        def added(record: SegmentRecord, part: Any = part) -> SegmentRecord:
            return segments.add_part(record, part, partitions=set(first), first=first, now_ms=now_ms)

        metadata.update_segment(CUBE.name, WINDOW, added)
    return pa.concat_tables(raw)


def kill_in_mid_build(command: list[str], environment: dict[str, str], cwd: Path) -> None:
    """SIGKILL the driver and its children once the first cuboid is in the store."""
    kill_when(lambda line: '"event":"cuboid"' in line, command, environment, cwd)


def test_a_segment_is_staged_built_after_a_kill_promoted_answered_and_cleaned_up(
    uri: str,
    metadata: ClusterMetadata,
    submit: Submit,
    submit_command: Command,
    s3_keys: S3Keys,
    tmp_path: Path,
) -> None:
    store = open_store(uri)
    raw = stage(metadata, store)
    views = Views(metadata)
    builds = Builds(metadata, views, store, uri)
    started = builds.start(CUBE.name, SEGMENT)
    spec = msgspec.json.decode(started.model_dump_json().encode(), type=BuildSpec)
    assert spec.object_store == uri

    specs = tmp_path / "killed.json"
    specs.write_bytes(msgspec.json.encode(spec))
    command, environment = submit_command(str(specs), in_files=True, python=False)
    environment.pop("AWS_SHARED_CREDENTIALS_FILE", None)  # here keys in the environment, below their file
    keys = {"AWS_ACCESS_KEY_ID": s3_keys.access, "AWS_SECRET_ACCESS_KEY": s3_keys.secret}
    kill_in_mid_build(command, {**environment, **keys}, tmp_path)
    assert store.list(spec.location)
    with pytest.raises(NotFound):
        history.read_manifest(store, spec.location)

    done = submit(spec, in_files=True, apart=True)  # by tasks that open the store themselves
    assert done.exit_code == 0, done.errors
    assert s3_keys.secret not in done.errors
    staging = Staging(store, uri, tmp_path)
    manifest = assert_recount(staging, spec, raw)
    assert_nothing_else(staging, {spec.location: manifest}, killed=True)
    record = builds.promote(CUBE.name, SEGMENT, spec.build_id)
    assert (record.state, record.version, record.events) == (SegmentState.READY, 1, raw.num_rows)

    assert Purge(metadata, views, store, grace_ms=0).cleanup(CUBE.name).folders
    assert store.list("staged") == ()
    clock = SystemClock()
    service = QueryService(
        Cluster(metadata, clock),
        EmbeddedHistory(open_store(uri)),
        FlightSource(ReceiverClients("no receiver is asked")),
        Lookups(tmp_path),
        clock,
    )
    answer = sorted(service.execute(SQL).table().to_pylist(), key=repr)
    expected = [
        {"shop": row["shop"], "n": row["__rows"], "price": row["price__sum"], "big": row["big__sum"]}
        | {"buyer": row["buyer__min"]}
        for row in roll_up(raw, ["shop"]).to_pylist()
    ]
    assert answer == sorted(expected, key=repr)
    service.close()
    views.close()


class RequestLog:
    """A TCP relay in front of a server that notes each request that changes something, and counts bytes."""

    _LINE = re.compile(rb"(PUT|POST|DELETE) (\S+) HTTP/1\.1\r\n")

    def __init__(self, port: int) -> None:
        self.lines: list[tuple[str, str]] = []
        self.asked_bytes = 0
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            threading.Thread(target=self._relay, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._relay, args=(server, client, False), daemon=True).start()

    def _relay(self, source: socket.socket, target: socket.socket, requests: bool) -> None:
        # either end may be closed by the thread of the other direction, which ends this one
        with source, target, suppress(OSError):
            while data := source.recv(1 << 16):
                if requests:
                    self.asked_bytes += len(data)
                    self.lines += [(verb.decode(), path.decode()) for verb, path in self._LINE.findall(data)]
                target.sendall(data)


def test_on_s3_a_manifest_is_published_by_one_put_and_nothing_is_renamed(
    s3_server: ManagedProcess, unique_name: str
) -> None:
    log = RequestLog(s3_port(s3_server))
    open_store(s3_uri(log.port, unique_name)).write("history/c/s/v1/manifest.json", b"{}" * 5000)
    assert log.lines == [("PUT", f"/rtolap/{unique_name}/history/c/s/v1/manifest.json")]
    log.close()


def test_statements_over_copies_answer_the_same_and_ask_the_store_for_nothing(
    uri: str, unique_name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    log = None
    if uri.startswith("s3:"):
        log = RequestLog(s3_port(request.getfixturevalue("s3_server")))
        uri = s3_uri(log.port, unique_name)
    clock, sql = SystemClock(), "select carrier, count(*) n, sum(price) s from flights group by carrier"
    with closing(flights_world(7, 800)) as world:
        store = open_store(uri)
        copy_all(world.store, store)
        world.store = store
        with closing(world.service()) as plain:
            expected = plain.execute(f"{sql} order by n, carrier").table()
        cluster, cache = Cluster(world.metadata, clock), HistoryCache(CacheFolder(tmp_path / "cache"))
        keeper = HistoryKeeper(
            *(cache, store, cluster.snapshots, clock), bytes_max=1 << 30, bytes_per_s=1 << 30
        )
        keeper.start()
        until(lambda: keeper.condition is Condition.PLACED, "all is copied")
        keeper.close()
        world.store = ObjectStore(store.fs, f"{store.root}-where-nothing-is", store.uri(""))
        before = None if log is None else log.asked_bytes
        with closing(world.service(cache=cache)) as cached:
            outcome = cached.execute(f"{sql} order by n, carrier")
            assert outcome.table() == expected
            assert (outcome.stats[0].files_cached, outcome.stats[0].files_remote) == (
                2 * len(world.built["flights"]),
                0,
            )
        assert before == (None if log is None else log.asked_bytes)
        cluster.close()
    if log is not None:
        log.close()


def copy_all(source: ObjectStore, target: ObjectStore) -> None:
    """Files beside each other: HDFS has the writer of each wait for 0.4 s before it is closed."""

    def copy(file: StoredFile) -> None:
        target.write(file.path, source.read(file.path))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(copy, source.list()))


def test_on_s3_wrong_keys_are_refused_without_being_told(
    s3_server: ManagedProcess, unique_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = new_keys()
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(wrong.profile(tmp_path / "aws")))
    store = open_store(s3_uri(s3_port(s3_server), unique_name))
    for attempt in (lambda: store.write("a", b"x"), lambda: store.read("a"), lambda: store.list()):
        with pytest.raises(Unavailable) as caught:
            attempt()
        assert wrong.secret not in str(caught.value)


@pytest.mark.parametrize("kind", ["s3", "hdfs"])
def test_a_store_that_is_down_is_unavailable_and_has_everything_when_it_is_back(
    kind: str, request: pytest.FixtureRequest, unique_name: str
) -> None:
    if kind == "s3":
        server: ManagedProcess = request.getfixturevalue("s3_server")
        uri = s3_uri(s3_port(server), unique_name)
        others: tuple[ManagedProcess, ...] = ()
    else:
        server, datanode = request.getfixturevalue("hdfs_servers")
        uri = f"hdfs://{server.address}/{unique_name}"
        others = (datanode,)
    store = open_store(uri)
    store.write("a/manifest.json", b"kept")
    server.kill()
    started_s = time.monotonic()
    for attempt in (lambda: store.write("a/b", b"x"), lambda: store.read("a/manifest.json")):
        with pytest.raises(Unavailable):
            attempt()
    assert time.monotonic() - started_s < 60
    server.start()
    for other in others:
        other.wait_ready()
    assert store.read("a/manifest.json") == b"kept"
    assert [file.path for file in store.list()] == ["a/manifest.json"]


LOG_BLOCK_BYTES = 1 << 20  # HDFS takes no smaller ones


def _log_in_writing(client: hdfs_native.Client, path: str, size_bytes: int) -> hdfs_native.FileWriter:
    """A log of zeros that is not closed yet. It is begun again while HDFS refuses a further block because it
    has not heard of the one before: its client does not ask again."""
    options = hdfs_native.WriteOptions(block_size=LOG_BLOCK_BYTES, overwrite=True)

    def write() -> hdfs_native.FileWriter:
        writer = client.create(path, options)
        writer.write(bytes(size_bytes))
        return writer

    return result_of(write, RuntimeError)


def test_replication_status_shows_what_hdfs_knows_of_logs_also_of_those_that_are_written(
    hdfs_servers: tuple[ManagedProcess, ManagedProcess], unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    namenode = hdfs_servers[0]
    client = hdfs_native.Client(f"hdfs://{namenode.address}")
    cluster, server = LookedAtCluster(), SERVERS[0]
    sizes = {1000: 300_000, 2000: 2 * LOG_BLOCK_BYTES + 500_000, 3000: 700_000}
    paths = {
        created: f"/{unique_name}/{folder}/{log_name(server, created)}"
        for created, folder in ((1000, "oldWALs"), (2000, f"WALs/{server}"), (3000, f"WALs/{server}"))
    }
    writers = {created: _log_in_writing(client, paths[created], sizes[created]) for created in paths}
    writers[1000].close()

    def of_hdfs(created: int) -> int:
        page = f"http://127.0.0.1:{namenode.spec.ports[-1]}/webhdfs/v1{quote(paths[created])}"
        answer = httpx.get(page, params={"op": "GETFILESTATUS"}, trust_env=False).raise_for_status()
        return int(answer.json()["FileStatus"]["length"])

    def look(*further: int) -> str:
        cluster.queue(server, "behind", {1000: 100_000, 2000: None, **dict.fromkeys(further)})
        cluster.queue(server, "near", {3000: 600_000, **dict.fromkeys(further)})
        sources = cluster.sources(wal_sizes=WalSizes(f"hdfs://{namenode.address}/{unique_name}"))
        monkeypatch.setattr(ReplicationSources, "open", lambda *unused, **options: sources)
        monkeypatch.setattr(sources, "close", lambda: None)
        answer = CliRunner().invoke(app, ["sep", "status", "--every", "200ms"], catch_exceptions=False)
        return answer.stdout.partition("further logs")[2]

    for name in ("behind", "near"):
        cluster.add_peer(name, sinks=1)
    assert (of_hdfs(1000), of_hdfs(2000)) == (sizes[1000], 2 * LOG_BLOCK_BYTES), "its finished blocks"
    assert of_hdfs(3000) == 0
    behind, near = look().splitlines()[1:3]
    assert "\tat least 2.0 MiB\t33%\t" in behind
    assert "\t0 B\t585.9 KiB of at least 585.9 KiB\t" in near, "as far as it was read"
    for created in (2000, 3000):
        writers[created].close()
    writers.clear()  # each is closed again as it is collected, which waits for HDFS
    assert [of_hdfs(created) for created in sizes] == list(sizes.values())
    client.create(f"/{unique_name}/WALs/{server}/{log_name(server, 4000)}").close()
    behind, near = look(4000).splitlines()[1:3]
    assert "\tat least 2.5 MiB\t33%\t" in behind
    assert "\tat least 0 B\t86%\t" in near
