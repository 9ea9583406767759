"""Somebody writes to the cluster's nodes in ZooKeeper, past their access lists, and has no token.

He points addresses at a server of his own, paths at files outside, and alters anything else. No server of
his gets the token or an answer that it may keep, no file outside is read, and with the genuine records back
the answer is exact.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import msgspec
import pytest
from rtolap.base.errors import RtolapError
from rtolap.base.undecodable import UNDECODABLE
from rtolap.metadata import paths
from rtolap.metadata.cluster_store import open_zookeeper
from rtolap.metadata.store import Create, Delete, Put
from rtolap.metadata.zookeeper import ZooKeeperStore

from tests.support.cubes.service_world import LOOKUP, PARTITIONS, World
from tests.support.cubes.services import Services, wait_for
from tests.support.hostile.cluster_store import cluster_settings
from tests.support.hostile.impostors import HttpPretender, Pretender
from tests.support.seeds import so_many

pytestmark = [pytest.mark.integration]

TOKEN = "the-secret-that-no-neighbour-learns"
CANARY = "content-of-a-file-outside"
ALTERED = so_many(60)
EPHEMERAL = re.compile(r"/(coordinator/election|receivers_live|replica_sets_lead)(/|$)")
_SERVICES = ("coordinator-0", "r0", "r1", "query")


class Writer:
    """May write every node of the cluster: he has ZooKeeper's password, or is its administrator."""

    def __init__(self, store: ZooKeeperStore) -> None:
        self.store = store

    def nodes(self) -> list[str]:
        """Paths of all records, but those that end with a session."""
        found, waiting = [], [""]
        while waiting:
            path = waiting.pop()
            node = self.store.get(path)
            if node is not None and node.data and not EPHEMERAL.match(path):
                found.append(path)
            waiting += [f"{path}/{name}" for name in self.store.children(path)]
        return sorted(found)

    def data(self, path: str) -> bytes:
        node = self.store.get(path)
        assert node is not None
        return node.data

    def put(self, path: str, data: bytes) -> None:
        node = self.store.get(path)
        self.store.commit([Create(path, data) if node is None else Put(path, data, node.version)])


class Attacked:
    def __init__(
        self, world: World, writer: Writer, folder: Path, flight: Pretender, http: HttpPretender
    ) -> None:
        self.world, self.writer, self.folder = world, writer, folder
        self.flight, self.http = flight, http

    def ask_everything(self) -> str:
        """Return all that a user and an operator are answered, errors too."""
        said = []
        for sql in (self.world.sql, f"SELECT * FROM {LOOKUP}", "SHOW TABLES"):
            try:
                said.append(json.dumps(self.world.services.sql(sql)))
            except httpx.HTTPError as error:
                said.append(str(error))
        client = self.world.services.coordinator
        for ask in (client.cluster, client.receivers, client.lookups, client.cubes, client.metrics_targets):
            try:
                said.append(str(ask()))
            except RtolapError as error:
                said.append(str(error))
        return "\n".join(said)

    def logs(self) -> str:
        return "".join((self.folder / f"{name}.log").read_text() for name in _SERVICES)

    def check_nothing_left(self, said: str) -> None:
        assert TOKEN not in str(self.flight.seen) + str(self.http.seen), "the token was sent"
        assert TOKEN not in said + self.logs(), "the token was told"
        assert CANARY not in said + self.logs(), "a file outside was read"
        sent = str(self.flight.seen) + str(self.http.seen)
        assert "Rtolap-Call" not in sent
        assert "Bearer" not in sent


@pytest.fixture
def attacked(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> Iterator[Attacked]:
    create_topic(unique_name, PARTITIONS)
    (tmp_path / "include").mkdir()
    (tmp_path / "outside.csv").write_text(f"place,region\n1,{CANARY}\n")
    (tmp_path / "include" / ".env.csv").write_text(f"place,region\n1,{CANARY}\n")
    (tmp_path / "include" / f"{LOOKUP}.csv").write_text("place,region\n1,north\n")
    services = Services(
        tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka, coordinators=1, token=TOKEN
    )
    services.environment["RTOLAP_INCLUDE_DIR"] = str(tmp_path / "include")
    world = World(services, kafka, unique_name, 3, {"both": ("r0", "r1")})
    with ExitStack() as opened:
        opened.enter_context(closing(services))
        opened.enter_context(closing(world))
        services.start_coordinators()
        world.start_receivers("both")
        services.start_query()
        columns = [{"name": "place", "type": "int"}, {"name": "region", "type": "string"}]
        services.coordinator.create_lookup({"name": LOOKUP, "file": f"{LOOKUP}.csv", "columns": columns})
        world.declare()
        world.produce(200)
        wait_for("all is visible", world.caught_up, 90)
        store = open_zookeeper(cluster_settings(services.environment))
        opened.callback(store.close)
        flight = opened.enter_context(Pretender())
        http = opened.enter_context(HttpPretender())
        yield Attacked(world, Writer(store), tmp_path, flight, http)


def test_a_changed_address_gets_nothing_from_one_select(attacked: Attacked) -> None:
    writer, world = attacked.writer, attacked.world
    genuine = {name: writer.data(paths.receiver(name)) for name in ("r0", "r1")}
    for name, data in genuine.items():
        record = msgspec.json.decode(data.partition(b"\nrtolap-signature:")[0])
        record |= {"host": "127.0.0.1", "port": attacked.flight.port, "metrics_port": attacked.http.port}
        writer.put(paths.receiver(name), msgspec.json.encode(record))

    def refused() -> bool:
        try:
            world.services.sql(world.sql)
        except httpx.HTTPStatusError:
            return True
        return False

    wait_for("the forged receivers are left out", refused)
    said = attacked.ask_everything()
    assert str(attacked.http.port) not in said, "nor does Prometheus hear of them"
    assert attacked.flight.seen == [], "an address without a signature is not even called"
    attacked.check_nothing_left(said)
    assert paths.receiver("r0") in attacked.logs(), "it is logged by its name"


def test_who_listens_at_a_genuine_address_gets_nothing(attacked: Attacked) -> None:
    """The announcements are signed, their processes were killed, and somebody has taken their ports."""
    world, services = attacked.world, attacked.world.services
    at = {r.receiver_id: r.port for r in services.coordinator.receivers()}
    for name in ("r0", "r1"):
        services.kill(name)
    with Pretender(at["r0"]) as first, Pretender(at["r1"]) as second:
        with pytest.raises(httpx.HTTPStatusError) as caught:
            services.sql(world.sql)
        seen = str(first.seen) + str(second.seen)
    assert TOKEN not in seen + str(caught.value)
    assert "Bearer" not in seen
    for name in ("r0", "r1"):
        services.start_again(name)
    world.wait_for_receivers()
    wait_for("all is visible again", world.caught_up, 90)
    positions, answer = world.ask()
    assert answer == world.expected(positions)


def test_a_coordinator_that_somebody_has_made_up_gets_no_heartbeat(attacked: Attacked) -> None:
    url = f"http://127.0.0.1:{attacked.http.port}"
    election = attacked.writer.store.elect(paths.ELECTION, url, lambda: None)
    heard = {r.receiver_id: r.last_seen_ms or 0 for r in attacked.world.services.coordinator.receivers()}

    def heartbeats_go_on() -> bool:
        receivers = attacked.world.services.coordinator.receivers()
        return all((r.last_seen_ms or 0) > heard[r.receiver_id] + 3_000 for r in receivers)

    wait_for("heartbeats go on to the genuine coordinator", heartbeats_go_on)
    election.close()
    attacked.check_nothing_left(attacked.ask_everything())
    assert attacked.http.seen == []


def test_nothing_that_is_altered_gives_a_secret_away_or_a_file(attacked: Attacked, tmp_path: Path) -> None:
    random_ = random.Random(11)
    writer, world = attacked.writer, attacked.world
    outside = [str(tmp_path / "outside.csv"), "../outside.csv", ".env.csv", "a/../../outside.csv"]
    kinds: set[str] = set()
    nodes = writer.nodes()
    for number in range(ALTERED):
        path = nodes[number % len(nodes)] if number < 2 * len(nodes) else random_.choice(nodes)
        kinds.add(re.sub(world.cube, "*", path))
        genuine = writer.data(path)
        writer.put(path, _altered(random_, genuine, outside, attacked.flight.port, attacked.http.port))
        attacked.check_nothing_left(attacked.ask_everything() if number % 3 == 0 else "")
        if random_.random() < 0.2:  # another name for a record
            copied = path.rpartition("/")[0] + f"/copied{number}"
            writer.store.commit([Create(copied, genuine)])
            writer.store.commit([Delete(copied)])
    said = attacked.ask_everything()
    attacked.check_nothing_left(said)
    for kind in ("/receivers/r0", "/replica_sets/both", "/cubes/*/definition", "/cubes/*/control"):
        assert kind in kinds
    assert f"/definitions/lookups/{LOOKUP}" in kinds
    assert any(kind.startswith("/definitions/tables/") for kind in kinds)
    assert world.services.ended() == [], "and no service ended of it"


def _altered(random_: random.Random, data: bytes, outside: list[str], flight: int, http: int) -> bytes:
    """A record with addresses, paths and names of the writer's; or with a few other bytes."""
    record, mark, signature = data.partition(b"\nrtolap-signature:")
    try:
        value = msgspec.json.decode(record)
    except UNDECODABLE:
        value = None
    if isinstance(value, dict) and value and random_.random() < 0.8:
        for key in value:
            if key in ("port", "metrics_port"):
                value[key] = flight if key == "port" else http
            elif isinstance(value[key], str) and (key in ("file", "location") or random_.random() < 0.3):
                value[key] = random_.choice([*outside, f"127.0.0.1:{http}", f"http://127.0.0.1:{http}"])
        record = msgspec.json.encode(value)
    else:
        altered = bytearray(record)
        for _ in range(random_.randint(1, 4)):
            altered[random_.randrange(len(altered))] = random_.randrange(256)
        record = bytes(altered)
    return record + mark + signature if random_.random() < 0.7 else record
