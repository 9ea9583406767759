"""The first start on a real MariaDB: two programs at once, one that is killed, one with few rights."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from rtolap.stack.process import ManagedProcess
from rtolap.stored.metastore import schema
from rtolap.stored.metastore.upgrade import HEAD, present_revision

from tests.support.stored.ledger_contract import schema_differences
from tests.support.stored.ledger_of_before import check_incarnations_after_upgrade
from tests.support.waiting import patience_s, until

from .conftest import PASSWORD, MariaDatabases

pytestmark = pytest.mark.integration

_PLUGINS = Path(__file__).resolve().parents[3] / "plugins"
# Says each definition that it has executed, and waits for a line after the one with the number `pause_at`.
_PROGRAM = """
import sys
from pathlib import Path
import sqlalchemy as sa
from rtolap.stored.metastore.database import Ledger

address, password_file, pause_at = sys.argv[1:]
sent = 0

@sa.event.listens_for(sa.Engine, "after_cursor_execute")
def executed(connection, cursor, statement, *_):
    global sent
    if statement.split()[0] in ("CREATE", "ALTER"):
        sent += 1
        print(sent, flush=True)
        if sent == int(pause_at):
            sys.stdin.readline()

print("ready", flush=True)
Ledger.open(address, password_file=Path(password_file)).close()
print("open", flush=True)
"""


@contextmanager
def program(maria: MariaDatabases, *, pause_at: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, maria.address, str(maria.password_file), str(pause_at)],
        env={**os.environ, "PYTHONPATH": str(_PLUGINS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        with process:
            yield process
    finally:
        process.kill()


def read_until(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    for said in process.stdout:
        if said.strip() == line:
            return
    pytest.fail(f"the program ended before it said {line}")


def assert_whole(maria: MariaDatabases) -> None:
    with maria.open() as ledger:
        assert ledger.read("r", lambda it: schema_differences(it, schema.metadata)) == []
        assert ledger.read("r", present_revision) == HEAD


def test_of_two_programs_that_start_at_once_one_makes_the_schema(maria: MariaDatabases) -> None:
    with program(maria, pause_at=7) as first:
        read_until(first, "7")
        with program(maria, pause_at=0) as second:
            read_until(second, "ready")
            wait_for_one_at_the_lock(maria)
            out, _ = first.communicate("go on\n", timeout=patience_s(60))
            assert out.split()[-1] == "open"
            said, _ = second.communicate(timeout=patience_s(60))
    assert said.split() == ["open"]  # without a definition of its own
    assert (first.returncode, second.returncode) == (0, 0)
    assert_whole(maria)


def wait_for_one_at_the_lock(maria: MariaDatabases) -> None:
    engine = sa.create_engine(
        sa.make_url(maria.address).set(drivername="mysql+pymysql", password=PASSWORD), poolclass=sa.NullPool
    )
    waiting = sa.text("SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'")
    with engine.connect() as connection:
        until(lambda: connection.scalar(waiting) == 1, "one waits at the lock")


@pytest.mark.parametrize("pause_at", [1, 5, 12])
def test_a_program_that_is_killed_amid_its_definitions_is_started_again(
    maria: MariaDatabases, pause_at: int
) -> None:
    """After the version's table, an index, another table: what it left behind is there, its lock is not."""
    with program(maria, pause_at=pause_at) as killed:
        read_until(killed, str(pause_at))
        killed.send_signal(signal.SIGKILL)
        killed.wait(patience_s(60))
    with program(maria, pause_at=0) as again:
        said, _ = again.communicate(timeout=patience_s(60))
    assert (again.returncode, said.split()[-1]) == (0, "open")
    assert_whole(maria)


def test_a_program_goes_on_when_the_server_was_killed_amid_its_definitions(
    maria: MariaDatabases, mariadb_server: ManagedProcess
) -> None:
    with program(maria, pause_at=5) as first:
        read_until(first, "5")
        mariadb_server.kill()
        mariadb_server.start()
        said, _ = first.communicate("go on\n", timeout=patience_s(60))
    assert (first.returncode, said.split()[-1]) == (0, "open")
    assert_whole(maria)


def test_a_user_who_may_not_define_anything_opens_a_ledger_that_is_up_to_date(
    maria: MariaDatabases, root: Callable[..., None]
) -> None:
    maria.open().close()
    url = sa.make_url(maria.address)
    root(
        f"REVOKE ALL ON `{url.database}`.* FROM '{url.username}'@'%'",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON `{url.database}`.* TO '{url.username}'@'%'",
    )
    with maria.open() as ledger:
        assert ledger.write("w", int, lambda it: 1) == 1


def test_partitions_of_the_revision_before_are_found_and_made_again_with_incarnations(
    maria: MariaDatabases,
) -> None:
    url = sa.make_url(maria.address).set(drivername="mysql+pymysql", password=PASSWORD)
    check_incarnations_after_upgrade(sa.create_engine(url, poolclass=sa.NullPool), maria.open)
    with maria.open() as ledger:
        assert ledger.read("r", lambda it: schema_differences(it, schema.metadata)) == []
