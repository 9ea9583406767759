"""The command line as people and scripts use it: processes with exit codes, on real services."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import rtolap
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaProducer

from tests.support.cubes.services import Services, wait_for
from tests.support.formats.avro import encode, framed
from tests.support.formats.registry_server import RegistryServer, running_registry
from tests.support.query.prices import define_prices
from tests.support.waiting import patience_s

pytestmark = [pytest.mark.integration]

FAR = "far"  # the same brokers, as a cluster with a name
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "sold_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": "string"},
        {"name": "price", "type": ["null", "double"]},
    ],
}
_PRICES = (("pen", "1.10"), ("ink", "2.20"), ("pen", "3.30"), ("ink", None))


class Shell:
    """Runs `rtolap` in the services' environment, in a wide terminal so that tables are not folded."""

    def __init__(self, services: Services) -> None:
        self._environment = {**services.environment, "COLUMNS": "250"}

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Ends with this code, and whatever it says is no traceback."""
        done = subprocess.run(
            [sys.executable, "-m", "rtolap.cli.main", *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience_s(60),
            check=False,
        )
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        for noise in ("Traceback", "leaked", "ZooKeeper session"):
            assert noise not in done.stderr, done.stderr
        return done

    def text(self, *arguments: str) -> str:
        return self.run(*arguments).stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json").stdout)

    def refused(self, *arguments: str) -> str:
        """What it says on stderr when it ends with 1; stdout stays empty."""
        done = self.run(*arguments, code=1)
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        return done.stderr


def cells(table: str) -> list[list[str]]:
    """The rows of a table in a pipe, without its first heading."""
    return [line.split("\t") for line in table.splitlines() if "\t" in line][1:]


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with running_registry() as made:
        yield made


@pytest.fixture(scope="module")
def services(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: str, kafka: str, registry: RegistryServer
) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("services")
    one = Services(
        folder, zookeeper=zookeeper, root=f"/commands-{uuid.uuid4().hex}", kafka=kafka, coordinators=1
    )
    clusters = folder / "kafka.yaml"
    clusters.touch(mode=0o600)
    clusters.write_text(f"clusters: {{{FAR}: {{bootstrap.servers: '{kafka}'}}}}\n")
    one.environment |= {"RTOLAP_KAFKA_CLUSTERS": str(clusters), "RTOLAP_SCHEMA_REGISTRY": registry.url}
    try:
        one.start_coordinators()
        one.start_receiver("r1", "only", "--checkpoint-interval-s", "0.5", "--idle-after-s", "60")
        one.start_query()
        one.coordinator.put_replica_set("only", ["r1"])
        wait_for("the receiver lives", lambda: len(one.coordinator.receivers()) == 1)
        yield one
    finally:
        one.close()


def events(folder: Path, name: str, hours: tuple[int, ...] = (1,)) -> Path:
    """Four events an hour, the last without a price, and a record that is no JSON at the end."""
    path = folder / f"{name}.ndjson"
    rows = [
        {"ts": f"2024-05-01T{hour:02}:00:00", "kind": kind, "price": price}
        for hour in hours
        for kind, price in _PRICES
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{broken\n")
    return path


def test_from_definitions_to_answers(services: Services, tmp_path: Path, unique_name: str) -> None:
    shell, cube, table = Shell(services), unique_name, f"{unique_name}_table"
    definitions = define_prices(tmp_path, cube)

    produced = shell.json("produce", str(events(tmp_path, cube)), "--partitions", "1")
    assert produced == {"topic": cube, "records": 5, "end_offsets": {"0": 5}}
    assert shell.json("create", str(definitions), "--enable") == [["table", table], ["cube", cube]]
    shown = shell.text("describe", cube)
    assert shown.startswith(f"cube {cube}  of table {table}\nsegments of 1h, ")
    assert ["sum(price)", "price__sum decimal(38,2)"] in cells(shown)
    assert ["price", "decimal(10,2)", ""] in cells(shell.text("describe", table))

    wait_for(
        "all is read", lambda: services.sql(f"SELECT COUNT(*) FROM {cube}")["positions"] == {cube: {"0": 5}}
    )

    select = f"SELECT kind, COUNT(*) AS n, SUM(price) AS total FROM {cube} GROUP BY kind ORDER BY kind"
    assert cells(shell.text("sql", "-e", select)) == [["ink", "2", "2.20"], ["pen", "2", "4.40"]]
    answer = shell.json("sql", "-e", select)
    assert [column["name"] for column in answer["columns"]] == ["kind", "n", "total"]
    assert [(row["kind"], row["n"], str(row["total"])) for row in answer["rows"]] == [
        ("ink", 2, "2.20"),
        ("pen", 2, "4.40"),
    ]
    assert answer["positions"] == {cube: {"0": 5}}

    (letter,) = shell.json("dead-letters", "list", table)
    assert (letter["topic"], letter["partition"], letter["offset"]) == (cube, 0, 4)
    assert (letter["reason"], letter["value"]) == ("malformed_json", "{broken")

    heading, *rows = (line.split("\t") for line in shell.text("receivers", "list").splitlines())
    (listed,) = (dict(zip(heading, row, strict=True)) for row in rows)
    assert (listed["receiver"], listed["replica set"], listed["leader"]) == ("r1", "only", "yes")
    assert (listed["version"], listed["health"]) == (rtolap.__version__, "HEALTHY")
    assert listed["cubes"].startswith(f"{cube} ")

    segment = "20240501010000_20240501020000"
    services.coordinator.close_segment(cube, segment)
    wait_for(
        "the segment is uploaded",
        lambda: any(one.state == "REMOTE_PERSISTED" for one in services.coordinator.segments(cube)),
    )
    (listed,) = shell.json("segments", "list", cube, "--state", "remote_persisted")
    assert (listed["segment"], listed["version"]) == (segment, 0)
    assert [(part["replica_set"], part["events"]) for part in listed["parts"]] == [("only", 4)]

    assert "disable" in shell.refused("drop", cube, "--yes")
    assert shell.text("drop", cube, "--yes", "--disable") == f"✓ cube {cube} dropped\n"
    assert shell.json("drop", table, "--yes") == {"dropped": table, "kind": "table"}
    assert services.coordinator.cubes() == []
    assert services.coordinator.tables() == []


def test_what_is_purged_from_receivers_does_not_come_back(
    services: Services, tmp_path: Path, create_topic: Callable[..., str]
) -> None:
    shell, cube = Shell(services), f"purged_{uuid.uuid4().hex[:8]}"
    create_topic(cube)
    shell.run(
        "create", str(define_prices(tmp_path, cube, retention="{policy: PURGE, after: 30d}")), "--enable"
    )
    shell.run("produce", str(events(tmp_path, cube, hours=(1, 2, 3))))
    first, second, third, fourth = (f"2024-05-01T{hour:02}:00:00" for hour in (1, 2, 3, 4))

    def answer() -> tuple[int, dict[str, tuple[int, str]]] | None:
        """The prefix that is held, and number and sum of every hour; None while nobody answers."""
        try:
            found = services.sql(f"SELECT hour_start, COUNT(*), SUM(price) FROM {cube} GROUP BY hour_start")
        except httpx.HTTPStatusError:
            return None
        hours = {str(row[0]).replace(" ", "T")[:19]: (row[1], str(row[2])) for row in found["rows"]}
        return found["positions"][cube]["0"], hours

    full = (4, "6.60")
    wait_for("all is read", lambda: answer() == (13, {first: full, second: full, third: full}))
    assert services.coordinator.segments(cube, state="REMOTE_PERSISTED") == []

    purged = shell.json("segments", "purge", cube, "--before", "2024-05-01T03:00", "--yes")
    assert purged["horizon_ms"] == 1_714_532_400_000
    wait_for("two hours are gone", lambda: answer() == (13, {third: full}))

    def is_back() -> bool:
        found = answer()
        assert found is None or not {first, second} & set(found[1]), found
        return found == (13, {third: full})

    for keeps_its_files in (True, False):
        services.kill("r1")
        if not keeps_its_files:
            shutil.rmtree(services.folder / "receivers" / "r1")
        services.start_again("r1")
        wait_for(f"it answers again, its files kept: {keeps_its_files}", is_back)

    shell.run("produce", str(events(tmp_path, cube, hours=(1, 4))), "--topic", cube)
    wait_for("sent again, they are left out", lambda: answer() == (22, {third: full, fourth: full}))


def test_mistakes_are_told_in_one_line(services: Services, unique_name: str) -> None:
    shell = Shell(services)
    missing = f"{unique_name}_missing"
    assert missing in shell.refused("describe", missing)
    assert missing in shell.refused("segments", "list", missing)
    assert missing in shell.refused("sql", "-e", f"SELECT COUNT(*) FROM {missing}")
    for usage in (("segments", "list"), ("sql", "--no-such-option")):
        assert "Usage:" in shell.run(*usage, code=2).stderr, usage


def test_the_doctor_names_the_service_that_does_not_answer(
    services: Services, tmp_path: Path, unique_name: str
) -> None:
    shell, cube = Shell(services), unique_name
    definitions = define_prices(tmp_path, cube)
    shell.json("produce", str(events(tmp_path, cube)), "--partitions", "1")
    shell.json("create", str(definitions), "--enable")
    well = {each["subject"]: each for each in shell.json("doctor")}
    assert [each for each in well.values() if each["outcome"] == "failed"] == []
    for subject in (f"topic {cube} of default", "Kafka default", "object store", "cluster"):
        assert well[subject]["outcome"] == "ok", subject
    assert "receiver r1" in well, "which may have warnings of what other tests have sent it"

    services.stop("query")
    try:
        ill = json.loads(shell.run("doctor", "--problems", "--json", code=1).stdout)
    finally:
        services.start_query()
    (failed,) = [each for each in ill if each["outcome"] == "failed"]
    assert failed["subject"].startswith("query service ")
    assert "rtolap query serve" in failed["action"]


def test_a_bundle_of_a_running_cluster_holds_its_state_and_no_token(
    services: Services, tmp_path: Path, unique_name: str
) -> None:
    shell, cube = Shell(services), unique_name
    definitions = define_prices(tmp_path, cube)
    shell.json("produce", str(events(tmp_path, cube)), "--partitions", "1")
    shell.json("create", str(definitions), "--enable")
    path = tmp_path / "bundle.tar.gz"
    said = shell.json("support-bundle", "--output", str(path))
    entries = {each["name"]: each for each in said["entries"]}
    for name in ("doctor", "settings", "cluster/cluster", "cluster/cubes", f"cluster/segments/{cube}"):
        assert entries[f"{name}.json"]["outcome"] == "included", entries[f"{name}.json"]
    assert [name for name, each in entries.items() if name.startswith("metrics/") and each["size_bytes"]]
    token = Path(services.environment["RTOLAP_TOKEN_FILE"]).read_text().strip().encode()
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            assert token not in file.read(), member.name
    assert path.stat().st_mode & 0o777 == 0o600


def test_definitions_guessed_from_a_topic_can_be_created(
    services: Services, tmp_path: Path, unique_name: str
) -> None:
    shell, cube = Shell(services), unique_name
    shell.json("produce", str(events(tmp_path, cube)), "--partitions", "1")
    said = shell.json("init", cube, "--into", str(tmp_path / "project"))
    assert (said["records"], said["broken"], said["left_out"]) == (5, 1, {})
    assert {Path(said[kind]).parent.name for kind in ("table", "cube")} == {"tables", "cubes"}
    shell.json("validate", str(tmp_path / "project" / "include"))
    shell.json("create", str(tmp_path / "project" / "include"), "--enable")
    assert "not overwritten" in shell.refused("init", cube, "--into", str(tmp_path / "project"))


def csv_records() -> list[bytes]:
    rows = [
        f"2024-05-01T01:00:0{number};{kind};{price or ''}" for number, (kind, price) in enumerate(_PRICES)
    ]
    return [b"Sold At;kind;price", *(row.encode() for row in rows)]


def avro_records() -> list[bytes]:
    at_ms = 1_714_525_200_000  # 2024-05-01T01:00:00Z
    rows = [
        {"sold_at": at_ms + number, "kind": kind, "price": None if price is None else float(price)}
        for number, (kind, price) in enumerate(_PRICES)
    ]
    return [framed(5, encode(AVRO, row)) for row in rows]


@pytest.mark.parametrize("form", ["csv", "avro"])
def test_definitions_guessed_from_other_formats_of_a_named_cluster_count_each_event(
    form: str,
    services: Services,
    registry: RegistryServer,
    tmp_path: Path,
    create_topic: Callable[..., str],
    kafka: str,
) -> None:
    registry.schemas[5] = {"schema": json.dumps(AVRO)}
    shell, topic = Shell(services), create_topic(f"sold_{form}_{uuid.uuid4().hex[:6]}", 1)
    producer = KafkaProducer(kafka, client_id="test")
    records = csv_records() if form == "csv" else avro_records()
    producer.produce(topic, [OutRecord(value, partition=0) for value in records])
    producer.flush(30)
    producer.close()
    project = tmp_path / "project"
    said = shell.json("init", topic, "--cluster", FAR, "--into", str(project))
    assert (said["records"], said["broken"], said["left_out"]) == (len(records), len(records) - 4, {})
    text = Path(said["table"]).read_text()
    assert f'kafka_cluster: "{FAR}"' in text
    assert f'type: "{form}"' in text
    shell.json("validate", str(project / "include"))
    shell.json("create", str(project / "include"), "--enable")
    cube = f"{topic}_cube"

    def counted() -> bool:
        try:
            (row,) = services.sql(f"select count(*), max(price) from {cube}")["rows"]
        except httpx.HTTPStatusError:
            return False
        return [int(row[0]), float(row[1] or 0)] == [4, 3.3]

    wait_for("each event counts", counted, 90)
