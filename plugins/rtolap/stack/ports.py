"""Ports on loopback: which are free, which stacks of this user claim them, and who listens on them.

    /tmp/rtolap-<uid>/lock         held while ports are chosen: a moment
    /tmp/rtolap-<uid>/ports.json   the claims

Two stacks that start at the same moment do not choose the same ports. A port is only bound some seconds after
it was chosen, and the receivers' first port perhaps never; until then a claim keeps it. A claim holds as long
as the command that made it runs, or any part of its stack: there is nothing to clean up after a crash. Other
users' stacks, and programs that know nothing of claims, are seen once they listen.

A response counts only when it is our own process that gave it: `foreign_listener`, `require_free`.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil

from rtolap.base.errors import ProcessFailed, Refused
from rtolap.base.files import write_atomic
from rtolap.base.undecodable import decode_own
from rtolap.stack.layout import StackLayout
from rtolap.stack.pids import PidRecord, ProcessId, identify, is_same_process, read_record, session_members

HOST = "127.0.0.1"  # where all of a stack listens
# Below the range that Linux gives to outgoing connections (32768 and up), so that a server which is
# restarted on its port does not find it taken by a client socket.
_FIRST, _LAST = 15_000, 32_000
_TRIES = 1_000
_POLL_S = 0.05
_FREE_TIMEOUT_S = 5.0  # a predecessor's socket may need a moment to close


def is_free(port: int) -> bool:
    """Return True if a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port(taken: Collection[int] = ()) -> int:
    """Return a port on which nothing listens, not among `taken`."""
    source = random.SystemRandom()
    for _ in range(_TRIES):
        port = source.randrange(_FIRST, _LAST)
        if port not in taken and is_free(port):
            return port
    raise OSError(f"no free port found between {_FIRST} and {_LAST} in {_TRIES} tries")


def choose_port(preferred: int, taken: Collection[int] = ()) -> int:
    """Return the preferred port when it is free, another free one otherwise."""
    if preferred not in taken and is_free(preferred):
        return preferred
    return free_port(taken)


def choose_ports(preferred: Mapping[str, int], taken: Collection[int]) -> dict[str, int]:
    """Return a port for each name: its preferred port where it is free and nobody else's, another one
    otherwise."""
    chosen: dict[str, int] = {}
    for name, port in preferred.items():
        chosen[name] = choose_port(port, {*taken, *chosen.values()})
    return chosen


class Claim(msgspec.Struct, frozen=True):
    """A claim of ports.

    Attributes:
        root: the stack's folder, absolute.
        maker: the `rtolap stack up` that chose the ports.
    """

    root: str
    ports: tuple[int, ...]
    maker: ProcessId


class PortClaims:
    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path("/tmp") / f"rtolap-{os.getuid()}"

    def choose(
        self, layout: StackLayout, choose: Callable[[Collection[int]], Mapping[str, int]]
    ) -> dict[str, int]:
        """Claim the ports that `choose` returns by name. It is given the ports of other stacks."""
        with self._locked():
            others = [claim for claim in self._load() if claim.root != str(layout.root) and _holds(claim)]
            ports = dict(choose({port for claim in others for port in claim.ports}))
            mine = Claim(str(layout.root), tuple(ports.values()), identify(os.getpid()))
            self._save([*others, mine])
            return ports

    def _load(self) -> list[Claim]:
        path = self._folder / "ports.json"
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return []
        return decode_own(data, list[Claim], f"{path} cannot be read", action="remove it when no stack runs")

    def _save(self, claims: list[Claim]) -> None:
        write_atomic(self._folder / "ports.json", msgspec.json.encode(claims), mode=0o600)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        found = self._folder.lstat()  # the parent folder is everybody's: take no other user's, and no link
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise Refused(
                f"{self._folder} cannot hold the claims on ports",
                expected="a folder that only this user can write",
                found=f"{stat.filemode(found.st_mode)} of uid {found.st_uid}",
                action="remove it",
            )
        with open(self._folder / "lock", "a", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _holds(claim: Claim) -> bool:
    if is_same_process(claim.maker):
        return True
    records = (read_record(path) for path in StackLayout(Path(claim.root)).pid_files())
    return any(record and is_same_process(record) for record in records)


def foreign_listener(ports: Collection[int], record: PidRecord | None) -> str | None:
    """Return None when every port is listened on by the recorded process, its session or its descendants.

    Otherwise who has the first of those that are not, in words. `record` None: it is nobody's.
    """
    ours = {port for pid in _family(record) for port in _listened_by(pid)} if record else set()
    for port in ports:
        if port not in ours:
            return f"port {port} belongs to {holder(port)}"
    return None


def require_free(ports: Collection[int], name: str) -> None:
    """Raise ProcessFailed with the holder of a port that stays taken.

    It may have been taken since it was chosen, and the other's answers must not pass for ours.
    """
    deadline = time.monotonic() + _FREE_TIMEOUT_S
    for port in ports:
        while not is_free(port):
            if time.monotonic() > deadline:
                raise ProcessFailed(
                    f"{name} cannot have its port",
                    expected=f"port {port} free",
                    found=f"it belongs to {holder(port)}",
                    action="end that process; or stop the stack and start it again, on another port",
                )
            time.sleep(_POLL_S)


def holder(port: int) -> str:
    """Return who listens on the port, as far as this user may see it."""
    for connection in psutil.net_connections("tcp"):
        if _listening_port(connection) == port:
            if connection.pid is None:
                return "another user's process"
            try:
                return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
            except psutil.NoSuchProcess:
                return f"process {connection.pid}, which has just ended"
    return "nobody"


def _family(record: PidRecord) -> Iterator[int]:
    yield from session_members(record)
    try:
        for child in psutil.Process(record.pid).children(recursive=True):
            yield child.pid
    except psutil.NoSuchProcess:
        return


def _listened_by(pid: int) -> set[int]:
    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return set()  # it has just ended, or dropped its rights: then it is not seen to listen
    return {port for connection in connections if (port := _listening_port(connection))}


def _listening_port(connection: Any) -> int | None:
    if connection.status != psutil.CONN_LISTEN:
        return None
    port: int = connection.laddr.port
    return port
