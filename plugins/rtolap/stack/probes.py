"""Probes of whether a service responds: by a message of its own protocol, not just an open port."""

from __future__ import annotations

import datetime
import socket
import ssl
from pathlib import Path
from typing import Any

import httpx

from rtolap.base.addresses import host_port

AIRFLOW_HEALTH = "/api/v2/monitor/health"
_TIMEOUT_S = 3.0
# httpx makes one for each call otherwise, for plain HTTP too: 18 ms of work, many times a second, while the
# parts need both cores to start.
_TLS = ssl.create_default_context()
_HTTP2_SETTINGS, _HTTP2_HEAD_BYTES = 4, 9
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, _HTTP2_SETTINGS, 0, 0, 0, 0, 0))
_AIRFLOW_HEARTBEAT = {
    "scheduler": "latest_scheduler_heartbeat",
    "triggerer": "latest_triggerer_heartbeat",
    "dag_processor": "latest_dag_processor_heartbeat",
}


def http_missing(url: str, tls: ssl.SSLContext = _TLS) -> str | None:
    """Return None when GET answers 200."""
    try:
        answer = _get(url, tls=tls)
    except httpx.HTTPError as error:
        return f"GET {url}: {error or type(error).__name__}"
    return None if answer.status_code == httpx.codes.OK else f"GET {url}: {answer.status_code}"


def http2_missing(host: str, port: int) -> str | None:
    """Return None when the server opens HTTP/2, as one of grpc does before it asks for a token."""
    where = f"HTTP/2 on {host_port(host, port)}"
    try:
        with socket.create_connection((host, port), timeout=_TIMEOUT_S) as connection:
            connection.sendall(_HTTP2_PREFACE)
            head = connection.recv(_HTTP2_HEAD_BYTES, socket.MSG_WAITALL)
    except OSError as error:
        return f"{where}: {error}"
    is_settings = len(head) == _HTTP2_HEAD_BYTES and head[3] == _HTTP2_SETTINGS
    return None if is_settings else f"{where} does not open with its settings"


def mysql_missing(host: str, port: int) -> str | None:
    """Return None when the server greets with a protocol version 10 handshake."""
    where = f"MySQL protocol on {host_port(host, port)}"
    try:
        with socket.create_connection((host, port), timeout=_TIMEOUT_S) as connection:
            return _no_greeting(connection, where)
    except OSError as error:
        return f"{where}: {error}"


def mysql_socket_missing(path: Path) -> str | None:
    """Do as `mysql_missing`, on a socket file, where a server greets everybody who may reach it: over TCP it
    greets nobody before it has users for the address."""
    where = f"MySQL protocol on {path}"
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.connect(str(path))
            return _no_greeting(connection, where)
    except OSError as error:
        return f"{where}: {error}"


def _no_greeting(connection: socket.socket, where: str) -> str | None:
    greeting = b""
    while len(greeting) < 5:  # a server may send the packet's four bytes of header by themselves
        piece = connection.recv(5 - len(greeting))
        if not piece:
            break
        greeting += piece
    return None if greeting[4:5] == b"\x0a" else f"{where}: no greeting"


def exchange(address: tuple[str, int], request: bytes, answer_bytes: int) -> bytes:
    """Send a request on a socket; return the answer once it has at least `answer_bytes` bytes. Raises
    OSError.
    """
    with socket.create_connection(address, timeout=_TIMEOUT_S) as connection:
        connection.sendall(request)
        answer = b""
        while len(answer) < answer_bytes:
            piece = connection.recv(4096)
            if not piece:
                raise ConnectionAbortedError("it closed the connection")
            answer += piece
    return answer


def airflow_missing(api_url: str, part: str, started_s: float) -> str | None:
    """Return None when the part has sent a heartbeat since its start.

    Airflow calls a part healthy for half a minute after its last heartbeat, so a status left by the process
    before is distinguished from this one's by time.
    """
    url = f"{api_url}{AIRFLOW_HEALTH}"
    try:
        answer = _get(url)
        health: dict[str, Any] = answer.raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        return f"GET {url}: {error or type(error).__name__}"
    if part == "metadatabase":
        status = health["metadatabase"]["status"]
        return None if status == "healthy" else f"metadata database: {status}"
    heartbeat = health[part].get(_AIRFLOW_HEARTBEAT[part])
    if heartbeat is None or datetime.datetime.fromisoformat(heartbeat).timestamp() < started_s:
        return f"{part}: no heartbeat yet"
    status = health[part]["status"]
    return None if status == "healthy" else f"{part}: {status}"


def storage_missing(nodes_url: str, token: str, address: str, tls: ssl.SSLContext = _TLS) -> str | None:
    """Return None when the endpoint at `nodes_url` has had a heartbeat of the storage node at `address`,
    host:port.
    """
    try:
        answer = _get(nodes_url, {"Authorization": f"Bearer {token}"}, tls)
        nodes: list[dict[str, Any]] = answer.raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        return f"GET {nodes_url}: {error or type(error).__name__}"
    if any(node["address"] == address and node["alive"] for node in nodes):
        return None
    return f"storage node at {address}: no heartbeat yet"


def _get(url: str, headers: dict[str, str] | None = None, tls: ssl.SSLContext = _TLS) -> httpx.Response:
    return httpx.get(
        url, headers=headers, timeout=_TIMEOUT_S, follow_redirects=False, trust_env=False, verify=tls
    )
