"""Arrow Flight client of a receiver: partial aggregates, stats and control. See `messages`.

Imports pyarrow; DAGs never load it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from rtolap.base.closeable import Closeable
from rtolap.base.errors import Corrupted
from rtolap.protocols.flight.client import FlightClients, answers, named, open_channel
from rtolap.protocols.receiver.messages import ANSWER_KEY, PartialAnswer, PartialQuery, ReceiverStats

T = TypeVar("T")
ACTION_TIMEOUT_S = 10.0
GRACE_S = 1.0  # the receiver gives up by itself at `timeout_ms`: its words are better than a broken call


class ReceiverClient(Closeable):
    """Thread-safe; connects on the first call. `address` is host:port, `ca` the PEM of a TLS authority.

    Raises Unavailable when the receiver cannot be reached or does not answer in time, Unauthorized for a
    wrong token, and whatever error of the tree the receiver names.
    """

    def __init__(self, address: str, token: str, *, ca: bytes | None = None) -> None:
        self.address = address
        self._headers: Any = [(b"authorization", f"Bearer {token}".encode())]
        self._client = open_channel(address, ca)

    def query(
        self, query: PartialQuery, *, on_start: Callable[[Callable[[], None]], None] | None = None
    ) -> tuple[pa.Table, PartialAnswer]:
        """The partials and what they hold. `on_start` is given a function that cancels the call."""
        options = self._options(query.timeout_ms / 1000 + GRACE_S)

        def ask() -> tuple[pa.Table, PartialAnswer]:
            reader = self._client.do_get(flight.Ticket(msgspec.json.encode(query)), options)
            if on_start is not None:
                on_start(reader.cancel)
            batches = list(iter(lambda: _next_batch(reader), None))
            metadata = reader.schema.metadata or {}
            if ANSWER_KEY not in metadata:
                raise Corrupted(f"receiver {self.address} answered without saying what its answer holds")
            answer = msgspec.json.decode(metadata[ANSWER_KEY], type=PartialAnswer)
            return pa.Table.from_batches(batches, reader.schema).replace_schema_metadata(None), answer

        return self._translate("query", ask)

    def stats(self) -> ReceiverStats:
        return msgspec.json.decode(self.action("stats"), type=ReceiverStats)

    def action(self, name: str, body: Any = None) -> bytes:
        """A control action; its result as JSON bytes."""
        message = flight.Action(name, msgspec.json.encode({} if body is None else body))

        def act() -> bytes:
            results = list(self._client.do_action(message, self._options(ACTION_TIMEOUT_S)))
            return bytes(results[0].body) if results else b"{}"

        return self._translate(name, act)

    def ping(self, within_s: float) -> None:
        """Raises Unavailable when it does not answer even this in time."""
        self._translate("a ping", lambda: answers(self._client, self._headers, within_s))

    def close(self) -> None:
        self._client.close()

    def _options(self, timeout_s: float) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=timeout_s, headers=self._headers)

    def _translate(self, operation: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise named(f"receiver {self.address}", operation, error) from error


def _next_batch(reader: Any) -> pa.RecordBatch | None:
    """None at the end. Not `read_all`: when that is cancelled, from whatever thread, pyarrow interrupts the
    main thread as Ctrl-C does (`SignalStopHandler.__exit__`), which ends a service."""
    try:
        return reader.read_chunk().data
    except StopIteration:
        return None


class ReceiverClients(FlightClients[ReceiverClient]):
    """One client an address. Thread-safe."""

    def __init__(self, token: str, *, ca: bytes | None = None) -> None:
        super().__init__(lambda address: ReceiverClient(address, token, ca=ca))
