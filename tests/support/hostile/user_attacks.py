"""What a plain user, or a neighbour without any right, can ask of a cluster's services at full size.

    python -m tests.support.hostile.user_attacks TARGETS.json ATTACK   prints what came of it, as JSON

An attack counts what it sent, and what was answered, refused or closed. It fails where a server neither
answers nor refuses.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx
import msgspec
import pymysql
from rtolap.servers.flight_guard import frames

from tests.support.hostile.flight_frames import RawFlight, ticket
from tests.support.query.binary_protocol import BinaryProtocol
from tests.support.sep.replication_client import RegionServer

MIB = 1 << 20
TIMEOUT_S = 600.0
_LOWER_PRIORITY = 10  # it would have a machine of its own
_GONE = (2006, 2013)
_LONG_PARAMETER = b"\0\1\xfd\0\0"  # one text, whose value came before
TEXT_CHARACTERS = 58_000
STATEMENT_MS = 2_000  # of statements that take as long as they may
Attack = Callable[["Targets", random.Random, "Counter[str]"], None]


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses of the services. `flight_ports`: of receivers and storage nodes. `token`: of who has it."""

    host: str
    mysql_port: int
    query_url: str
    flight_ports: tuple[int, ...]
    capture_port: int
    user: str
    password: str
    token: str
    seed: int


def set_doubling(targets: Targets, rng: random.Random, came: Counter[str]) -> None:
    """Double a variable forty times, then fill others, on eight connections."""

    def double(connection: pymysql.connections.Connection) -> None:
        for text in (
            "set @a = repeat('x', 1000)",
            *["set @a = concat(@a, @a)"] * 40,
            *(f"set @b{number} = @a" for number in range(200)),
            "set " + ", ".join("@a = concat(@a, @a)" for _ in range(100)),
            "set @c = concat(" + "concat(" * 60 + "@a, @a" + "), @a" * 60 + ")",
        ):
            _asked(connection, text, came)

    _on_connections(targets, 8, double)


def long_data(targets: Targets, rng: random.Random, came: Counter[str]) -> None:
    """Send 16 MiB for each of 60 statements, on two connections: 1.9 GB."""

    def send(connection: pymysql.connections.Connection) -> None:
        protocol = BinaryProtocol(connection)
        statements = [protocol.prepare("select length(?) as x") for _ in range(60)]
        for statement in statements:
            for _ in range(4):
                protocol.send_long_data(statement, 0, bytes(4 * MIB - 64))
                came["sent"] += 1
        for statement in statements:
            _counted(partial(protocol.execute, statement, _LONG_PARAMETER), came)

    _on_connections(targets, 2, send)


def prepared_trees(targets: Targets, rng: random.Random, came: Counter[str]) -> None:
    """Prepare texts of 58 KB, all of them different, and keep them, on four connections."""

    def prepare(connection: pymysql.connections.Connection) -> None:
        for _ in range(2):
            text = _long_list(random.Random(rng.random()))
            _counted(partial(BinaryProtocol(connection).prepare, text), came)

    _on_connections(targets, 4, prepare)


def wide_json(targets: Targets, rng: random.Random, came: Counter[str]) -> None:
    """Ask for 500 boolean columns as JSON, flat and in structs, and for texts that JSON makes six times as
    long; five requests at a time."""
    digits = "(" + " union all ".join(f"select {digit} d" for digit in range(10)) + ") "
    flags = [f"a.d = {number % 10}" for number in range(500)]
    rows = " from " + ", ".join(digits + name for name in "abcd")
    texts = (
        "select " + ", ".join(f"{flag} as c{number}" for number, flag in enumerate(flags)) + rows,
        f"select row({', '.join(flags)}) as r" + rows,
        "select replace(repeat('y', 4000), 'y', repeat(chr(1), 4000)) as x",
    )
    _at_once(5, [partial(_posted, targets, {"sql": text}, came) for text in (*texts, *texts)])


def parameter_bodies(targets: Targets, rng: random.Random, came: Counter[str]) -> None:
    """Send bodies of 15 MiB whose values are some hundred times as large as objects, eight at a time."""
    shapes = [rng.choice((b"[]", b"{}", b"1", b'"a"', b"[[[]]]", b'{"a":1}')) for _ in range(16)]

    def body(shape: bytes) -> bytes:
        count = 15 * MIB // (len(shape) + 1)
        return b'{"sql": "select 1", "parameters": [' + b",".join([shape] * count) + b"]}"

    _at_once(8, [partial(_posted, targets, body(shape), came) for shape in shapes])


def nested_set(targets: Targets, rng: random.Random, came: Counter[str]) -> None:
    """Send SET of values that are nested deeply, or are many, in the time of one second; ten connections."""

    def nest(connection: pymysql.connections.Connection) -> None:
        _asked(connection, "set max_execution_time = 1000", came)
        for depth in (30, 300, 3_000):
            _asked(connection, "set @a = " + "coalesce(" * depth + "1" + ", 1)" * depth, came)
            _asked(connection, "set @a = " + "abs(" * depth + "1" + ")" * depth, came)
            _asked(connection, "set " + ", ".join(f"@v{n} = abs(abs(1)) + {n}" for n in range(depth)), came)

    _on_connections(targets, 10, nest)


def heavy_texts(targets: Targets, rng: random.Random, came: Counter[str]) -> None:
    """Send texts of 58 KB on sixty connections at a time, each for as long as it is given."""

    def ask(connection: pymysql.connections.Connection) -> None:
        _asked(connection, f"set max_execution_time = {STATEMENT_MS}", came)
        _asked(connection, heavy_text(random.Random(rng.random())), came)

    _on_connections(targets, 60, ask)


def wrong_passwords(targets: Targets, rng: random.Random, came: Counter[str]) -> None:
    """Try 600 passwords of one user over three hundred connections, half of them HTTP."""

    def over_mysql() -> None:
        wrong = msgspec.structs.replace(targets, password=str(rng.random()))
        with contextlib.suppress(pymysql.err.OperationalError), _connected(wrong):
            raise AssertionError("a wrong password was taken")
        came["refused"] += 1

    def over_http() -> None:
        auth = (targets.user, str(rng.random()))
        url = f"{targets.query_url}/api/v1/query"
        answer = httpx.post(url, json={"sql": ""}, auth=auth, timeout=TIMEOUT_S)
        assert answer.status_code in (401, 503), answer.text
        came["refused"] += 1

    _at_once(300, [each for _ in range(300) for each in (over_mysql, over_http)])


def flight_resets(targets: Targets, rng: random.Random, came: Counter[str]) -> None:
    """Send 20 000 resets, with flags and without, before a call and within one, to each Flight port."""
    for port in targets.flight_ports:
        for flags in (0, frames.ACK, rng.randrange(256)):
            for token in (None, targets.token):
                with RawFlight(port, token or "no token") as client:
                    client.begin()
                    call = client.head(1) + client.message(1, ticket(b"1"), end=False)
                    resets = frames.frame(frames.RST_STREAM, flags, 1, bytes(4)) * 20_000
                    came["sent"] += 20_000
                    client.send(call + resets)
                    client.frames()  # until the server ends the connection
                    came["closed"] += 1


def idle_capture(targets: Targets, rng: random.Random, came: Counter[str]) -> None:
    """Open 1 100 connections of a consumer of change capture, one after the other, and say nothing."""
    with ExitStack() as opened:
        for _ in range(1_100):
            opened.enter_context(RegionServer(targets.capture_port, greets=rng.random() < 0.5))
            came["sent"] += 1


def capture_claims(targets: Targets, rng: random.Random, came: Counter[str]) -> None:
    """Announce four frames of 256 MiB, and send 1 KiB of each; wait until the consumer ends them."""
    with ExitStack() as opened:
        clients = [opened.enter_context(RegionServer(targets.capture_port)) for _ in range(4)]
        for client in clients:
            client.send((256 * MIB).to_bytes(4, "big") + bytes(1024))
            came["sent"] += 1
        for client in clients:
            client.socket.settimeout(TIMEOUT_S)
            assert client.is_closed(), "the consumer answered a frame that did not come"
            came["closed"] += 1


ATTACKS: dict[str, Attack] = {
    attack.__name__.replace("_", " "): attack
    for attack in (
        *(set_doubling, long_data, prepared_trees, wide_json, parameter_bodies, nested_set, heavy_texts),
        *(wrong_passwords, flight_resets, idle_capture, capture_claims),
    )
}


def heavy_text(rng: random.Random) -> str:
    """Return a statement of 58 KB that takes seconds to read and to plan; no two are the same."""
    parts: list[str] = []
    size = 0
    while size < TEXT_CHARACTERS:
        number, text = rng.randrange(10**6), f"{rng.getrandbits(360):x}"  # of at most 10 000 parts
        parts.append(f"length('{text}')+abs(abs(abs({number})))+{number} as c{len(parts)}")
        size += len(parts[-1]) + 2
    return "select " + ", ".join(parts)


def _long_list(rng: random.Random) -> str:
    values = ",".join(str(rng.randrange(100, 999)) for _ in range(TEXT_CHARACTERS // 4))
    return f"select ? in ({values}) as x{rng.randrange(10**9)}"


def _connected(targets: Targets) -> pymysql.connections.Connection:
    connection: pymysql.connections.Connection = pymysql.connections.Connection(
        host=targets.host, port=targets.mysql_port, user=targets.user, password=targets.password,
        read_timeout=TIMEOUT_S, write_timeout=TIMEOUT_S, ssl_disabled=True, max_allowed_packet=64 * MIB,
    )  # fmt: skip
    return connection


def _asked(connection: pymysql.connections.Connection, text: str, came: Counter[str]) -> None:
    def ask() -> None:
        with connection.cursor() as cursor:
            cursor.execute(text)
            cursor.fetchall()

    _counted(ask, came)


def _counted(ask: Callable[[], object], came: Counter[str]) -> None:
    """Count an answer. Raises for what is none: the connection is gone."""
    try:
        ask()
        came["answered"] += 1
    except pymysql.err.MySQLError as error:
        if error.args[0] in _GONE:
            raise
        came["refused"] += 1


def _posted(targets: Targets, body: bytes | dict[str, object], came: Counter[str]) -> None:
    """Read the answer as it comes and keep nothing of it."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    auth, headers = (targets.user, targets.password), {"Content-Type": "application/json"}
    came["sent"] += 1
    try:
        with httpx.stream(
            "POST", f"{targets.query_url}/api/v1/query", content=content, headers=headers, auth=auth,
            timeout=TIMEOUT_S,
        ) as answer:  # fmt: skip
            came["read_bytes"] += sum(map(len, answer.iter_raw()))
    except httpx.WriteError:  # it was refused before all of it was sent
        came["refused"] += 1
        return
    except httpx.RemoteProtocolError:  # an error behind the beginning breaks the answer off
        came["broken off"] += 1
        return
    came["answered" if answer.status_code == httpx.codes.OK else "refused"] += 1


def _on_connections(
    targets: Targets, count: int, work: Callable[[pymysql.connections.Connection], None]
) -> None:
    """Work on connections that are all open before the first begins, and until the last has ended."""
    with ExitStack() as opened:
        connections = [opened.enter_context(contextlib.closing(_connected(targets))) for _ in range(count)]
        _at_once(count, [partial(work, each) for each in connections])


def _at_once(threads: int, calls: Iterable[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(call) for call in calls]:
            done.result()


def main() -> None:
    os.nice(_LOWER_PRIORITY)
    targets = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Targets)
    came: Counter[str] = Counter()
    ATTACKS[sys.argv[2]](targets, random.Random(targets.seed), came)
    print(msgspec.json.encode(came).decode())


if __name__ == "__main__":
    main()
