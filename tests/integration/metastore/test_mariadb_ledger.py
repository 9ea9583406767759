"""The contract on a real MariaDB, and what only a server can do: refuse a login, break off, die."""

from __future__ import annotations

import threading
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from rtolap.base.errors import CommitUnknown, Unauthorized, Unavailable
from rtolap.stack.process import ManagedProcess
from rtolap.stored.metastore import partitions, transactions
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.leases import Leases
from rtolap.stored.metastore.records import Partition, Transaction

from tests.support.hostile.cut_connections import Cut, CuttingProxy
from tests.support.stored.ledger_contract import Databases, LedgerContract, begin

from .conftest import PASSWORD, MariaDatabases

pytestmark = pytest.mark.integration

PART = Partition("d", "t", "p")


class TestMariaDb(LedgerContract):
    @pytest.fixture
    def databases(self, maria: MariaDatabases) -> Databases:
        return maria


@pytest.mark.parametrize("where", list(Cut))
def test_a_commit_whose_answer_is_lost_is_done_once(
    mariadb_server: ManagedProcess, maria: MariaDatabases, where: Cut
) -> None:
    proxy = CuttingProxy(mariadb_server.address)
    through = MariaDatabases(
        maria.address.replace(mariadb_server.address, proxy.address), maria.password_file
    )
    with through.open() as ledger:
        ledger.write("w", type(None), lambda it: partitions.create(it, PART, {0: ["n"]}))
        proxy.cut(where)
        assert ledger.write("w", int, lambda it: partitions.assign(it, PART)) == 1
        assert ledger.write("w", int, lambda it: partitions.assign(it, PART)) == 2
    assert proxy.cuts == 1
    proxy.close()


def test_a_lease_whose_taking_is_not_answered_is_taken_once(
    mariadb_server: ManagedProcess, maria: MariaDatabases
) -> None:
    proxy = CuttingProxy(mariadb_server.address)
    through = MariaDatabases(
        maria.address.replace(mariadb_server.address, proxy.address), maria.password_file
    )
    with through.open() as ledger:
        proxy.cut(Cut.AFTER)
        assert Leases(ledger).acquire("x", "one", 60_000).epoch == 1
    proxy.close()


def test_two_writes_that_lock_each_other_both_succeed(maria: MariaDatabases) -> None:
    """InnoDB ends one of them with a deadlock, which is then repeated."""
    other_part = Partition("d", "t", "q")
    both_hold_one = threading.Barrier(2)
    attempts: list[Partition] = []

    def work(connection: sa.Connection, first: Partition, second: Partition) -> int:
        attempts.append(first)
        version = partitions.assign(connection, first)
        if len(attempts) <= 2:
            both_hold_one.wait(20)
        return version + partitions.assign(connection, second)

    with maria.open() as ledger, ThreadPoolExecutor(2) as pool:
        for part in (PART, other_part):
            ledger.write("w", type(None), lambda it, part=part: partitions.create(it, part, {0: ["n"]}))
        one = pool.submit(ledger.write, "w", int, lambda it: work(it, PART, other_part))
        two = pool.submit(ledger.write, "w", int, lambda it: work(it, other_part, PART))
        assert sorted([one.result(30), two.result(30)]) == [2, 4]
    assert len(attempts) > 2


def test_a_wrong_password_is_refused_and_told_nowhere(
    maria: MariaDatabases, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = tmp_path / "wrong"
    secret = uuid.uuid4().hex
    wrong.write_text(secret)
    caplog.set_level("DEBUG")
    with pytest.raises(Unauthorized, match="refuses the login") as caught:
        Ledger.open(maria.address, password_file=wrong)
    told = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert secret not in told


def test_values_of_a_failed_statement_are_told_nowhere(
    maria: MariaDatabases, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    hidden = uuid.uuid4().hex  # not a word of this file, which a traceback quotes

    def work(connection: sa.Connection) -> None:
        connection.execute(sa.text("INSERT INTO no_such_table VALUES (:secret)"), {"secret": hidden})

    with maria.open() as ledger, pytest.raises(sa.exc.DBAPIError) as caught:
        ledger.write("w", type(None), work)
    assert hidden not in "".join(traceback.format_exception(caught.value)) + caplog.text
    assert PASSWORD not in repr(ledger._engine.url)


def test_a_server_that_is_away_is_named_and_nothing_is_claimed(
    mariadb_server: ManagedProcess, maria: MariaDatabases
) -> None:
    with maria.open(retry_budget_s=1.0) as ledger:
        mariadb_server.kill()
        with pytest.raises(Unavailable, match="did not answer within 1 s"):
            ledger.write("w", Transaction, lambda it: begin(it, "a"))
        mariadb_server.start()
        assert ledger.read("r", lambda it: transactions.find_live(it, "d", "a")) is None


def test_a_commit_that_stays_in_doubt_is_called_unknown(
    mariadb_server: ManagedProcess, maria: MariaDatabases
) -> None:
    proxy = CuttingProxy(mariadb_server.address)
    address = maria.address.replace(mariadb_server.address, proxy.address)
    with MariaDatabases(address, maria.password_file).open(retry_budget_s=1.0) as ledger:

        def work(connection: sa.Connection) -> Transaction:
            proxy.cut(Cut.AFTER)
            proxy.close()  # nobody gets through any more
            return begin(connection, "a")

        with pytest.raises(CommitUnknown, match="read back before acting"):
            ledger.write("w", Transaction, work)
    with maria.open() as direct:
        assert direct.read("r", lambda it: transactions.find_live(it, "d", "a")) is not None


def test_writes_are_done_once_each_while_the_server_is_killed(
    mariadb_server: ManagedProcess, maria: MariaDatabases
) -> None:
    """Four writers, the server ended by SIGKILL three times: no version lost, none twice."""
    writers, each = 4, 60
    done = threading.Semaphore(0)

    def write(ledger: Ledger, writer: int) -> list[int]:
        versions = []
        for number in range(each):

            def work(connection: sa.Connection, number: int = number) -> int:
                begin(connection, f"w{writer}_{number}")
                return partitions.assign(connection, PART)

            versions.append(ledger.write("w", int, work))
            done.release()
        return versions

    def wait_for(count: int) -> None:
        for _ in range(count):
            assert done.acquire(timeout=60)

    with maria.open() as ledger, ThreadPoolExecutor(writers) as pool:
        ledger.write("w", type(None), lambda it: partitions.create(it, PART, {0: ["n"]}))
        running = [pool.submit(write, ledger, writer) for writer in range(writers)]
        for _ in range(3):
            wait_for(40)
            mariadb_server.kill()
            mariadb_server.start()
        given = sorted(version for writer in running for version in writer.result(120))
        assert given == list(range(1, writers * each + 1))
        known = ledger.read("r", lambda it: partitions.versions(it, PART))
        assert known is not None
        assert known.committed == writers * each
        assert ledger.read("r", lambda it: transactions.running_count(it, "d")) == writers * each
