"""Answers by Flight and over the guarded HTTP port: both give what the server has, and refuse alike.

The HTTP endpoint is the one of `benchmarks.answer_transport`: made of the product's server, guard and proof.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pytest
import rtolap
from rtolap.base.addresses import host_port
from rtolap.base.errors import Impostor, NotFound, RtolapError, Unauthorized
from rtolap.protocols.receiver.messages import ANSWER_KEY

from benchmarks import hooks, sampled, stages
from benchmarks.answer_transport import switched
from benchmarks.answer_transport.clients import Answers, FlightAnswers, HttpxAnswers, PlainHttpAnswers
from benchmarks.answer_transport.endpoint import PARTIALS_PATH, pieces_of
from benchmarks.answer_transport.servers import (
    HELD,
    HOST,
    LARGE,
    TOKEN,
    WHOLE_TABLET,
    Desk,
    clients_of,
    query_of,
    serving,
)
from tests.support.paths import PROJECT
from tests.support.seeds import so_many

WAYS = ("flight", "httpx", "http.client")
LARGE_ROWS = 40_000  # more than a piece and more than a batch


def _column(dice: random.Random, rows: int) -> pa.Array:
    make: Any
    kind, make = dice.choice(
        [
            (pa.int64(), lambda: dice.randint(-(2**63), 2**63 - 1)),
            (pa.float64(), lambda: dice.choice([dice.random(), float("inf"), -0.0])),
            (pa.string(), lambda: "ü" * dice.randint(0, 9)),
            (pa.binary(), lambda: dice.randbytes(dice.randint(0, 60))),
            (pa.bool_(), lambda: dice.random() < 0.5),
            (pa.decimal128(38, 3), lambda: Decimal(dice.randint(-(10**30), 10**30)).scaleb(-3)),
            (pa.timestamp("ms", tz="UTC"), lambda: dice.randint(0, 2**41)),
        ]
    )
    return pa.array([None if dice.random() < 0.1 else make() for _ in range(rows)], kind)


def _table(dice: random.Random, rows: int) -> pa.Table:
    columns = {f"c{number}": _column(dice, rows) for number in range(dice.randint(1, 6))}
    table = pa.table(columns)
    cut = dice.randint(0, rows)
    pieces = [table.slice(0, cut), table.slice(cut)] if dice.random() < 0.5 else [table]
    return pa.concat_tables(pieces).replace_schema_metadata({ANSWER_KEY: msgspec.json.encode(HELD)})


@pytest.fixture(scope="module", params=range(so_many(2)))
def answers(request: pytest.FixtureRequest) -> dict[str, pa.Table]:
    """Tables of every size, by the name of their cube."""
    dice = random.Random(request.param)
    made = {f"cube{number}": _table(dice, dice.choice([0, 1, 6, 500])) for number in range(8)}
    return {**made, LARGE: _table(dice, LARGE_ROWS)}


@pytest.fixture(scope="module")
def ports(answers: dict[str, pa.Table]) -> Iterator[dict[str, int]]:
    with serving(Desk(answers)) as ports:
        yield ports


@pytest.fixture(scope="module")
def clients(ports: dict[str, int]) -> Iterator[dict[str, Answers]]:
    with clients_of(ports) as clients:
        yield clients


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_comes_as_the_server_has_it(
    way: str, clients: dict[str, Answers], answers: dict[str, pa.Table]
) -> None:
    for cube, table in answers.items():
        given, meta = clients[way].partials(query_of(cube))
        assert meta == HELD
        assert given.equals(table.replace_schema_metadata(None), check_metadata=True), cube
        given.validate(full=True)


def test_all_ways_give_equal_bytes(clients: dict[str, Answers], answers: dict[str, pa.Table]) -> None:
    for cube in answers:
        written = {b"".join(pieces_of(clients[way].partials(query_of(cube))[0])) for way in WAYS}
        assert len(written) == 1, cube


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_comes_batch_for_batch(
    way: str, clients: dict[str, Answers], answers: dict[str, pa.Table]
) -> None:
    batches = list(clients[way].copy(WHOLE_TABLET))
    assert [batch.num_rows for batch in batches] == [
        batch.num_rows for batch in Desk(answers).copy(WHOLE_TABLET)
    ]
    assert pa.Table.from_batches(batches).equals(answers[LARGE].replace_schema_metadata(None))


@pytest.mark.parametrize("way", WAYS)
def test_an_error_keeps_its_name_and_the_next_call_is_answered(way: str, clients: dict[str, Answers]) -> None:
    with pytest.raises(NotFound, match="no cube 'nowhere'"):
        clients[way].partials(query_of("nowhere"))
    assert clients[way].partials(query_of("cube0"))[1] == HELD


def test_a_connection_that_the_server_has_closed_meanwhile_is_replaced(ports: dict[str, int]) -> None:
    client = PlainHttpAnswers(host_port(HOST, ports["http"]), TOKEN)
    try:
        client.partials(query_of("cube0"))
        (connection,) = client._idle
        assert connection.sock is not None
        connection.sock.shutdown(socket.SHUT_RDWR)
        assert client.partials(query_of("cube0"))[1] == HELD
        assert list(client._idle) != [connection]
    finally:
        client.close()


def test_the_http_port_answers_nobody_without_the_token(ports: dict[str, int]) -> None:
    url = f"http://{host_port(HOST, ports['http'])}{PARTIALS_PATH}"
    body = msgspec.json.encode(query_of("cube0"))
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        assert httpx.post(url, content=body, headers=headers).status_code == httpx.codes.UNAUTHORIZED
    by_token = httpx.post(url, content=body, headers={"Authorization": f"Bearer {TOKEN}"})
    assert by_token.status_code == httpx.codes.OK


def test_a_client_with_another_token_is_refused_by_every_way(ports: dict[str, int]) -> None:
    receiver, node, answers = (host_port(HOST, ports[name]) for name in ("receiver", "node", "http"))

    def ask(make: Any) -> None:
        client = make()
        try:
            client.partials(query_of("cube0"))
        finally:
            client.close()

    refusal: tuple[type[RtolapError], ...] = (Impostor, Unauthorized)
    for make in (
        lambda: FlightAnswers(receiver, node, "another"),
        lambda: HttpxAnswers(answers, "another"),
        lambda: PlainHttpAnswers(answers, "another"),
    ):
        with pytest.raises(refusal):
            ask(make)


SWITCHED = """
import sys
from benchmarks.answer_transport.switched.switching import clients
from benchmarks.answer_transport.servers import HELD, HOST, TOKEN, Desk, answer_rows, query_of
from rtolap.base.metrics import Metrics
from rtolap.cubes.receiver.flight import ReceiverFlightServer
from rtolap.protocols.receiver.client import ReceiverClient

table = answer_rows(6, seed=1)
desk = Desk({"cube": table})
with ReceiverFlightServer(desk, host=HOST, port=0, token=TOKEN, metrics=Metrics("receiver")) as server:
    client = ReceiverClient(server.address, TOKEN)
    given, held = client.query(query_of("cube"))
    assert held == HELD
    assert given.equals(table.replace_schema_metadata(None))
    print([type(each).__name__ for each in clients.values()])
    client.close()
"""


@pytest.mark.parametrize(("way", "client"), [("httpx", "HttpxAnswers"), ("http.client", "PlainHttpAnswers")])
def test_a_receiver_and_its_client_are_switched_to_http(way: str, client: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", SWITCHED, "receiver"],
        env={**os.environ, **hooks.environment([switched.hook(way, tmp_path / "answers")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == f"['{client}']"


HOOKED = """
import threading
import rtolap
from rtolap.cubes.receiver.process import ReceiverService
from rtolap.protocols.receiver.client import ReceiverClient

sampled = [each.name for each in threading.enumerate()].count("sampler")
held = {
    "noted": ReceiverService.query.__module__.startswith("benchmarks.stages"),
    "sampling": sampled == 1,
    "switching": ReceiverClient.query.__module__.startswith("benchmarks.answer_transport"),
}
print([name for name, is_held in held.items() if is_held], rtolap.__file__)
"""
COUNTED = """
import benchmarks.hooks  # as the hooks of benchmarks do: that begins nothing a second time

def begin(name):
    with open(name, "a") as file:
        file.write("begun ")
"""


@pytest.mark.parametrize("seed", range(so_many(3)))
def test_hooks_of_several_benchmarks_begin_once_each_in_any_order(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    (tmp_path / "counted.py").write_text(COUNTED)
    counted = hooks.Hook("counted", str(tmp_path / "begun"), ("receiver",))
    hooked = [
        sampled.hook(tmp_path / "samples"),
        stages.hook(tmp_path / "stages"),
        switched.hook("http.client", tmp_path / "answers"),
    ]
    chosen = dice.sample(hooked, dice.randint(2, len(hooked)))
    service = dice.choice(["receiver", "coordinator"])
    environment = hooks.environment(dice.sample([*chosen, counted], len(chosen) + 1))
    environment["PYTHONPATH"] += os.pathsep + str(tmp_path)
    run = subprocess.run(
        [sys.executable, "-c", HOOKED, service],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    expected = sorted(hook.module.rpartition(".")[2] for hook in chosen) if service == "receiver" else []
    assert run.stdout.strip() == f"{expected} {rtolap.__file__}"
    begun = (tmp_path / "begun").read_text() if service == "receiver" else ""
    assert begun == ("begun " if service == "receiver" else "")


def test_the_benchmark_runs_small_and_says_what_it_found() -> None:
    command = [sys.executable, "-m", "benchmarks.answer_transport", "--json", "--rounds", "1"]
    run = subprocess.run(
        [*command, "--seconds", "0.05", "--megabytes", "1"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout.splitlines()[-1])
    assert result["benchmark"] == "answer_transport"
    assert len(result["cases"]) == 5
    for by_way in result["cases"].values():
        assert set(by_way) == set(WAYS)
        for figures in by_way.values():
            median, least, largest = figures["p50_ms"]
            assert 0 < least <= median <= largest
            assert figures["client_cpu_ms"][0] > 0
