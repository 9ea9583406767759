"""Claims of ports by the stacks of this user: two that start at the same moment do not choose the same.

    /tmp/rtolap-<uid>/lock         held while ports are chosen: a moment
    /tmp/rtolap-<uid>/ports.json   the claims

A port is only bound some seconds after it was chosen, and the receivers' first port perhaps never; until
then a claim keeps it. A claim holds as long as the command that made it runs, or any part of its stack: there
is nothing to clean up after a crash. Other users' stacks, and programs that know nothing of claims, are seen
once they listen.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from rtolap.base.errors import Refused
from rtolap.base.files import write_atomic
from rtolap.base.undecodable import decode_own
from rtolap.stack.layout import StackLayout
from rtolap.stack.pids import ProcessId, identify, is_same_process, read_record


class Claim(msgspec.Struct, frozen=True):
    """`root`: the stack's folder, absolute; `maker`: the `rtolap stack up` that chose the ports."""

    root: str
    ports: tuple[int, ...]
    maker: ProcessId


class PortClaims:
    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path("/tmp") / f"rtolap-{os.getuid()}"

    def choose(
        self, layout: StackLayout, choose: Callable[[Collection[int]], Mapping[str, int]]
    ) -> dict[str, int]:
        """`choose` is given the ports of other stacks; what it returns, by name, is claimed for this one."""
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
    if is_same_process(claim.maker.pid, claim.maker.started_s):
        return True
    records = (read_record(path) for path in StackLayout(Path(claim.root)).pid_files())
    return any(record and is_same_process(record.pid, record.started_s) for record in records)
