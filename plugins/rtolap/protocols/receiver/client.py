"""Arrow Flight client of a receiver: partial aggregates, stats and control. See `messages`.

Imports pyarrow; DAGs never load it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import flight

from rtolap.base.closeable import Closeable
from rtolap.base.decoding import decode_json
from rtolap.base.errors import Corrupted
from rtolap.protocols.flight.channel import FlightChannel, Headers
from rtolap.protocols.flight.client import FlightClients, next_batch
from rtolap.protocols.receiver.messages import ANSWER_KEY, PartialAnswer, PartialQuery, ReceiverStats

ACTION_TIMEOUT_S = 10.0
GRACE_S = 1.0  # the receiver gives up by itself at `timeout_ms`: its words are better than a broken call


class ReceiverClient(Closeable):
    """Thread-safe; connects on the first call. `address` is host:port, `ca` the PEM of a TLS authority.

    Raises Unavailable when the receiver cannot be reached or does not answer in time, Unauthorized for a
    wrong token, and whatever error of the tree the receiver names.
    """

    def __init__(self, address: str, token: str, *, ca: bytes | None = None) -> None:
        self.address = address
        self._channel = FlightChannel(f"receiver {address}", address, token, ca=ca)

    def query(
        self, query: PartialQuery, *, on_start: Callable[[Callable[[], None]], None] | None = None
    ) -> tuple[pa.Table, PartialAnswer]:
        """Return the partials and what they hold. `on_start` is given a function that cancels the call."""
        timeout_s = query.timeout_ms / 1000 + GRACE_S

        def ask(headers: Headers) -> tuple[pa.Table, PartialAnswer | None]:
            options = flight.FlightCallOptions(timeout=timeout_s, headers=headers)
            reader = self._channel.client.do_get(flight.Ticket(msgspec.json.encode(query)), options)
            if on_start is not None:
                on_start(reader.cancel)
            batches = list(iter(lambda: next_batch(reader), None))
            metadata = reader.schema.metadata or {}
            answer = None
            if ANSWER_KEY in metadata:
                answer = decode_json(metadata[ANSWER_KEY], PartialAnswer)
            return pa.Table.from_batches(batches, reader.schema).replace_schema_metadata(None), answer

        table, answer = self._channel.call("query", ask, within_s=timeout_s)
        if answer is None:
            raise Corrupted(f"receiver {self.address} answered without saying what its answer holds")
        return table, answer

    def stats(self) -> ReceiverStats:
        return decode_json(self.action("stats"), ReceiverStats)

    def action(self, name: str, body: Any = None) -> bytes:
        """Run a control action, and return its result as JSON bytes."""
        message = flight.Action(name, msgspec.json.encode({} if body is None else body))

        def act(headers: Headers) -> bytes:
            options = flight.FlightCallOptions(timeout=ACTION_TIMEOUT_S, headers=headers)
            results = list(self._channel.client.do_action(message, options))
            return bytes(results[0].body) if results else b"{}"

        return self._channel.call(name, act, within_s=ACTION_TIMEOUT_S)

    def ping(self, within_s: float) -> None:
        """Raise Unavailable when it does not answer even this in time."""
        self._channel.answers(within_s)

    def close(self) -> None:
        self._channel.close()


class ReceiverClients(FlightClients[ReceiverClient]):
    """Clients of receivers by address. Thread-safe."""

    def __init__(self, token: str, *, ca: bytes | None = None) -> None:
        super().__init__(lambda address: ReceiverClient(address, token, ca=ca))
