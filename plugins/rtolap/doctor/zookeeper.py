"""ZooKeeper: its servers, their versions, and whether the cluster's nodes are closed to others."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import closing

from rtolap.base.addresses import split_host_port
from rtolap.base.errors import Unavailable
from rtolap.base.settings import Settings
from rtolap.doctor.findings import Finding, Look, failed, ok, warning
from rtolap.metadata.cluster_store import open_zookeeper

_PORT = 2181
_ANSWER_S_MAX = 5.0
_ANSWER_BYTES_MAX = 65_536


def looks(settings: Settings) -> Iterator[Look]:
    """Give a look at each server, and one at the nodes below `zookeeper_root`."""
    for server in settings.zookeeper.split("/")[0].split(","):
        yield Look(f"ZooKeeper {server.strip()}", lambda server=server.strip(): look_at_server(server))  # type: ignore[misc]
    yield Look("records in ZooKeeper", lambda: _look_at_nodes(settings))


def look_at_server(server: str) -> Iterator[Finding]:
    """The server serves. Raises Unavailable where nobody answers.

    server: host:port.
    """
    subject = f"ZooKeeper {server}"
    answer = _four_letters(server, b"srvr")
    version = re.search(r"version: ([\d.]+)", answer)
    mode = re.search(r"Mode: (\w+)", answer)
    if version is None or mode is None:
        action = "add srvr to 4lw.commands.whitelist, or see its log"
        yield warning(subject, f"it does not say that it serves: {answer.strip()[:200] or 'nothing'}", action)
        return
    yield ok(subject, f"version {version[1]}, {mode[1]}")


def _four_letters(server: str, word: bytes) -> str:
    try:
        with socket.create_connection(split_host_port(server, _PORT), timeout=_ANSWER_S_MAX) as connection:
            connection.sendall(word)
            pieces = b""
            while len(pieces) < _ANSWER_BYTES_MAX and (piece := connection.recv(4096)):
                pieces += piece
    except (OSError, ValueError) as error:
        action = "see whether it runs; RTOLAP_ZOOKEEPER names the servers"
        raise Unavailable("it does not answer", found=str(error), action=action) from error
    return pieces.decode(errors="replace")


def _look_at_nodes(settings: Settings) -> Iterator[Finding]:
    subject = "records in ZooKeeper"
    with closing(open_zookeeper(settings)) as store:
        if not store.children(""):
            action = "start a coordinator, or see whether RTOLAP_ZOOKEEPER_ROOT is the cluster's"
            yield failed(subject, f"there are none below {settings.zookeeper_root}", action)
        elif store.is_open(""):
            action = "rtolap coordinator protect closes them"
            yield warning(subject, f"others may read or write {settings.zookeeper_root}", action)
        else:
            yield ok(subject, f"{settings.zookeeper_root} is closed to others")
