"""Whatever a MySQL client sends, before its login and after it, costs little; everybody else is answered."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from tests.support.hostile.hostile_mysql import Account, HostileMySql
from tests.support.hostile.unhandled import unhandled_errors
from tests.support.query.query_endpoints import OTHER_USER, PASSWORD, USER, Endpoints, open_endpoints
from tests.support.query.query_world import QueryWorld
from tests.support.seeds import so_many

LOGINS, SESSIONS, COMMANDS = so_many(300, 600), so_many(48, 96), 25
CPU_S_MAX = 5.0  # of one connection: some 10 ms, and seconds for what takes more than its length allows


@pytest.fixture(scope="module")
def endpoints(world: QueryWorld) -> Iterator[Endpoints]:
    with open_endpoints(world) as opened:
        yield opened


def answered_rightly(endpoints: Endpoints) -> None:
    with endpoints.connect(user=OTHER_USER) as connection, connection.cursor() as cursor:
        cursor.execute("select count(*) from flights")
        assert cursor.fetchall() == ((800,),)


@pytest.fixture
def unhandled() -> Iterator[list[str]]:
    with unhandled_errors() as found:
        yield found


@pytest.mark.seeded
def test_no_login_costs_more_than_a_little(endpoints: Endpoints, unhandled: list[str]) -> None:
    rng = random.Random(11)
    hostile = HostileMySql("127.0.0.1", endpoints.mysql_port, "flights")
    for number in range(LOGINS):
        began_s = time.process_time()
        hostile.before_login(rng)
        assert time.process_time() - began_s < CPU_S_MAX, number
        assert not unhandled, f"login {number}: {unhandled[0]}"
        if number % 300 == 0:
            answered_rightly(endpoints)


@pytest.mark.seeded
def test_no_command_costs_more_than_a_little(endpoints: Endpoints, unhandled: list[str]) -> None:
    rng, taken = random.Random(11), 0
    hostile = HostileMySql("127.0.0.1", endpoints.mysql_port, "flights")
    for number in range(SESSIONS):
        began_s = time.process_time()
        taken += hostile.after_login(rng, Account(USER, PASSWORD), COMMANDS)
        assert time.process_time() - began_s < CPU_S_MAX, number
        assert not unhandled, f"session {number}: {unhandled[0]}"
        if number % 20 == 0:
            answered_rightly(endpoints)
    assert taken + LOGINS >= so_many(1_000, 2_000), (
        f"of {taken} commands only, the servers' answers show that they were taken"
    )
