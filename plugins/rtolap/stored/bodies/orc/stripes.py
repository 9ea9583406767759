"""ORC bodies, unpacked in a process of their own that the system bounds: `worker`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator
from typing import IO

import pyarrow as pa

from rtolap.base.closeable import Closeable
from rtolap.base.errors import TooLarge, Unavailable
from rtolap.stored.bodies.orc.worker import DAMAGED
from rtolap.stored.bodies.settings import BodySettings

_SCHEMA_BYTES_MAX = 64 << 20
_TURNS = threading.BoundedSemaphore(4)  # bodies unpacked at once in a process: each may take its whole bound
_TURN_TIMEOUT_S = 60.0
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}


class OrcStripes(Closeable):
    """An ORC file that a process of its own reads; a context manager that ends the process.

    Read `schema`, then `batches`, once. Raises OSError for a file that is not ORC, TooLarge for a stripe that
    takes more memory than is allowed.
    """

    def __init__(self, spool: IO[bytes], settings: BodySettings) -> None:
        self._settings = settings
        if not _TURNS.acquire(timeout=_TURN_TIMEOUT_S):
            raise Unavailable("too many ORC bodies are being unpacked", action="send the load again later")
        try:
            self._start(spool)
        except BaseException:
            _TURNS.release()
            raise
        try:
            self.schema = self._schema()
        except BaseException:
            self.close()
            raise

    def _start(self, spool: IO[bytes]) -> None:
        settings = self._settings
        self._said = tempfile.TemporaryFile(prefix="rtolap-orc-")  # noqa: SIM115 - closed with the process
        limits = (settings.orc_memory_bytes_max, settings.record_bytes_max)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rtolap.stored.bodies.orc.worker", str(spool.fileno()), *map(str, limits)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            pass_fds=(spool.fileno(),),
            cwd="/",
            env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._has_turn = True

    def batches(self, names: Collection[str]) -> Iterator[pa.RecordBatch]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(list(names)).encode() + b"\n")
            process.stdin.close()
            with pa.ipc.open_stream(process.stdout) as reader:
                yield from reader
        except (OSError, pa.ArrowException):
            process.stdout.close()  # it may have more to say, to nobody
            self._check_end()  # it knows more than a torn stream shows
            raise
        self._check_end()  # a stream that ends between two messages looks whole

    def _schema(self) -> pa.Schema:
        stream = self._process.stdout
        assert stream is not None
        size = int.from_bytes(stream.read(8), "little")
        message = stream.read(size) if 0 < size <= _SCHEMA_BYTES_MAX else b""
        if not message or len(message) < size:
            if size > _SCHEMA_BYTES_MAX:
                self._process.kill()
            self._check_end()
            raise OSError("the schema of the file cannot be read")
        return pa.ipc.read_schema(pa.py_buffer(message))

    def _check_end(self) -> None:
        code = self._process.wait()
        if code == DAMAGED:
            self._said.seek(0)
            raise OSError(self._said.read(1000).decode(errors="replace").strip())
        if code:  # by its own word or by a signal: what it could not take ends it in many ways
            raise TooLarge(
                "an ORC body unpacks to too much",
                expected=f"stripes that take at most {self._settings.orc_memory_bytes_max} bytes of memory",
                action="write smaller stripes, or Parquet",
            )

    def close(self) -> None:
        """End the process and close its streams. A repetition is harmless."""
        self._process.kill()
        self._process.wait()
        if self._has_turn:
            self._has_turn = False
            _TURNS.release()
        for stream in (self._process.stdin, self._process.stdout, self._said):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    """Nobody needs the unsent rest any more."""
