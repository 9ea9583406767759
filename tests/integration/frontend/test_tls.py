"""Endpoints with a certificate speak TLS on both ports and redirect to TLS only; nodes and SQL keep to it."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.base.errors import Unavailable
from rtolap.base.users import password_hash
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.protocols.stored_tables.client import StoredTablesClient
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import SendOptions
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.spec import ProcessSpec

from tests.support.certificates import Certificates, make_certificates
from tests.support.stored.stored_cluster import StoredCluster
from tests.support.stored.stream_load_cluster import PASSWORD, TOKEN, USER, StreamLoadCluster
from tests.support.waiting import patience_s, until

_CURL_UNTRUSTED = 60  # curl's status for a certificate that it does not trust


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "users").write_text(f"{USER}:{password_hash(PASSWORD)}:load\n")
    port = free_port()
    return {
        **os.environ,
        "RTOLAP_TOKEN_FILE": str(tmp_path / "token"),
        "RTOLAP_USERS_FILE": str(tmp_path / "users"),
        "RTOLAP_DATA_DIR": str(tmp_path / "data"),
        "RTOLAP_LEDGER": f"sqlite:///{tmp_path / 'ledger.db'}",
        "RTOLAP_STREAM_LOAD_PORT": str(port),
        "RTOLAP_STREAM_LOAD_BODY_PORT": str(free_port({port})),
    }


COMMAND = (sys.executable, "-m", "rtolap.cli.main", "stream-load", "serve")


@pytest.fixture
def endpoint(
    owned: None, tmp_path: Path, environment: dict[str, str], certificates: Certificates
) -> Iterator[dict[str, str]]:
    environment["RTOLAP_STREAM_LOAD_TLS_CERTIFICATE"] = str(certificates.certificate)
    environment["RTOLAP_STREAM_LOAD_TLS_KEY"] = str(certificates.key)
    url = f"https://127.0.0.1:{environment['RTOLAP_STREAM_LOAD_PORT']}/health"

    def missing(started_s: float) -> str | None:
        done = subprocess.run(
            ["curl", "-sf", "--cacert", str(certificates.authority), url], timeout=patience_s(10), check=False
        )
        return None if done.returncode == 0 else f"curl {url}: {done.returncode}"

    process = ManagedProcess(
        ProcessSpec("endpoint", tmp_path / "run", COMMAND, env=environment, ready=missing)
    )
    try:
        process.start()
        yield environment
    finally:
        process.stop()


def test_both_ports_speak_tls(endpoint: dict[str, str], certificates: Certificates) -> None:
    port, body_port = endpoint["RTOLAP_STREAM_LOAD_PORT"], endpoint["RTOLAP_STREAM_LOAD_BODY_PORT"]
    url = f"https://127.0.0.1:{port}/api/web/hits/_stream_load"
    words = ["curl", "-sv", "--cacert", str(certificates.authority), "-u", f"{USER}:{PASSWORD}", "-T", "-"]
    asked = subprocess.run(
        [*words, url], input=b"1\n", capture_output=True, timeout=patience_s(20), check=False
    )
    assert f"< location: https://127.0.0.1:{body_port}/api/web/hits/_stream_load" in asked.stderr.decode()
    led = subprocess.run(
        [*words, "--location-trusted", url],
        input=b"1\n",
        capture_output=True,
        timeout=patience_s(20),
        check=False,
    )
    assert b"unknown table, tableName=hits" in led.stdout
    for number in (port, body_port):
        plain = subprocess.run(
            ["curl", "-s", f"http://127.0.0.1:{number}/health"], timeout=patience_s(20), check=False
        )
        assert plain.returncode != 0


def test_a_cluster_whose_endpoints_speak_tls_takes_loads_and_answers_sql(
    owned: None, module_folder: Path, zookeeper: str, certificates: Certificates
) -> None:
    folder = module_folder / "tls"
    options = SendOptions(format="csv", headers={"column_separator": ","}, timeout_s=30)
    with StoredCluster(folder, f"sqlite:///{folder / 'ledger.db'}", certificates=certificates) as cluster:
        cluster.start(endpoints=2, nodes=1)
        cluster.start_query(zookeeper, f"/tls-{uuid.uuid4().hex}")
        cluster.ask("create table web.hits (id int not null, host varchar(9)) duplicate key(id)")
        other = cluster.urls[1 - cluster.master()]  # it redirects
        with StreamLoadClient([other], USER, PASSWORD, ca_file=certificates.authority) as client:
            assert client.load("web", "hits", "first", b"1,a\n2,b\n", options).status == "Success"
            cluster.ask("alter table web.hits add column size int default '7'")
            assert client.load("web", "hits", "second", b"3,c,8\n", options).status == "Success"
        assert cluster.ask("select id, host, size from web.hits order by id") == [
            (1, "a", 7),
            (2, "b", 7),
            (3, "c", 8),
        ]
        with (
            StreamLoadClient([other], USER, PASSWORD) as client,
            pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"),
        ):
            client.state("web", "first")
        with (
            StoredTablesClient([other], TOKEN, retry_s=0.1) as tables,
            pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"),
        ):
            tables.tables()
        cluster.ask("drop table web.hits")
        assert cluster.tables.tables() == ()


def test_a_load_is_redirected_to_a_storage_node_that_speaks_tls(
    owned: None, module_folder: Path, certificates: Certificates
) -> None:
    """The client checks the certificate of the front end and that of the node's port for bodies."""
    folder = module_folder / "tls-node"
    table = StoredTable(
        database="web", name="hits", columns=(StoredColumn("id", "int", nullable=False),), keys=("id",)
    )
    options = SendOptions(format="csv", timeout_s=30)
    ledger = f"sqlite:///{folder / 'ledger.db'}"
    with StreamLoadCluster(folder, ledger, certificates=certificates, redirect="nodes") as cluster:
        cluster.start(endpoints=1, nodes=1, nodes_take_bodies=True)
        cluster.tables.create(table)
        (door,) = cluster.node_body_urls
        assert door.startswith("https://")
        path = f"{cluster.urls[0]}/api/web/hits/_stream_load"
        words = ["curl", "-sv", "-u", f"{USER}:{PASSWORD}", "-H", "Expect: 100-continue", "-T", "-"]
        trusting = [*words, "--cacert", str(certificates.authority)]

        def put(command: list[str], url: str) -> subprocess.CompletedProcess[bytes]:
            return subprocess.run(
                [*command, url], input=b"1\n", capture_output=True, timeout=patience_s(30), check=False
            )

        # A node is known by its heartbeat; until then the front end redirects to its own port.
        until(lambda: f"< location: {door}/api/web/hits/_stream_load" in put(trusting, path).stderr.decode(),
              "the front end redirects to the node")  # fmt: skip
        with StreamLoadClient([cluster.urls[0]], USER, PASSWORD, ca_file=certificates.authority) as client:
            assert client.load("web", "hits", "by-redirect", b"1\n2\n", options).status == "Success"
        with StreamLoadClient([door], USER, PASSWORD, ca_file=certificates.authority) as client:
            assert client.load("web", "hits", "at-the-node", b"3\n", options).status == "Success"
        assert [row["id"] for row in cluster.rows(TableName("web", "hits"))] == [1, 2, 3]
        with (
            StreamLoadClient([door], USER, PASSWORD) as client,
            pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"),
        ):
            client.load("web", "hits", "untrusted", b"4\n", options)
        assert put(words, f"{door}/api/web/hits/_stream_load").returncode == _CURL_UNTRUSTED
        plain = put(words, f"{door.replace('https', 'http')}/api/web/hits/_stream_load")
        assert b"Success" not in plain.stdout
        assert len(cluster.rows(TableName("web", "hits"))) == 3


def test_a_certificate_without_its_key_is_refused(environment: dict[str, str], tmp_path: Path) -> None:
    environment["RTOLAP_STREAM_LOAD_TLS_CERTIFICATE"] = str(tmp_path / "certificate")
    done = subprocess.run(
        COMMAND, env=environment, capture_output=True, text=True, timeout=patience_s(60), check=False
    )
    assert done.returncode != 0
    assert "RTOLAP_STREAM_LOAD_TLS_KEY" in done.stderr
