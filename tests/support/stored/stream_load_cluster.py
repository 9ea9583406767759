"""front ends and storage nodes as processes, over a ledger of the caller's choice."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
from rtolap.base.addresses import host_port
from rtolap.base.closeable import Closeable
from rtolap.base.errors import Unavailable
from rtolap.base.tls import trust
from rtolap.base.users import password_hash
from rtolap.protocols.storage.client import StorageClients
from rtolap.protocols.storage.messages import ScanRequest, TabletId
from rtolap.protocols.stored_tables.client import StoredTablesClient
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.stack.ports import free_port
from rtolap.stack.probes import http_missing, storage_missing
from rtolap.stack.process import ManagedProcess
from rtolap.stack.spec import ProcessSpec

from tests.support.certificates import Certificates
from tests.support.waiting import patience_s, result_of

USER, PASSWORD, TOKEN = "loader", "open sesame", "a-cluster-token"
LOOKING_USER = "anna"  # with the same password, and no right to load
HOST = "127.0.0.1"
LEASE_S = 2
_TIMEOUT_S = 30.0


class StreamLoadCluster(Closeable):
    """Each process can be killed and started again by its name: `endpoint-0`, `node-0`, …

    `metrics_urls`: where each shows what it does. With `certificates` the endpoints speak TLS only.
    """

    def __init__(
        self,
        folder: Path,
        ledger: str,
        password_file: Path | None = None,
        certificates: Certificates | None = None,
        *,
        publish_timeout_s: int = 3,
        settings: Mapping[str, str] = {},
        redirect: str = "none",
        host: str = HOST,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.host = host
        self._taken: set[int] = set()
        self._publish_timeout_s = publish_timeout_s
        self._env = {
            "RTOLAP_HOST": host,
            "RTOLAP_LEDGER": ledger,
            "RTOLAP_TOKEN_FILE": str(folder / "token"),
            "RTOLAP_USERS_FILE": str(folder / "users"),
            "RTOLAP_STREAM_LOAD_REDIRECT": redirect,
            **settings,
        }
        if password_file is not None:
            self._env["RTOLAP_LEDGER_PASSWORD_FILE"] = str(password_file)
        self._scheme, self._ca = "http", None
        if certificates is not None:
            self._scheme, self._ca = "https", certificates.authority
            self._env["RTOLAP_STREAM_LOAD_TLS_CERTIFICATE"] = str(certificates.certificate)
            self._env["RTOLAP_STREAM_LOAD_TLS_KEY"] = str(certificates.key)
            self._env["RTOLAP_STREAM_LOAD_CA"] = str(certificates.authority)
        self._tls = trust(self._ca)
        (folder / "token").write_text(TOKEN)
        hashed = password_hash(PASSWORD)
        (folder / "users").write_text(f"{USER}:{hashed}:load\n{LOOKING_USER}:{hashed}\n")
        self.processes: dict[str, ManagedProcess] = {}
        self.urls: list[str] = []
        self.body_urls: list[str] = []
        self.node_body_urls: list[str] = []
        self.metrics_urls: dict[str, str] = {}
        self.tables: StoredTablesClient
        self._storage = StorageClients(TOKEN)

    def start(self, *, endpoints: int, nodes: int, nodes_take_bodies: bool = False) -> None:
        """Start all of them, each ready; the nodes are known to the endpoints."""
        ports = [(self._port(), self._port()) for _ in range(endpoints)]
        self.urls = [self._url(port) for port, _ in ports]
        self.body_urls = [self._url(port) for _, port in ports]
        self._env["RTOLAP_STREAM_LOAD_ENDPOINTS"] = ",".join(self.urls)
        self.tables = StoredTablesClient(self.urls, TOKEN, ca=self._ca)
        for number, (port, body_port) in enumerate(ports):
            self._start_endpoint(f"endpoint-{number}", port, body_port)
        for number in range(nodes):
            node_body_port = self._port() if nodes_take_bodies else None
            if node_body_port is not None:
                self.node_body_urls.append(self._url(node_body_port))
            self._start_node(f"node-{number}", self._port(), node_body_port)

    def add_node(self, name: str) -> None:
        """Start one more storage node, known to the endpoints."""
        self._start_node(name, self._port(), None)

    def environment(self) -> dict[str, str]:
        """Return the environment of commands."""
        return {**os.environ, **self._env}

    def kill(self, name: str) -> None:
        """Kill a process as kill -9 does."""
        self.processes[name].kill()

    def restart(self, name: str) -> None:
        self.processes[name].start()

    def master(self) -> int:
        """Return the number of the endpoint that is master, once one is."""
        deadline_s = time.monotonic() + patience_s(_TIMEOUT_S)
        while time.monotonic() < deadline_s:
            for number, url in enumerate(self.urls):
                try:
                    if httpx.get(f"{url}/health", timeout=2, verify=self._tls).json()["master"]:
                        return number
                except httpx.HTTPError:
                    continue  # it is down
            time.sleep(0.05)
        raise AssertionError("no front end is master")

    def rows(self, name: TableName, columns: Collection[str] = ()) -> list[dict[str, Any]]:
        """Return all that is visible, in the order of the first column."""
        # Unavailable: the node of a tablet is away; the view names it until its lease is over.
        return result_of(
            lambda: self._read(name, tuple(columns)), Unavailable, timeout_s=_TIMEOUT_S, poll_s=0.1
        )

    def _read(self, name: TableName, columns: tuple[str, ...]) -> list[dict[str, Any]]:
        view = self.tables.read_view((name,))
        (table,) = view.tables
        batches: list[pa.RecordBatch] = []
        for part in table.partitions:
            for tablet in part.tablets:
                addresses = [view.nodes[node] for node in tablet.nodes if node in view.nodes]
                if not addresses:
                    raise Unavailable(f"nobody has {part.range.name}/{tablet.bucket}")
                tablet_id = TabletId(
                    table.table_id, name.db, name.name, part.range.name, tablet.bucket, part.incarnation
                )
                request = ScanRequest(tablet_id, table.schema, part.version, columns)
                batches += self._storage.at(addresses[0]).scan(request)
        rows = [row for batch in batches for row in batch.to_pylist()]
        return sorted(rows, key=lambda row: tuple((value is None, value) for value in row.values())[:1])

    def _start_endpoint(self, name: str, port: int, body_port: int) -> None:
        env = {
            "RTOLAP_STREAM_LOAD_PORT": str(port),
            "RTOLAP_STREAM_LOAD_BODY_PORT": str(body_port),
            "RTOLAP_DATA_DIR": str(self.folder / name / "data"),
        }
        url = self._url(port)
        self.metrics_urls[name] = f"{url}/metrics"
        timeouts = ("--lease-s", str(LEASE_S), "--publish-timeout-s", str(self._publish_timeout_s))
        arguments = ("stream-load", "serve", *timeouts)
        self._start(name, arguments, env, port, lambda _: http_missing(f"{url}/health", self._tls))

    def _start_node(self, name: str, port: int, body_port: int | None) -> None:
        env = {"RTOLAP_STORAGE_PORT": str(port), "RTOLAP_DATA_DIR": str(self.folder / name / "data")}
        if body_port is not None:
            env["RTOLAP_STORAGE_BODY_PORT"] = str(body_port)
        metrics_port = self._port()
        self.metrics_urls[name] = f"http://{host_port(self.host, metrics_port)}/metrics"
        arguments = (
            "storage",
            "serve",
            "--name",
            name,
            "--drain-s",
            "1",
            "--metrics-port",
            str(metrics_port),
        )

        def missing(started_s: float) -> str | None:
            said = "no endpoint answers"
            for url in self.urls:
                nodes_url = f"{url}/api/v1/storage-nodes"
                found = storage_missing(nodes_url, TOKEN, host_port(self.host, port), self._tls)
                if found is None:
                    return None
                said = found
            return said

        self._start(name, arguments, env, port, missing)

    def _start(
        self, name: str, arguments: tuple[str, ...], env: dict[str, str], port: int, ready: Any
    ) -> None:
        spec = ProcessSpec(
            name=name,
            folder=self.folder / name,
            argv=(sys.executable, "-m", "rtolap.cli.main", *arguments),
            address=host_port(self.host, port),
            ports=(port,),
            env={**self._env, **env, "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
            ready=ready,
        )
        self.processes[name] = ManagedProcess(spec)
        self.processes[name].start()

    def _url(self, port: int) -> str:
        """Return the URL of an endpoint."""
        return f"{self._scheme}://{host_port(self.host, port)}"

    def _port(self) -> int:
        port = free_port(self._taken)
        self._taken.add(port)
        return port

    def close(self) -> None:
        for process in self.processes.values():
            process.stop()
        self._storage.close()
