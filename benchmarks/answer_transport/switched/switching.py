"""Has a receiver answer over HTTP too, and the query service ask it there.

A receiver writes the port of its HTTP endpoint into a file that is named after its Flight port. The query
service takes the client that the folder's file `way` names.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa
from rtolap.base.metrics import Metrics
from rtolap.cubes.receiver.flight import Desk, ReceiverFlightServer
from rtolap.protocols.receiver.client import ReceiverClient
from rtolap.protocols.receiver.messages import PartialAnswer, PartialQuery
from rtolap.servers.flight_server import ServerOptions

from benchmarks.answer_transport.clients import HttpxAnswers, PlainHttpAnswers
from benchmarks.answer_transport.endpoint import AnswerEndpoint

Client = HttpxAnswers | PlainHttpAnswers
WAYS: dict[str, Callable[[str, str], Client]] = {"httpx": HttpxAnswers, "http.client": PlainHttpAnswers}

clients: dict[str, Client] = {}  # of this process, by the receiver's Flight address
_lock = threading.Lock()


def begin(name: str) -> None:
    """Switch the receiver or the query service of this process. `name`: of the folder."""
    folder = Path(name)
    begin_flight, begin_client = ReceiverFlightServer.__init__, ReceiverClient.__init__

    def begin_both(self: ReceiverFlightServer, desk: Desk, **options: Unpack[ServerOptions]) -> None:
        begin_flight(self, desk, **options)
        host, token = options["host"], options["token"]
        endpoint = AnswerEndpoint(
            desk.query, lambda request: iter(()), host=host, token=token, metrics=Metrics("receiver")
        )
        (folder / str(self.port)).write_text(str(endpoint.port))

    def note_token(self: ReceiverClient, address: str, token: str, **options: Any) -> None:
        begin_client(self, address, token, **options)
        self.token = token  # type: ignore[attr-defined]

    def query(
        self: ReceiverClient, query: PartialQuery, *, on_start: object = None
    ) -> tuple[pa.Table, PartialAnswer]:
        with _lock:
            client = clients.get(self.address)
            if client is None:
                host, _, port = self.address.rpartition(":")
                connect = WAYS[(folder / "way").read_text()]
                address = f"{host}:{(folder / port).read_text()}"
                client = clients[self.address] = connect(address, self.token)  # type: ignore[attr-defined]
        return client.partials(query)

    ReceiverFlightServer.__init__ = begin_both  # type: ignore[method-assign]
    ReceiverClient.__init__ = note_token  # type: ignore[method-assign]
    ReceiverClient.query = query  # type: ignore[method-assign]
