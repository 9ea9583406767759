"""Rejected rows and why, one file for each load that has any. A client that knows its name may read it.

    Reason: <why>. src line [<the row as it came>];

A file holds what comes first, up to a limit, and then how many more there were. Files stay for a time, and
the oldest go before it when all together take too much room.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from rtolap.base.errors import NotFound, Unavailable

log = logging.getLogger(__name__)

FILE_BYTES_MAX = 1 << 20
ROW_CHARS_MAX = 4096
ALL_BYTES_MAX = 1 << 30
KEEP_S = 48 * 3600.0
_NAME = re.compile(r"[A-Za-z0-9_-]{32}\Z")


class ErrorFile:
    """The error file of one load; made with its first row. Not thread-safe. Raises Unavailable when it cannot
    be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None
        self._bytes = 0
        self._left_out = 0
        self.name: str | None = None
        self.first: str = ""

    @property
    def full(self) -> bool:
        return self._bytes >= FILE_BYTES_MAX

    def write_rows(self, rows: Iterable[tuple[str, str]], count: int) -> None:
        """Write rows, each as it came and with its reason; they may be only the first of `count`."""
        lines: list[bytes] = []
        for text, reason in rows:
            self.first = self.first or reason
            if self.full:
                break
            shown = text if len(text) <= ROW_CHARS_MAX else f"{text[:ROW_CHARS_MAX]}…"
            lines.append(f"Reason: {reason}. src line [{shown}]; \n".encode("utf-8", "surrogateescape"))
            self._bytes += len(lines[-1])
        self._left_out += count - len(lines)
        if lines:
            self._write(b"".join(lines))

    def close(self) -> None:
        """Close the file. Never raises: a load does not depend on the last line of its error file."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            with file:
                if self._left_out:
                    file.write(b"%d more rows were rejected and are not shown here.\n" % self._left_out)
        except OSError as error:
            log.warning("the end of error file %s is lost: %s", self.name, error)

    def _write(self, lines: bytes) -> None:
        try:
            if self._file is None:
                name = secrets.token_urlsafe(24)
                self._folder.mkdir(parents=True, exist_ok=True)
                self._file = open(self._folder / name, "xb")  # noqa: SIM115 – closed by `close`
                self.name = name
            self._file.write(lines)
            self._file.flush()  # a full disk shows here, where it can be reported
        except OSError as error:
            raise Unavailable("rejected rows cannot be kept", found=error.strerror) from error


class ErrorFiles:
    """The files of one front end. `base_url`: where `/api/_load_error_log` of this front end is reached."""

    def __init__(
        self, folder: Path, base_url: str, *, keep_s: float = KEEP_S, bytes_max: int = ALL_BYTES_MAX
    ) -> None:
        self._folder = folder
        self._base_url = base_url
        self._keep_s = keep_s
        self._bytes_max = bytes_max

    def new(self) -> ErrorFile:
        return ErrorFile(self._folder)

    def url(self, name: str) -> str:
        return f"{self._base_url}/api/_load_error_log?file={name}"

    def path(self, name: str) -> Path:
        """Return the path of an error file. Raises NotFound, with the same words for an unknown name and for
        a file that is gone."""
        path = self._folder / name
        if not _NAME.match(name) or not path.is_file():
            raise NotFound("there is no such error file", action="they are kept for a limited time")
        return path

    def sweep(self) -> int:
        """Delete what has had its time, and the oldest of what is too much; the number of files."""
        if not self._folder.is_dir():
            return 0
        files = sorted(_looked_at(self._folder.iterdir()))
        too_much = sum(size for _, size, _ in files) - self._bytes_max
        retained_from_s = time.time() - self._keep_s
        gone = 0
        for modified_s, size, path in files:
            if modified_s >= retained_from_s and too_much <= 0:
                break
            path.unlink(missing_ok=True)
            too_much -= size
            gone += 1
        return gone


def _looked_at(paths: Iterable[Path]) -> Iterator[tuple[float, int, Path]]:
    """Yield when each file was written to, its size and its path, for those that still exist."""
    for path in paths:
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        yield status.st_mtime, status.st_size, path
