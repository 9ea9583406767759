"""The answering process: a receiver's Flight server, a node's and the HTTP endpoint, over equal tables."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import msgspec
import numpy as np
import psutil
import pyarrow as pa
from pyarrow import flight
from rtolap.base.addresses import host_port
from rtolap.base.errors import NotFound
from rtolap.base.metrics import Metrics
from rtolap.cli.serving import switch_often
from rtolap.cubes.receiver.flight import ReceiverFlightServer
from rtolap.protocols.receiver.messages import ANSWER_KEY, HistorySnapshot, PartialAnswer, PartialQuery
from rtolap.protocols.storage.messages import CopyRequest, TabletId
from rtolap.servers.flight_server import GuardedFlightServer, body_of, guarded, guarded_batches

from benchmarks.answer_transport.clients import Answers, FlightAnswers, HttpxAnswers, PlainHttpAnswers
from benchmarks.answer_transport.endpoint import AnswerEndpoint
from tests.support.runs.loopback import LOOPBACK

HOST, TOKEN = LOOPBACK, "bench"
SMALL, LARGE = "small", "large"
BATCH_ROWS = 32_768
HELD = PartialAnswer("r0", {partition: 1_000_000 + partition for partition in range(4)}, ("20260101T0000",))
WHOLE_TABLET = CopyRequest(TabletId(1, "db", "t", "", 0), after=0)


def answer_rows(rows: int, seed: int) -> pa.Table:
    """Return partial aggregates as a receiver answers them, in one batch, with its word on what they hold."""
    dice = np.random.default_rng(seed)
    columns = {
        "page": pa.array([f"/page/{number:06d}" for number in dice.integers(0, 1_000_000, rows)]),
        "__rows": pa.array(dice.integers(1, 1 << 20, rows)),
        "bytes_sent__sum": pa.array(dice.integers(0, 1 << 60, rows)),
        "price__sum": pa.array(dice.random(rows)),
    }
    return pa.table(columns).replace_schema_metadata({ANSWER_KEY: msgspec.json.encode(HELD)})


@cache
def tables(megabytes: int, small_rows: int) -> dict[str, pa.Table]:
    """Return the answers by the name of their cube."""
    block = answer_rows(BATCH_ROWS, seed=1)
    large = pa.concat_tables([block] * -(-(megabytes << 20) // block.nbytes)).combine_chunks()
    return {SMALL: answer_rows(small_rows, seed=2), LARGE: large}


class Desk:
    """A receiver and a node that have their answers ready. Tables are the answers by their cube's name."""

    def __init__(self, answers: Mapping[str, pa.Table]) -> None:
        self._answers = answers

    def query(self, query: PartialQuery) -> pa.Table:
        if query.cube not in self._answers:
            raise NotFound(f"no cube {query.cube!r}", expected=", ".join(self._answers))
        return self._answers[query.cube]

    def copy(self, request: CopyRequest) -> Iterator[pa.RecordBatch]:
        """Yield the large table in batches, as a node reads them from its files."""
        yield from self._answers[LARGE].replace_schema_metadata(None).to_batches(max_chunksize=BATCH_ROWS)

    @property
    def copied_schema(self) -> pa.Schema:
        return self._answers[LARGE].schema.remove_metadata()

    def _nothing(self, *arguments: Any) -> Any:
        raise NotImplementedError("the benchmark only asks")

    stats = pause = checkpoint = close_segments = _nothing


class _NodeServer(GuardedFlightServer):
    """The answering half of a storage node's server."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        super().__init__(host=HOST, port=0, token=TOKEN, metrics=Metrics("receiver"))

    def do_get(self, context: Any, ticket: Any) -> Any:
        request = guarded(lambda: body_of(ticket.ticket, CopyRequest))
        return flight.GeneratorStream(self._desk.copied_schema, guarded_batches(self._desk.copy(request)))


@contextmanager
def serving(desk: Desk) -> Iterator[dict[str, int]]:
    """Serve in this process. Yields the ports."""
    endpoint = AnswerEndpoint(desk.query, desk.copy, host=HOST, token=TOKEN, metrics=Metrics("receiver"))
    with (
        endpoint,
        ReceiverFlightServer(desk, host=HOST, port=0, token=TOKEN, metrics=Metrics("receiver")) as receiver,
        _NodeServer(desk) as node,
    ):
        yield {"receiver": receiver.port, "node": node.port, "http": endpoint.port}


def serve(megabytes: int, small_rows: int) -> None:
    """Say the ports, and serve until the parent is gone."""
    switch_often()
    with serving(Desk(tables(megabytes, small_rows))) as ports:
        print(json.dumps(ports), flush=True)
        sys.stdin.read()


@contextmanager
def server_process(megabytes: int, small_rows: int) -> Iterator[tuple[psutil.Process, dict[str, int]]]:
    """Yield the answering process and its ports."""
    command = [sys.executable, "-m", "benchmarks.answer_transport", "--worker"]
    with subprocess.Popen(
        [*command, str(megabytes), str(small_rows)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield psutil.Process(process.pid), json.loads(process.stdout.readline())
        finally:
            process.stdin.close()


@contextmanager
def clients_of(ports: Mapping[str, int]) -> Iterator[dict[str, Answers]]:
    """Yield the clients by the name of their way."""
    receiver, node, answers = (host_port(HOST, ports[name]) for name in ("receiver", "node", "http"))
    clients: dict[str, Answers] = {
        "flight": FlightAnswers(receiver, node, TOKEN),
        "httpx": HttpxAnswers(answers, TOKEN),
        "http.client": PlainHttpAnswers(answers, TOKEN),
    }
    try:
        yield clients
    finally:
        for client in clients.values():
            client.close()


def query_of(cube: str) -> PartialQuery:
    return PartialQuery(cube, ("page",), ("__rows", "bytes_sent__sum", "price__sum"), HistorySnapshot())
