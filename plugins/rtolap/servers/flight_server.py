"""The base of every Flight server of the product: the cluster's token, named errors, metrics, the shutdown.

Its port belongs to a guard, itself it has a Unix socket. See `servers.flight_guard.relay` for what the guard
lets through. The socket is in a folder that only this user can enter; what a process that was killed has left
of such folders, the next one removes.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hmac
import json
import logging
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict, TypeVar, Unpack

from pyarrow import flight

from rtolap.base.addresses import host_port
from rtolap.base.decoding import decode_json
from rtolap.base.errors import QueryError, RtolapError, Unauthorized
from rtolap.base.ids import HEADER, bound, ids, received
from rtolap.base.metrics import Metrics
from rtolap.base.mutual_proof import ANSWER_HEADER, CALL, ServerSessions
from rtolap.base.spans import TRACEPARENT, served
from rtolap.base.undecodable import UNDECODABLE
from rtolap.protocols.flight.client import ERROR_MARK, named
from rtolap.servers.flight_guard.relay import FlightRelay
from rtolap.servers.limits import FlightLimits
from rtolap.servers.listening import listening_sockets

log = logging.getLogger(__name__)

T = TypeVar("T")

DRAIN_S = 10.0
SOCKET = "s"
_FOLDERS = "rtolap-flight-"
_MAKING_S = 60.0  # from a folder to its lock is a moment
_CALL = "call"
_ANSWERING = frozenset({"do_get", "do_put", "do_exchange", "do_action"})
_PATH_BYTES_MAX = 100  # of a Unix socket: the system takes 107


class ServerOptions(TypedDict):
    """The address and the limits of a Flight server.

    Attributes:
        host: the address on which it listens.
        announced_host: the address at which clients call it, which it proves to be; else `host`.
        metrics: counts its calls, and what is refused.
    """

    host: str
    announced_host: NotRequired[str]
    port: int
    token: str
    metrics: Metrics
    limits: NotRequired[FlightLimits]


class GuardedFlightServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves as soon as it is made; `port` is the one that it got, and `address` what clients call.

    Raises Unavailable where the port cannot be had.
    """

    def __init__(self, **options: Unpack[ServerOptions]) -> None:
        token, metrics = options["token"], options["metrics"]
        listening = listening_sockets("Flight", options["host"], options["port"])
        self._port: int = listening[0].getsockname()[1]
        self.address = host_port(options.get("announced_host", options["host"]), self._port)
        sessions = ServerSessions(token, self.address)
        with contextlib.ExitStack() as undo:
            for sock in listening:
                undo.callback(sock.close)
            self._folder = _PrivateFolder()
            undo.callback(self._folder.close)
            path = self._folder.path / SOCKET
            super().__init__(
                f"grpc+unix://{path}",
                auth_handler=None,
                middleware={_CALL: CallFactory(token, sessions, metrics)},
            )
            undo.callback(super().shutdown)
            self._relay = FlightRelay(
                listening,
                str(path),
                token=token,
                limits=options.get("limits", FlightLimits()),
                metrics=metrics,
                error_text=error_text,
                sessions=sessions,
            )
            undo.pop_all()

    def __init_subclass__(cls, **more: Any) -> None:
        """Have the methods that answer calls work for the ids of their callers."""
        super().__init_subclass__(**more)
        for name in _ANSWERING & vars(cls).keys():
            setattr(cls, name, _with_ids(name, getattr(cls, name)))

    @property
    def port(self) -> int:
        return self._port

    def shutdown(self) -> None:
        """Take no connection and no call any more, and wait for the calls under way."""
        self._relay.stop_accepting()
        super().shutdown()
        self._relay.close()
        self._folder.close()


class _PrivateFolder:
    """A folder of this user alone, locked as long as this process lives."""

    def __init__(self) -> None:
        parent = Path(tempfile.gettempdir())
        if len(os.fsencode(parent)) + len(_FOLDERS) + 20 > _PATH_BYTES_MAX:
            parent = Path("/tmp")
        _remove_left(parent)
        self.path = Path(tempfile.mkdtemp(prefix=_FOLDERS, dir=parent))
        self._lock: int | None = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def _remove_left(parent: Path) -> None:
    """Remove folders of processes that have ended. A folder that is being made, and is not locked yet, is
    left alone: it has no socket, as one whose process was killed while it ended, and is young."""
    for left in parent.glob(f"{_FOLDERS}*"):
        with contextlib.suppress(OSError):
            about = left.lstat()
            if about.st_uid != os.getuid() or not stat.S_ISDIR(about.st_mode):
                continue
            if not (left / SOCKET).exists() and 0 <= time.time() - about.st_mtime < _MAKING_S:
                continue
            lock = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(lock)


class CallFactory(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Looks at every call before its method does, and when it has ended.

    A call without the cluster's token or a session is refused before anything else is looked at; it is not
    counted. The answers of a session prove the server. The others are counted with their time, until their
    last message: `rtolap_<service>_flight_call_seconds{method, outcome}`. `method` is do_get, do_put,
    do_action, …; `outcome` is ok, or the code of the error that the peer received.

    It is one for all of that: each middleware is entered three times a call, and every time it waits for the
    interpreter.
    """

    def __init__(self, token: str, sessions: ServerSessions, metrics: Metrics) -> None:
        self._expected = f"Bearer {token}".encode()
        self._sessions = sessions
        self._seconds = metrics.histogram("flight_call_seconds")

    def start_call(self, info: Any, headers: dict[str, list[str] | list[bytes]]) -> _Call:
        sent = _first(headers, "authorization").encode()
        try:
            if sent.startswith(CALL):
                return _Call(self, info.method.name.lower(), headers, self._sessions.answer(sent))
            if hmac.compare_digest(sent, self._expected):
                return _Call(self, info.method.name.lower(), headers, None)
        except Unauthorized as error:
            raise flight.FlightUnauthenticatedError(error_text(error)) from error
        raise flight.FlightUnauthenticatedError(error_text(Unauthorized("the token is missing or wrong")))

    def ended(self, method: str, error: Exception | None, took_s: float) -> None:
        outcome = "ok" if error is None else named("the service", method, error).code
        self._seconds.labels(method, outcome).observe(took_s)


class _Call(flight.ServerMiddleware):  # type: ignore[misc]
    """One call. `headers` are those by which it is told apart: gRPC gives its method another context."""

    def __init__(
        self, calls: CallFactory, method: str, headers: Mapping[str, Sequence[str | bytes]], proof: str | None
    ) -> None:
        self.headers = {name: _first(headers, name) for name in (HEADER, TRACEPARENT)}
        self._calls = calls
        self._method = method
        self._proof = proof
        self._began_s = time.perf_counter()

    def sending_headers(self) -> dict[str, str]:
        return {} if self._proof is None else {ANSWER_HEADER: self._proof}

    def call_completed(self, exception: Exception | None) -> None:
        self._calls.ended(self._method, exception, time.perf_counter() - self._began_s)


def _first(headers: Mapping[str, Sequence[str | bytes]], name: str) -> str:
    """Return the first value of a header; "" without one. HTTP/2 has names in small letters alone."""
    value = next(iter(headers.get(name, ())), "")
    return value if isinstance(value, str) else value.decode("latin-1")


def shut_down(server: flight.FlightServerBase, within_s: float = DRAIN_S) -> bool:
    """Take no call any more, and wait for those under way. False when some are still open then.

    Arrow breaks no call off, and its server waits for the last one at the interpreter's end too: a process
    for which this is False has to end without that (`cli.output.end_now`).
    """
    waiting = threading.Thread(target=server.shutdown, name="flight-shutdown", daemon=True)
    waiting.start()
    waiting.join(within_s)
    if waiting.is_alive():
        log.warning("calls that are still open after %g s are given up", within_s)
    return not waiting.is_alive()


def body_of(data: bytes, kind: type[T]) -> T:
    try:
        return decode_json(data, kind)
    except UNDECODABLE as error:
        kind_name = getattr(kind, "__name__", str(kind)).lstrip("_")
        raise QueryError(f"the request is not a {kind_name}", found=str(error)) from error


def guarded(call: Callable[[], T]) -> T:
    """Make the call. Errors cross the wire as the JSON that `base.errors.from_dict` reads."""
    try:
        return call()
    except RtolapError as error:
        raise flight.FlightServerError(error_text(error)) from error
    except Exception as error:
        log.exception("a request failed")
        raise flight.FlightServerError(error_text(RtolapError(f"{type(error).__name__}: {error}"))) from error


def guarded_batches(batches: Iterator[T]) -> Iterator[T]:
    """Return the same, for what is computed while it is sent, under the ids of who begins it."""
    return _guarded_batches(batches, dict(ids()))


def _guarded_batches(batches: Iterator[T], given: Mapping[str, str]) -> Iterator[T]:
    while True:
        try:
            with bound(given):
                batch = guarded(lambda: next(batches, None))
        except BaseException:
            getattr(batches, "close", lambda: None)()
            raise
        if batch is None:
            return
        yield batch


def error_text(error: RtolapError) -> str:
    """Return an error as `client.named` reads it."""
    return ERROR_MARK + json.dumps(error.to_dict())


def _with_ids(name: str, answer: Callable[..., T]) -> Callable[..., T]:
    @functools.wraps(answer)
    def answered(self: Any, context: Any, *call: Any) -> T:
        found = context.get_middleware(_CALL)
        headers: Mapping[str, str] = {} if found is None else found.headers
        began_s = time.perf_counter()
        with bound(received(headers.get(HEADER, ""))), served(name, headers.get):
            try:
                return answer(self, context, *call)
            finally:
                if log.isEnabledFor(logging.DEBUG):
                    log.debug("%s took %.1f ms", name, (time.perf_counter() - began_s) * 1000)

    return answered
