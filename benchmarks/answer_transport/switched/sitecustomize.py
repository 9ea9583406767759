"""Has a receiver answer over HTTP too, and the query service ask it there, where RTOLAP_BENCH_ANSWERS names a
folder.

Python imports a module of this name at start. `benchmarks.freshness --answers` puts this folder on the path
of its services. A receiver writes the port of its HTTP endpoint into a file that is named after its Flight
port. The query service takes the client that the folder's file `way` names.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Unpack

FOLDER_VARIABLE = "RTOLAP_BENCH_ANSWERS"
FOLDER = Path(os.environ.get(FOLDER_VARIABLE, ""))

if FOLDER_VARIABLE in os.environ and {"receiver", "query"} & set(sys.orig_argv):
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

    _begin_flight = ReceiverFlightServer.__init__
    _begin_client = ReceiverClient.__init__
    _clients: dict[str, Client] = {}
    _lock = threading.Lock()

    def _begin_both(self: ReceiverFlightServer, desk: Desk, **options: Unpack[ServerOptions]) -> None:
        _begin_flight(self, desk, **options)
        host, token = options["host"], options["token"]
        endpoint = AnswerEndpoint(
            desk.query, lambda request: iter(()), host=host, token=token, metrics=Metrics("bench_http")
        )
        (FOLDER / str(self.port)).write_text(str(endpoint.port))

    def _note_token(self: ReceiverClient, address: str, token: str, **options: Any) -> None:
        _begin_client(self, address, token, **options)
        self.token = token  # type: ignore[attr-defined]

    def _query(
        self: ReceiverClient, query: PartialQuery, *, on_start: object = None
    ) -> tuple[pa.Table, PartialAnswer]:
        with _lock:
            client = _clients.get(self.address)
            if client is None:
                host, _, port = self.address.rpartition(":")
                connect = WAYS[(FOLDER / "way").read_text()]
                address = f"{host}:{(FOLDER / port).read_text()}"
                client = _clients[self.address] = connect(address, self.token)  # type: ignore[attr-defined]
        return client.partials(query)

    ReceiverFlightServer.__init__ = _begin_both  # type: ignore[method-assign]
    ReceiverClient.__init__ = _note_token  # type: ignore[method-assign]
    ReceiverClient.query = _query  # type: ignore[method-assign]
