"""A session token carries what was answered from service to service, and nobody can make one up."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import msgspec
import pymysql
import pytest
from rtolap import dbapi
from rtolap.protocols.query.messages import SESSION_TOKEN_HEADER
from rtolap.query.session_token import (
    TOKEN_BYTES_MAX,
    TOKENS_BYTES_MAX,
    BadSessionToken,
    CubePositions,
    SessionPositions,
    SessionTokens,
)

from tests.support.query.binary_protocol import BinaryProtocol
from tests.support.query.query_endpoints import TOKEN, Endpoints, open_endpoints
from tests.support.query.query_world import QueryWorld
from tests.support.seeds import so_many

CHANGES_WORLD = True

COUNT = "select count(*) n from flights"
TOKENS = SessionTokens("a secret")


@pytest.fixture(scope="module")
def endpoints(world: QueryWorld) -> Iterator[Endpoints]:
    with open_endpoints(world) as opened:
        yield opened


def _ask(endpoints: Endpoints, token: str | None = None, **body: object) -> httpx.Response:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    if token is not None:
        headers[SESSION_TOKEN_HEADER] = token
    url = f"{endpoints.http_url}/api/v1/query"
    return httpx.post(url, json={"sql": COUNT, **body}, headers=headers, timeout=60)


def _cube_id(endpoints: Endpoints) -> str:
    (known,) = endpoints.service.session_tokens.read(_ask(endpoints).headers[SESSION_TOKEN_HEADER])
    return known.cube_id


def _token(endpoints: Endpoints, *cubes: CubePositions) -> str:
    return endpoints.service.session_tokens.write(cubes)


def _at_least(endpoints: Endpoints) -> dict[int, int]:
    """Of the last statement, over both replica sets."""
    return {p: o for _, query in endpoints.world.asked[-2:] for p, o in query.at_least.items()}


# -- the token --


@pytest.mark.parametrize("seed", range(so_many(20)))
def test_a_token_says_what_it_was_made_of(seed: int) -> None:
    random_ = random.Random(seed)
    made = [
        CubePositions(
            f"cube_{n}",
            f"{random_.getrandbits(128):032x}",
            {p: random_.getrandbits(50) for p in range(random_.randrange(20))},
        )
        for n in range(random_.randrange(1, 9))
    ]
    assert TOKENS.read(TOKENS.write(made)) == made


def test_nothing_answered_is_no_token() -> None:
    assert TOKENS.write(()) == ""
    assert TOKENS.read("") == []


@pytest.mark.parametrize("seed", range(so_many(200)))
def test_a_token_that_was_tampered_with_is_refused_by_name(seed: int) -> None:
    random_ = random.Random(seed)
    token = TOKENS.write([CubePositions("flights", "a" * 32, {0: 7, 1: 9})])
    data = bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    match random_.randrange(6):
        case 0:
            data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
        case 1:
            del data[random_.randrange(len(data)) :]
        case 2:
            data += random_.randbytes(random_.randrange(1, 40))
        case 3:
            data = bytearray(random_.randbytes(random_.randrange(1, 200)))
        case 4:
            data = bytearray(SessionTokens("another")._tag(bytes(data[16:])) + data[16:])
        case 5:
            data = bytearray(data[:16] + msgspec.msgpack.encode([["flights", "a" * 32, {0: 1 << 62}]]))
    with pytest.raises(BadSessionToken, match="leave it out"):
        TOKENS.read(base64.urlsafe_b64encode(bytes(data)).rstrip(b"=").decode())


@pytest.mark.parametrize("text", ["no base64!", "é", "A", "\x00", " . ", "x" * (TOKENS_BYTES_MAX + 1)])
def test_what_is_no_token_at_all_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadSessionToken):
        TOKENS.read(text)


def test_a_signed_body_that_is_no_list_of_positions_is_refused_by_name() -> None:
    body = msgspec.msgpack.encode({"flights": 1})
    with pytest.raises(BadSessionToken, match="this version"):
        TOKENS.read(base64.urlsafe_b64encode(TOKENS._tag(body) + body).rstrip(b"=").decode())


def test_a_token_is_bounded_and_keeps_the_cubes_that_were_answered_last() -> None:
    cubes = [CubePositions(f"cube_{n}", "a" * 32, dict.fromkeys(range(100), 1 << 40)) for n in range(50)]
    token = TOKENS.write(cubes)
    assert TOKEN_BYTES_MAX / 2 < len(token) <= TOKEN_BYTES_MAX
    kept = TOKENS.read(token)
    assert kept == cubes[-len(kept) :]


def test_tokens_of_threads_are_merged_and_never_lower_a_position() -> None:
    one = TOKENS.write([CubePositions("a", "1", {0: 5, 1: 2}), CubePositions("b", "2", {0: 1})])
    other = TOKENS.write([CubePositions("a", "1", {0: 3, 1: 4, 2: 1})])
    merged = SessionPositions(TOKENS.read(f"{one},{other}"))
    assert merged.of("a", "1") == {0: 5, 1: 4, 2: 1}
    assert merged.of("b", "2") == {0: 1}
    assert merged.of("a", "another creation") == {}


# -- services --


def test_a_service_answers_at_or_beyond_a_token_of_another(endpoints: Endpoints) -> None:
    world = endpoints.world
    beyond = {p: at + 1_000 for p, at in world.positions.items()}
    token = _token(endpoints, CubePositions("flights", _cube_id(endpoints), beyond))
    assert _ask(endpoints, token).status_code == 200
    assert _at_least(endpoints) == beyond
    assert _ask(endpoints).status_code == 200
    assert _at_least(endpoints) == world.positions, "others do not wait for what this session was answered"


def test_the_token_of_an_answer_says_what_it_and_the_session_before_held(endpoints: Endpoints) -> None:
    other = CubePositions("elsewhere", "b" * 32, {0: 3})
    answered = _ask(endpoints, _token(endpoints, other))
    known = endpoints.service.session_tokens.read(answered.headers[SESSION_TOKEN_HEADER])
    assert known == [other, CubePositions("flights", _cube_id(endpoints), endpoints.world.positions)]


def test_an_arrow_answer_has_the_token_too(endpoints: Endpoints) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/vnd.apache.arrow.stream"}
    answered = httpx.post(f"{endpoints.http_url}/api/v1/query", json={"sql": COUNT}, headers=headers)
    assert answered.headers[SESSION_TOKEN_HEADER] == _ask(endpoints).headers[SESSION_TOKEN_HEADER]


def test_positions_of_a_cube_that_was_recreated_since_are_not_waited_for(endpoints: Endpoints) -> None:
    token = _token(
        endpoints, CubePositions("flights", "of another creation", dict.fromkeys(range(4), 1 << 40))
    )
    answered = _ask(endpoints, token)
    assert answered.json()["rows"] == [[800]]
    assert _at_least(endpoints) == endpoints.world.positions
    known = endpoints.service.session_tokens.read(answered.headers[SESSION_TOKEN_HEADER])
    assert [each.cube_id for each in known] == [_cube_id(endpoints)], "its predecessor is forgotten"


def test_a_partition_that_is_assigned_to_nobody_here_is_an_error_not_a_shorter_answer(
    endpoints: Endpoints,
) -> None:
    token = _token(endpoints, CubePositions("flights", _cube_id(endpoints), {99: 1}))
    answered = _ask(endpoints, token)
    assert (answered.status_code, answered.json()["code"]) == (409, "stale_snapshot")
    assert "partitions [99]" in answered.json()["message"]


@pytest.mark.parametrize("token", ["x", "AAAA" * 20, "a" * (TOKENS_BYTES_MAX + 1), "ä"])
def test_a_forged_token_is_a_named_error_over_http(endpoints: Endpoints, token: str) -> None:
    headers = {b"Authorization": f"Bearer {TOKEN}".encode(), SESSION_TOKEN_HEADER.encode(): token.encode()}
    answered = httpx.post(f"{endpoints.http_url}/api/v1/query", json={"sql": COUNT}, headers=headers)
    assert (answered.status_code, answered.json()["code"]) == (400, "bad_session_token")
    assert _ask(endpoints).json()["rows"] == [[800]]


# -- clients --


def test_a_connection_carries_its_token_by_itself_and_to_another_service(endpoints: Endpoints) -> None:
    beyond = {p: at + 7 for p, at in endpoints.world.positions.items()}
    token = _token(endpoints, CubePositions("flights", _cube_id(endpoints), beyond))
    with dbapi.connect(endpoints.http_url, token=TOKEN, session_token=token) as one:
        assert one.session_token == token
        assert one.cursor().execute(COUNT).fetchone() == (800,)
        assert _at_least(endpoints) == beyond
        carried = one.session_token
    with dbapi.connect(endpoints.http_url, token=TOKEN, session_token=carried) as other:
        other.cursor().execute(COUNT)
        assert _at_least(endpoints) == beyond
    with dbapi.connect(endpoints.http_url, token=TOKEN) as fresh:
        assert fresh.session_token == ""
        fresh.cursor().execute(COUNT)
        assert _at_least(endpoints) == endpoints.world.positions
        assert fresh.session_token


def test_threads_that_share_a_connection_lose_no_answer_of_each_other(endpoints: Endpoints) -> None:
    cubes = sorted(endpoints.world.schemas)
    with dbapi.connect(endpoints.http_url, token=TOKEN) as connection, ThreadPoolExecutor(8) as threads:
        list(
            threads.map(
                lambda n: connection.cursor().execute(f"select count(*) + {n} from {cubes[n % len(cubes)]}"),
                range(40),
            )
        )
        known = SessionPositions(endpoints.service.session_tokens.read(connection.session_token))
        assert {each.cube for each in known} == set(cubes)
        connection.cursor().execute(COUNT)
        assert "," not in connection.session_token, "the service has merged them"


def test_a_forged_token_is_a_programming_error_of_a_connection(endpoints: Endpoints) -> None:
    with dbapi.connect(endpoints.http_url, token=TOKEN, session_token="AAAA") as connection:
        with pytest.raises(dbapi.ProgrammingError, match="session token") as caught:
            connection.cursor().execute(COUNT)
        assert caught.value.code == "bad_session_token"


def test_mysql_sessions_read_and_set_the_token_as_a_variable(endpoints: Endpoints) -> None:
    beyond = {p: at + 3 for p, at in endpoints.world.positions.items()}
    with closing(endpoints.connect()) as one, one.cursor() as cursor:
        cursor.execute("select @@rtolap_session_token")
        assert cursor.fetchone() == ("",)
        cursor.execute(COUNT)
        cursor.execute("select @@rtolap_session_token")
        (token,) = cursor.fetchone()
        (known,) = endpoints.service.session_tokens.read(token)
        assert known.offsets == endpoints.world.positions
        cursor.execute("show variables like 'rtolap_session_token'")
        assert cursor.fetchone() == ("rtolap_session_token", token)
    further = _token(endpoints, CubePositions("flights", known.cube_id, beyond))
    with closing(endpoints.connect()) as other, other.cursor() as cursor:
        cursor.execute("set rtolap_session_token = %s", (token,))
        cursor.execute("set @@session.rtolap_session_token = %s", (further,))
        cursor.execute(COUNT)
        assert _at_least(endpoints) == beyond
        cursor.execute("set rtolap_session_token = %s", (token,))
        cursor.execute(COUNT)
        assert _at_least(endpoints) == beyond, "an older token lowers nothing"
        with pytest.raises(pymysql.err.MySQLError, match="session token is not valid"):
            cursor.execute("set rtolap_session_token = 'AAAA'")
        cursor.execute(COUNT)
        assert cursor.fetchone() == (800,)


def test_a_prepared_statement_is_answered_beyond_the_sessions_token(endpoints: Endpoints) -> None:
    beyond = {p: at + 5 for p, at in endpoints.world.positions.items()}
    token = _token(endpoints, CubePositions("flights", _cube_id(endpoints), beyond))
    with closing(endpoints.connect()) as connection:
        with connection.cursor() as cursor:
            cursor.execute("set rtolap_session_token = %s", (token,))
        BinaryProtocol(connection).rows("select count(*) from flights where carrier <> ?", ("?",))
    assert _at_least(endpoints) == beyond


def test_statements_of_sessions_that_are_further_do_not_share_a_read_with_others(
    endpoints: Endpoints,
) -> None:
    beyond = {p: at + 11 for p, at in endpoints.world.positions.items()}
    token = _token(endpoints, CubePositions("flights", _cube_id(endpoints), beyond))
    before = len(endpoints.world.asked)
    with ThreadPoolExecutor(12) as clients:
        answers = list(clients.map(lambda n: _ask(endpoints, token if n % 2 else None), range(24)))
    assert [json.loads(each.text)["rows"] for each in answers] == [[[800]]] * 24
    floors = [query.at_least for _, query in endpoints.world.asked[before:]]
    assert any(floor[p] == beyond[p] for floor in floors for p in floor)
    for n, each in enumerate(answers):
        known = SessionPositions(endpoints.service.session_tokens.read(each.headers[SESSION_TOKEN_HEADER]))
        (cube,) = known
        assert cube.offsets == (beyond if n % 2 else endpoints.world.positions)
