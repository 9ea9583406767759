"""Who says nothing is dropped, who comes when the house is full is told so, and neither harms others."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import pymysql
import pytest
from rtolap.query.mysql.server import MySqlLimits

from tests.support.query.query_endpoints import PASSWORD, USER, Endpoints, open_endpoints
from tests.support.query.query_world import QueryWorld
from tests.support.waiting import patience_s

pytestmark = pytest.mark.integration
LOGIN_S, CONNECTIONS = 0.8, 3
GREETING_MAX = 4096


@pytest.fixture(scope="module")
def small(flights: QueryWorld) -> Iterator[Endpoints]:
    limits = MySqlLimits(connections_max=CONNECTIONS, login_timeout_s=LOGIN_S)
    with open_endpoints(flights, limits=limits) as opened:
        yield opened


def visit(endpoints: Endpoints) -> socket.socket:
    """A client that has read the greeting."""
    sock = socket.create_connection(("127.0.0.1", endpoints.mysql_port), timeout=20)
    assert sock.recv(GREETING_MAX)
    return sock


def until_free(endpoints: Endpoints) -> pymysql.connections.Connection:
    deadline = time.monotonic() + patience_s(20)
    while True:
        try:
            return endpoints.connect()
        except pymysql.err.OperationalError as error:
            if error.args[0] != 1040 or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def test_a_client_that_says_nothing_is_dropped(small: Endpoints) -> None:
    until_free(small).close()
    started = time.monotonic()
    with visit(small) as sock:
        assert sock.recv(1) == b""
    assert LOGIN_S * 0.9 <= time.monotonic() - started < 10


def test_a_client_that_sends_a_byte_at_a_time_is_dropped_just_as_soon(small: Endpoints) -> None:
    until_free(small).close()
    started = time.monotonic()
    with visit(small) as sock:
        sock.sendall(b"\xff\x00\x00\x01")  # 255 bytes are to come
        sock.settimeout(LOGIN_S / 8)
        while True:
            try:
                if sock.recv(1) == b"":
                    break
            except TimeoutError:
                sock.sendall(b"x")
            except ConnectionError:
                break
            assert time.monotonic() - started < 10, "it was never dropped"
    assert time.monotonic() - started >= LOGIN_S * 0.9


def test_a_login_in_time_may_then_be_silent_for_longer(small: Endpoints) -> None:
    with until_free(small) as connection:
        time.sleep(LOGIN_S * 1.5)
        with connection.cursor() as cursor:
            cursor.execute("select count(*) from flights")
            assert cursor.fetchall() == ((400,),)


def test_one_connection_too_many_is_told_the_limit(small: Endpoints) -> None:
    opened = [until_free(small)]
    opened += [small.connect() for _ in range(CONNECTIONS - 1)]
    with pytest.raises(pymysql.err.OperationalError, match=f"at most {CONNECTIONS}") as caught:
        small.connect()
    assert caught.value.args[0] == 1040
    assert "--connections-max" in caught.value.args[1]
    binary = shutil.which("mariadb") or shutil.which("mysql")
    if binary is not None:
        done = subprocess.run(
            [
                binary,
                "--no-defaults",
                "-h",
                "127.0.0.1",
                "-P",
                str(small.mysql_port),
                f"-u{USER}",
                f"-p{PASSWORD}",
            ],
            capture_output=True,
            text=True,
            timeout=patience_s(60),
            check=False,
        )
        assert "1040" in done.stderr
        assert "too many connections" in done.stderr
    with opened[0].cursor() as cursor:  # those inside go on
        cursor.execute("SHOW VARIABLES LIKE 'max_connections'")
        assert cursor.fetchall() == (("max_connections", str(CONNECTIONS)),)
    opened[0].close()
    until_free(small).close()
    for connection in opened[1:]:
        connection.close()


def test_the_silent_hold_their_place_no_longer_than_the_login_may_take(small: Endpoints) -> None:
    until_free(small).close()
    silent = [visit(small) for _ in range(CONNECTIONS)]
    started = time.monotonic()
    until_free(small).close()
    assert time.monotonic() - started < 10
    for sock in silent:
        sock.close()
