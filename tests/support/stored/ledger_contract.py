"""The contract of a ledger on every kind of database. Subclass it and say how a database is opened."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from rtolap.base.errors import (
    CommitConflict,
    DefinitionError,
    IllegalTransition,
    NotFound,
    NotLeader,
    NotYet,
    Refused,
    SchemaTooNew,
)
from rtolap.model.stored.partitions import partition_of
from rtolap.model.stored.schema import DefinedTable, initial_schema
from rtolap.model.stored.table import RangePartitions, StoredColumn, StoredTable
from rtolap.stored.metastore import (
    partitions,
    pending_tablet_tasks,
    schema,
    table_changes,
    tables,
    transactions,
)
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.leases import Lease, Leases
from rtolap.stored.metastore.load_jobs import TRANSITIONS, LoadJob, LoadJobEvent, LoadJobs, LoadJobState
from rtolap.stored.metastore.offsets import Loaded, OffsetsRecords
from rtolap.stored.metastore.records import (
    BeginRequest,
    Partition,
    PartitionVersions,
    PendingTabletTask,
    Tablet,
    Transaction,
    TransactionState,
)
from rtolap.stored.metastore.upgrade import HEAD, SHIPPED, Revisions, present_revision

HOUR_MS = 3_600_000
R = TypeVar("R")
DAILY = StoredTable(
    database="d",
    name="daily",
    columns=(StoredColumn("at", "date", nullable=False),),
    partitions=RangePartitions("at"),
)


class Databases:
    """A database, empty at first, that can be opened by any number of ledgers."""

    def open(self, revisions: Revisions = SHIPPED) -> Ledger:
        raise NotImplementedError

    def open_made(self) -> Ledger:
        """Open it where its schema may have been made before, by whatever is quickest."""
        return self.open()

    def pass_ms(self, ledger: Ledger, duration_ms: int) -> None:
        """Return when the database's clock has moved on by so much."""
        raise NotImplementedError


def schema_differences(connection: sa.Connection, metadata: sa.MetaData) -> list[Any]:
    """Return the changes that Alembic would make for the tables of `metadata`."""
    context = MigrationContext.configure(connection, opts={"version_table": schema.VERSION_TABLE})
    return list(compare_metadata(context, metadata))


def next_revision(folder: Path, *more: str) -> Revisions:
    """Return the shipped revisions and one after them: a column, an index on it, and `more` statements of
    it."""
    shutil.copytree(SHIPPED.folder, folder / "migrations", ignore=shutil.ignore_patterns("__pycache__"))
    lines = (
        "import sqlalchemy as sa",
        "from alembic import op",
        "from rtolap.stored.metastore.migrations.repeatable import add_column, create_index",
        'revision, down_revision = "next", "' + HEAD + '"',
        "def upgrade() -> None:",
        '    add_column("load_transaction", sa.Column("colour", sa.String(10), nullable=True))',
        '    create_index("load_transaction_colour", "load_transaction", ("colour",))',
        *(f"    {statement}" for statement in more),
    )
    (folder / "migrations" / "versions" / "next.py").write_text("\n".join(lines) + "\n")
    return Revisions(folder / "migrations", "next")


class _CutShort(Exception):
    pass


@contextmanager
def listening_for_definitions(listener: Callable[[str], None]) -> Iterator[None]:
    """Call the listener after each definition that any engine of this process has executed."""

    def executed(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.split(maxsplit=1)[0].upper() in ("CREATE", "ALTER", "DROP"):
            listener(statement)

    sa.event.listen(sa.Engine, "after_cursor_execute", executed)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, "after_cursor_execute", executed)


def begin(connection: sa.Connection, label: str, db: str = "d") -> Transaction:
    return transactions.insert(connection, BeginRequest(db, ("t",), label, "r", 1000), 0)


class LedgerContract:
    @pytest.fixture
    def databases(self) -> Iterator[Databases]:
        raise NotImplementedError

    @pytest.fixture
    def ledger(self, databases: Databases) -> Iterator[Ledger]:
        with databases.open_made() as ledger:
            yield ledger

    # --- reads and writes -----------------------------------------------------------------------------

    def test_a_write_is_read_by_another_ledger(self, ledger: Ledger, databases: Databases) -> None:
        written = ledger.write("w", Transaction, lambda it: begin(it, "a"))
        with databases.open() as other:
            assert other.read("r", lambda it: transactions.find(it, "d", written.txn_id)) == written

    def test_a_write_that_raises_leaves_nothing(self, ledger: Ledger) -> None:
        def work(connection: sa.Connection) -> None:
            begin(connection, "a")
            raise Refused("no")

        with pytest.raises(Refused):
            ledger.write("w", type(None), work)
        assert ledger.read("r", lambda it: transactions.find_live(it, "d", "a")) is None

    def test_a_repeated_key_returns_the_first_result_and_changes_nothing(self, ledger: Ledger) -> None:
        first = ledger.write("w", Transaction, lambda it: begin(it, "a"), key="k")
        again = ledger.write("w", Transaction, lambda it: begin(it, "b"), key="k")
        assert again == first
        assert ledger.read("r", lambda it: transactions.find_live(it, "d", "b")) is None

    def test_a_repeated_key_waits_for_the_first_write_to_end(
        self, ledger: Ledger, databases: Databases
    ) -> None:
        """Write as a retry does whose connection broke while its commit was under way."""
        inside, go_on = threading.Event(), threading.Event()

        def slow(connection: sa.Connection) -> int:
            inside.set()
            assert go_on.wait(20)
            return 1

        with databases.open() as other, ThreadPoolExecutor(2) as pool:
            first = pool.submit(ledger.write, "first", int, slow, key="k")
            assert inside.wait(20)
            second = pool.submit(other.write, "second", int, lambda it: 2, key="k")
            time.sleep(0.1)  # nothing is waited for: the second must still not be done when this is over
            assert not second.done()
            go_on.set()
            assert (first.result(20), second.result(20)) == (1, 1)

    def test_old_keys_are_forgotten_and_young_ones_kept(self, ledger: Ledger) -> None:
        ledger.write("w", int, lambda it: 1, key="young")

        def make_old(connection: sa.Connection) -> None:
            old = {"write_key": "old", "result": "1", "written_at_ms": 0}
            connection.execute(sa.insert(schema.applied_write).values(**old))

        ledger.write("w", type(None), make_old)
        assert ledger.forget_keys() == 1
        assert ledger.write("w", int, lambda it: 2, key="young") == 1
        assert ledger.write("w", int, lambda it: 2, key="old") == 2

    def test_names_differ_by_case_and_accent(self, ledger: Ledger) -> None:
        for label in ("label", "Label", "LABEL", "läbel", "labél"):
            ledger.write("w", Transaction, partial(begin, label=label))
        found = ledger.read("r", lambda it: transactions.find_live(it, "d", "Label"))
        assert found is not None
        assert found.label == "Label"

    @pytest.mark.parametrize("name", ["", " a", "a ", "x" * 129, "a\0b"])
    def test_names_that_servers_treat_differently_are_refused(self, ledger: Ledger, name: str) -> None:
        with pytest.raises(DefinitionError, match="cannot be kept"):
            ledger.write("w", Transaction, lambda it: begin(it, name))

    def test_a_name_of_the_full_length_is_kept(self, ledger: Ledger) -> None:
        name = "é" * 128
        ledger.write(
            "w", type(None), lambda it: partitions.create(it, Partition(name, name, name), {0: [name]})
        )
        (replica,) = ledger.read("r", lambda it: partitions.replicas(it, [Partition(name, name, name)]))
        assert replica.node == name

    def test_the_clock_is_the_databases_own_and_does_not_stand_still(
        self, ledger: Ledger, databases: Databases
    ) -> None:
        before = ledger.read("r", ledger.now_ms)
        databases.pass_ms(ledger, 20)
        assert ledger.read("r", ledger.now_ms) >= before + 20

    # --- compare and set ------------------------------------------------------------------------------

    def test_an_update_to_the_same_value_counts_as_done(self, ledger: Ledger) -> None:
        made = ledger.write("w", Transaction, lambda it: begin(it, "a"))
        same = TransactionState.PREPARE
        assert ledger.write("w", bool, lambda it: transactions.move(it, made.txn_id, same, same))

    def test_a_move_from_another_state_changes_nothing(self, ledger: Ledger) -> None:
        made = ledger.write("w", Transaction, lambda it: begin(it, "a"))
        before, after = TransactionState.COMMITTED, TransactionState.VISIBLE
        assert not ledger.write("w", bool, lambda it: transactions.move(it, made.txn_id, before, after))
        assert ledger.read("r", lambda it: transactions.find(it, "d", made.txn_id)) == made

    def test_a_label_is_held_by_one_until_it_is_aborted(self, ledger: Ledger) -> None:
        first = ledger.write("w", Transaction, lambda it: begin(it, "a"))
        with pytest.raises(CommitConflict):
            ledger.write("w", Transaction, lambda it: begin(it, "a"))
        ledger.write("w", Transaction, lambda it: begin(it, "a", db="other"))
        aborted = TransactionState.ABORTED
        ledger.write("w", bool, lambda it: transactions.move(it, first.txn_id, first.state, aborted))
        second = ledger.write("w", Transaction, lambda it: begin(it, "a"))
        assert second.txn_id > first.txn_id
        assert ledger.read("r", lambda it: transactions.find_latest(it, "d", "a")) == second

    def test_labels_are_found_by_a_pattern_the_latest_first(self, ledger: Ledger) -> None:
        for label in ("day-1", "Day-2", "day-2", "night-1", "day_3", "100%"):
            ledger.write("w", Transaction, partial(begin, label=label))
        ledger.write("w", Transaction, partial(begin, label="day-1", db="other"))
        for pattern, labels in (
            ("day-%", ["day-2", "day-1"]),
            ("day\\_%", ["day_3"]),
            ("%\\%", ["100%"]),
            ("night-1", ["night-1"]),
            ("", []),
        ):
            found = ledger.read("r", partial(transactions.find_like, db="d", pattern=pattern))
            assert [each.label for each in found] == labels, pattern

    def test_of_many_that_insert_one_label_at_once_one_does(
        self, ledger: Ledger, databases: Databases
    ) -> None:
        def try_it(number: int) -> bool:
            try:
                ledger.write("w", Transaction, lambda it: begin(it, "a"))
            except CommitConflict:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(try_it, range(16))) == 1

    def test_ids_of_transactions_are_not_used_again(self, ledger: Ledger) -> None:
        first = ledger.write("w", Transaction, lambda it: begin(it, "a"))
        ledger.write("w", type(None), lambda it: transactions.delete(it, [first.txn_id]))
        assert ledger.write("w", Transaction, lambda it: begin(it, "a")).txn_id > first.txn_id

    def test_versions_that_many_assign_at_once_have_no_hole_and_no_double(self, ledger: Ledger) -> None:
        part = Partition("d", "t", "p")
        ledger.write("w", type(None), lambda it: partitions.create(it, part, {0: ["n"]}))
        with ThreadPoolExecutor(8) as pool:
            given = pool.map(
                lambda _: ledger.write("w", int, lambda it: partitions.assign(it, part)), range(24)
            )
            assert sorted(given) == list(range(1, 25))

    def test_versions_become_visible_in_order_only(self, ledger: Ledger) -> None:
        part = Partition("d", "t", "p")
        ledger.write("w", type(None), lambda it: partitions.create(it, part, {0: ["n"]}))
        done = [
            ledger.write("w", bool, partial(partitions.make_visible, partition=part, version=version))
            for version in (2, 1, 1, 2)
        ]
        assert done == [False, True, False, True]

    def test_a_dropped_partition_starts_over_and_none_is_dropped_that_is_written_to(
        self, ledger: Ledger
    ) -> None:
        part = Partition("d", "t", "p")
        made = ledger.write("w", Transaction, lambda it: begin(it, "a"))
        ledger.write("w", type(None), lambda it: partitions.create(it, part, {0: ["n"]}))
        ledger.write("w", type(None), lambda it: transactions.touch(it, made.txn_id, [part]))
        ledger.write("w", type(None), lambda it: transactions.set_versions(it, made.txn_id, {part: 1}))
        with pytest.raises(NotYet):
            ledger.write("w", type(None), lambda it: partitions.delete(it, part))
        state = TransactionState.VISIBLE
        ledger.write("w", bool, lambda it: transactions.move(it, made.txn_id, made.state, state))
        ledger.write("w", type(None), lambda it: partitions.delete(it, part))
        assert ledger.read("r", lambda it: partitions.versions(it, part)) is None
        ledger.write("w", type(None), lambda it: partitions.create(it, part, {0: ["n"]}))
        ledger.write("w", type(None), lambda it: transactions.touch(it, made.txn_id, [part]))
        ledger.write("w", type(None), lambda it: transactions.set_versions(it, made.txn_id, {part: 1}))

    def test_what_a_node_has_never_falls(self, ledger: Ledger) -> None:
        part = Partition("d", "t", "p")
        ledger.write("w", type(None), lambda it: partitions.create(it, part, {0: ["n", "m"], 1: ["n"]}))
        for version in (3, 2):
            self._reached(ledger, part, version)
        known = {
            (replica.tablet.bucket, replica.node): replica.version
            for replica in ledger.read("r", lambda it: partitions.replicas(it, [part]))
        }
        assert known == {(0, "n"): 3, (0, "m"): 0, (1, "n"): 0}
        for version in (1, 2):
            ledger.write("w", bool, partial(partitions.make_visible, partition=part, version=version))
        behind = ledger.read("r", partitions.lagging)
        assert {(r.tablet, r.node, visible) for r, visible in behind} == {
            (Tablet(part, 0), "m", 2),
            (Tablet(part, 1), "n", 2),
        }

    def test_a_node_that_lags_in_much_does_not_hide_what_others_lag_in(self, ledger: Ledger) -> None:
        for name in ("p", "q", "r"):
            part = Partition("d", "t", name)
            placed = {0: ["n"], 1: ["n", "x"]} if name == "r" else {0: ["n"], 1: ["n"]}
            ledger.write("w", type(None), partial(partitions.create, partition=part, nodes=placed))
            ledger.write("w", bool, partial(partitions.make_visible, partition=part, version=1))
        behind = ledger.read("r", partitions.lagging)
        assert len(behind) == 7
        assert {replica.node for replica, _ in behind[:2]} == {"n", "x"}

    # --- leases ---------------------------------------------------------------------------------------

    def test_a_lease_that_runs_is_not_taken_and_one_that_has_run_out_is(
        self, ledger: Ledger, databases: Databases
    ) -> None:
        leases = Leases(ledger)
        first = leases.acquire("x", "one", 300)
        assert first.epoch == 1
        with pytest.raises(NotYet):
            leases.acquire("x", "two", 300)
        assert leases.current("x") == first
        databases.pass_ms(ledger, 320)
        second = leases.acquire("x", "two", HOUR_MS)
        assert (second.owner, second.epoch) == ("two", 2)

    def test_a_renewed_lease_runs_on(self, ledger: Ledger, databases: Databases) -> None:
        leases = Leases(ledger)
        lease = leases.renew(leases.acquire("x", "one", 300), HOUR_MS)
        databases.pass_ms(ledger, 320)
        with pytest.raises(NotYet):
            leases.acquire("x", "two", 300)
        assert lease.epoch == 1

    def test_a_released_lease_is_free_at_once(self, ledger: Ledger) -> None:
        leases = Leases(ledger)
        leases.release(leases.acquire("x", "one", HOUR_MS))
        second = leases.acquire("x", "two", HOUR_MS)
        leases.release(second.__class__("x", "one", 1, 0))  # late, of the owner before
        assert leases.current("x") == second

    def test_a_deposed_owner_changes_nothing(self, ledger: Ledger) -> None:
        leases = Leases(ledger)
        old = leases.acquire("x", "one", 0)
        new = leases.acquire("x", "two", HOUR_MS)

        def work(connection: sa.Connection) -> None:
            leases.fence(connection, old)
            begin(connection, "a")

        with pytest.raises(NotLeader, match="two's with epoch 2"):
            ledger.write("w", type(None), work)
        with pytest.raises(NotLeader):
            leases.renew(old, HOUR_MS)
        assert ledger.read("r", lambda it: transactions.find_live(it, "d", "a")) is None
        assert leases.current("x") == new

    def test_the_same_owner_that_comes_back_has_a_new_epoch(self, ledger: Ledger) -> None:
        leases = Leases(ledger)
        old = leases.acquire("x", "one", HOUR_MS)
        assert leases.acquire("x", "one", HOUR_MS).epoch == 2
        with pytest.raises(NotLeader):
            leases.renew(old, HOUR_MS)

    def test_nobody_takes_a_lease_while_a_fenced_write_is_under_way(
        self, ledger: Ledger, databases: Databases
    ) -> None:
        leases = Leases(ledger)
        lease = leases.acquire("x", "one", 0)
        fenced, go_on = threading.Event(), threading.Event()
        order: list[str] = []

        def slow(connection: sa.Connection) -> None:
            leases.fence(connection, lease)
            fenced.set()
            assert go_on.wait(20)
            begin(connection, "a")
            order.append("written")

        def take(other: Ledger) -> None:
            Leases(other).acquire("x", "two", HOUR_MS)
            order.append("taken")

        with databases.open() as other, ThreadPoolExecutor(2) as pool:
            writing = pool.submit(ledger.write, "w", type(None), slow)
            assert fenced.wait(20)
            taking = pool.submit(take, other)
            time.sleep(0.1)  # nothing is waited for: it must still not be taken when this is over
            assert not taking.done()
            go_on.set()
            writing.result(20)
            taking.result(20)
        assert order == ["written", "taken"]

    def test_of_many_that_take_a_new_lease_at_once_one_does(self, ledger: Ledger) -> None:
        leases = Leases(ledger)

        def take(number: int) -> bool:
            try:
                leases.acquire("x", f"owner {number}", HOUR_MS)
            except NotYet:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(take, range(16))) == 1

    # --- schema ---------------------------------------------------------------------------------------

    def test_the_revisions_end_in_the_schema_that_is_used(self, ledger: Ledger) -> None:
        assert ledger.read("r", lambda it: schema_differences(it, schema.metadata)) == []

    def test_a_schema_that_differs_would_be_seen(self, ledger: Ledger) -> None:
        """Check the comparison: a missing, a further and a wider column, and an index of other columns."""
        other = sa.MetaData()
        for table in schema.metadata.tables.values():
            table.to_metadata(other)
        lease = other.tables["lease"]
        lease.append_column(sa.Column("name", sa.String(200), primary_key=True), replace_existing=True)
        lease.append_column(sa.Column("colour", sa.String(10)))
        other.remove(other.tables["storage_node"])
        (age,) = other.tables["table_change"].indexes
        other.tables["table_change"].indexes.remove(age)
        found = ledger.read("r", lambda it: schema_differences(it, other))
        kinds = sorted(str(change[0][0] if isinstance(change, list) else change[0]) for change in found)
        assert kinds == ["add_column", "modify_type", "remove_index", "remove_table"]

    def test_an_older_schema_is_brought_forward_with_its_rows(
        self, databases: Databases, tmp_path: Path
    ) -> None:
        with databases.open() as older:
            made = older.write("w", Transaction, lambda it: begin(it, "a"))
        with databases.open(next_revision(tmp_path)) as newer:
            assert newer.read("r", lambda it: transactions.find_live(it, "d", "a")) == made
            colour = sa.text("SELECT colour FROM load_transaction")
            assert newer.read("r", lambda it: it.scalars(colour).all()) == [None]

    def test_a_newer_schema_is_refused(self, databases: Databases, tmp_path: Path) -> None:
        databases.open(next_revision(tmp_path)).close()
        with pytest.raises(SchemaTooNew, match=f"revision {HEAD} or an earlier one; found revision next"):
            databases.open()

    def test_a_revision_that_was_cut_short_is_run_again(self, databases: Databases, tmp_path: Path) -> None:
        databases.open().close()
        with pytest.raises(sa.exc.DBAPIError):
            databases.open(next_revision(tmp_path / "broken", 'op.execute("no SQL")'))
        whole = next_revision(tmp_path / "whole")
        with databases.open(whole) as ledger:
            assert ledger.read("r", present_revision) == whole.head
            begun = ledger.write("w", Transaction, lambda it: begin(it, "a"))
            assert ledger.read("r", lambda it: transactions.find_live(it, "d", "a")) == begun

    def test_a_first_start_may_be_cut_short_after_each_definition(self, databases: Databases) -> None:
        """Break each start off after the first definition that none before it came to."""
        sent: set[str] = set()

        def cut_after(statement: str) -> None:
            if statement not in sent:
                sent.add(statement)
                raise _CutShort

        tables = len(schema.metadata.tables)
        indexes = sum(len(table.indexes) for table in schema.metadata.tables.values())

        def opened() -> Ledger | None:
            try:
                return databases.open()
            except _CutShort:
                return None

        cut_short = 0
        with listening_for_definitions(cut_after):
            while (ledger := opened()) is None:
                cut_short += 1
        assert cut_short >= tables + indexes + 1  # the table of the version; later revisions add columns
        with ledger:
            assert ledger.read("r", lambda it: schema_differences(it, schema.metadata)) == []
            assert ledger.read("r", present_revision) == HEAD

    def test_a_schema_that_is_up_to_date_is_not_touched(self, databases: Databases) -> None:
        databases.open().close()
        sent: list[str] = []
        with listening_for_definitions(sent.append):
            databases.open().close()
        assert sent == []

    def test_the_database_may_be_that_of_another_program_with_alembic(self, databases: Databases) -> None:
        """Use the database of Airflow, for one, whose own note of a version must not be read, changed or
        missed."""
        statements = (
            "DROP TABLE IF EXISTS rtolap_schema_version",
            "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)",
            "INSERT INTO alembic_version (version_num) VALUES ('of_airflow')",
        )

        def prepare(connection: sa.Connection) -> None:
            for statement in statements:
                connection.exec_driver_sql(statement)

        with databases.open() as ledger:
            ledger.write("w", type(None), prepare)
        with databases.open() as ledger:  # all revisions again, beside it
            theirs = sa.text("SELECT version_num FROM alembic_version")
            assert ledger.read("r", lambda it: it.scalars(theirs).all()) == ["of_airflow"]
            assert ledger.read("r", present_revision) == HEAD

    def test_many_programs_may_start_at_once(self, databases: Databases) -> None:
        with ThreadPoolExecutor(6) as pool:
            for ledger in list(pool.map(lambda _: databases.open(), range(6))):
                ledger.close()

    # --- jobs and offsets of loaders ------------------------------------------------------------------

    def test_a_job_is_kept_and_its_owner_reports(self, ledger: Ledger) -> None:
        jobs = LoadJobs(ledger)
        jobs.create("j", "d", "t", "topic", '{"batch_rows": 1}')
        with pytest.raises(CommitConflict):
            jobs.create("j", "d", "t", "topic", "{}")
        jobs.change_state("j", LoadJobEvent.START, "started")
        lease = jobs.leases.acquire("j", "host", HOUR_MS)
        jobs.fail(lease, "the topic is gone")
        job = jobs.get("j")
        assert (job.state, job.reason, job.owner, job.epoch) == ("FAILED", "the topic is gone", "host", 1)
        assert jobs.all() == (job,)
        jobs.leases.acquire("j", "host", HOUR_MS)
        with pytest.raises(NotLeader):
            jobs.fail(lease, "")
        with pytest.raises(NotFound):
            jobs.leases.acquire("nobody", "host", HOUR_MS)

    def test_a_job_takes_the_steps_of_its_table_and_no_others(self, ledger: Ledger) -> None:
        jobs = LoadJobs(ledger)
        for number, (state, event) in enumerate(product(LoadJobState, LoadJobEvent)):
            job_id = f"j{number}"
            before, lease = self._job_in(jobs, job_id, state)
            after = TRANSITIONS.get((state, event))
            if after is None:
                legal = ", ".join(sorted(known for at, known in TRANSITIONS if at is state))
                with pytest.raises(
                    IllegalTransition, match=f"{job_id} cannot take {event}.*{legal} in {state}"
                ):
                    jobs.change_state(job_id, event, "new")
                assert jobs.get(job_id) == before
                continue
            if event is LoadJobEvent.FAIL:
                jobs.fail(lease, "new")
            elif event is LoadJobEvent.RESET:
                jobs.leases.release(lease)
                jobs.define_again(job_id, lambda _: "{}")
            else:
                assert jobs.change_state(job_id, event, "new") == jobs.get(job_id)
            job = jobs.get(job_id)
            assert job.state is after
            if event is LoadJobEvent.RESET:
                assert job.reason == ""
            elif after is state:
                assert job.reason == before.reason
            elif (state, after) == (LoadJobState.FAILED, LoadJobState.STOPPED):
                assert job.reason == "new; it had failed: as it was"
            else:
                assert job.reason == "new"

    def test_a_process_starts_a_job_once_wherever_it_is_killed(self, ledger: Ledger) -> None:
        """Before it has started it: the next try does. Behind that: what somebody has wanted since stands."""
        jobs = LoadJobs(ledger)
        for state, wanted in product(LoadJobState, (None, *LoadJobEvent)):
            job_id = f"{state.value}-{wanted}"
            self._job_in(jobs, job_id, state)
            started = jobs.start(job_id, "agent generation 2", again=True)
            runs = LoadJobState.PAUSED if state is LoadJobState.PAUSED else LoadJobState.RUNNING
            assert (started.state, started.started_by) == (runs, "agent generation 2")
            if wanted is not None and (runs, wanted) in TRANSITIONS:
                jobs.change_state(job_id, wanted, "asked")
            before = jobs.get(job_id)
            assert jobs.start(job_id, "agent generation 2", again=True) == before, "it has started it"
            by_hand = jobs.start(job_id, "another", again=False)
            ended = before.state in (LoadJobState.STOPPED, LoadJobState.FAILED)
            assert by_hand.state is (LoadJobState.RUNNING if ended else before.state)

    @pytest.mark.parametrize("event", [LoadJobEvent.PAUSE, LoadJobEvent.RESUME])
    def test_a_change_of_a_job_is_judged_anew_when_it_fails_meanwhile(
        self, ledger: Ledger, event: LoadJobEvent
    ) -> None:
        jobs = LoadJobs(ledger)
        state = LoadJobState.RUNNING if event is LoadJobEvent.PAUSE else LoadJobState.PAUSED
        _, lease = self._job_in(jobs, "j", state)

        class FailsOnceRead(LoadJobs):
            def get(self, job_id: str) -> LoadJob:
                job = super().get(job_id)
                jobs.fail(lease, "the topic is gone")
                return job

        with pytest.raises(IllegalTransition, match="in FAILED; found history the topic is gone"):
            FailsOnceRead(ledger).change_state("j", event, "by hand")
        job = jobs.get("j")
        assert (job.state, job.reason) == (LoadJobState.FAILED, "the topic is gone")

    def test_a_change_of_a_job_that_others_change_all_the_time_is_given_up(self, ledger: Ledger) -> None:
        jobs = LoadJobs(ledger)
        self._job_in(jobs, "j", LoadJobState.RUNNING)

        class NeverInTime(LoadJobs):
            def get(self, job_id: str) -> LoadJob:
                job = super().get(job_id)
                paused = job.state is LoadJobState.PAUSED
                jobs.change_state(job_id, LoadJobEvent.RESUME if paused else LoadJobEvent.PAUSE, "others")
                return job

        with pytest.raises(CommitConflict):
            NeverInTime(ledger).change_state("j", LoadJobEvent.STOP, "by hand")
        assert jobs.get("j").reason == "others"

    def test_a_job_that_fails_while_many_change_it_stays_failed(self, databases: Databases) -> None:
        with databases.open() as ledger:
            jobs = LoadJobs(ledger)
            _, lease = self._job_in(jobs, "j", LoadJobState.RUNNING)
            ready = threading.Barrier(4)

            def pause_and_resume() -> None:
                ready.wait(30)
                try:
                    for _ in range(10):
                        jobs.change_state("j", LoadJobEvent.PAUSE, "by hand")
                        jobs.change_state("j", LoadJobEvent.RESUME, "by hand")
                except (IllegalTransition, CommitConflict):
                    return

            with ThreadPoolExecutor(4) as pool:
                changes = [pool.submit(pause_and_resume) for _ in range(3)]
                ready.wait(30)
                jobs.fail(lease, "the topic is gone")
                for change in changes:
                    change.result(60)
            job = jobs.get("j")
            assert (job.state, job.reason) == (LoadJobState.FAILED, "the topic is gone")

    def test_a_job_is_removed_only_as_it_was_made(self, ledger: Ledger) -> None:
        jobs = LoadJobs(ledger)
        made = jobs.create("j", "d", "t", "topic", "{}")
        jobs.change_state("j", LoadJobEvent.START, "started")
        with pytest.raises(Refused, match="changed or run since"):
            jobs.remove(made)
        jobs.change_state("j", LoadJobEvent.STOP, made.reason)
        jobs.remove(made)
        assert jobs.all() == ()
        with pytest.raises(NotFound):
            jobs.remove(made)
        jobs.create("j", "d", "t", "topic", "{}")

    def test_a_batch_is_recorded_only_where_the_one_before_it_ends(self, ledger: Ledger) -> None:
        lease, records = self._job(ledger)
        records.insert(lease, 1, "j_1", {0: 0, 1: 5}, {0: 10, 1: 5})
        for sequence, start in ((3, {0: 10, 1: 5}), (2, {0: 11, 1: 5}), (2, {0: 9, 1: 5}), (2, {0: 10})):
            with pytest.raises(Refused, match="hole or an overlap"):
                records.insert(lease, sequence, "j_x", start, {**start, 0: 20})
        second = records.insert(lease, 2, "j_2", {0: 10, 1: 5, 2: 0}, {0: 12, 1: 5, 2: 1})  # a new partition
        with pytest.raises(CommitConflict):
            records.insert(lease, 2, "j_2b", {0: 12, 1: 5, 2: 1}, {0: 13, 1: 5, 2: 1})
        with pytest.raises(CommitConflict):
            records.insert(lease, 3, "j_1", {0: 12, 1: 5, 2: 1}, {0: 13, 1: 5, 2: 1})
        with pytest.raises(DefinitionError, match="no ranges"):
            records.insert(lease, 3, "j_3", {0: 12, 1: 5, 2: 1}, {0: 11, 1: 5, 2: 1})
        assert records.all("j")[1] == second

    def test_only_what_is_loaded_without_a_hole_is_committed_and_the_newest_stays(
        self, ledger: Ledger
    ) -> None:
        lease, records = self._job(ledger)
        for number in range(1, 6):
            records.insert(lease, number, f"j_{number}", {0: number}, {0: number + 1})
        assert records.commit(lease) is None
        for number in (3, 1, 5):
            records.mark_loaded(lease, number, Loaded(txn_id=number, row_count=1))
        assert records.commit(lease) == 1
        assert [record.sequence_id for record in records.all("j")] == [1, 2, 3, 4, 5]
        records.mark_loaded(lease, 2, Loaded(txn_id=2, row_count=1))
        assert records.commit(lease) == 3
        assert [record.sequence_id for record in records.all("j")] == [3, 4, 5]
        records.mark_loaded(lease, 4, Loaded(txn_id=4, row_count=1))
        assert (records.commit(lease), records.commit(lease)) == (5, 5)
        (last,) = records.all("j")
        assert (last.sequence_id, last.loaded, last.committed, last.end_offsets) == (5, True, True, {0: 6})

    def test_requests_are_counted_and_a_label_stands_for_one_content(self, ledger: Ledger) -> None:
        lease, records = self._job(ledger)
        records.insert(lease, 1, "j_1", {0: 0}, {0: 1})
        first = records.mark_sent(lease, 1, "abc")
        again = records.mark_sent(lease, 1, "abc")
        assert (again.attempts, again.first_sent_at_ms) == (2, first.first_sent_at_ms)
        with pytest.raises(Refused, match="cannot be sent again"):
            records.mark_sent(lease, 1, "other")
        loaded = records.mark_loaded(lease, 1, Loaded(7, 100, 1, "http://errors"))
        assert records.mark_loaded(lease, 1, Loaded(8, 0)) == loaded
        assert (loaded.txn_id, loaded.row_count, loaded.filtered_rows) == (7, 100, 1)
        with pytest.raises(NotFound):
            records.mark_sent(lease, 2)

    def test_a_deposed_loader_changes_no_record(self, ledger: Ledger) -> None:
        lease, records = self._job(ledger)
        records.insert(lease, 1, "j_1", {0: 0}, {0: 1})
        before = records.all("j")
        Leases(ledger, schema.load_job).acquire("j", "host", HOUR_MS)
        writes: list[Callable[[], object]] = [
            lambda: records.insert(lease, 2, "j_2", {0: 1}, {0: 2}),
            lambda: records.mark_sent(lease, 1),
            lambda: records.mark_loaded(lease, 1, Loaded(1, 1)),
            lambda: records.commit(lease),
        ]
        for write in writes:
            with pytest.raises(NotLeader):
                write()
        assert records.all("j") == before

    def test_a_job_defined_anew_remembers_nothing_and_its_old_owner_writes_nothing(
        self, ledger: Ledger
    ) -> None:
        lease, records = self._job(ledger)
        records.insert(lease, 1, "j_1", {0: 0}, {0: 1})
        jobs = LoadJobs(ledger)
        with pytest.raises(Refused):
            jobs.define_again("j", lambda _: "{}")
        jobs.leases.release(lease)
        assert jobs.define_again("j", lambda it: f'{{"a": {len(it[0])}}}').incarnation == 2
        assert jobs.get("j").config == '{"a": 1}'
        assert records.all("j") == ()
        with pytest.raises(NotLeader):
            records.insert(lease, 1, "j_1", {0: 0}, {0: 1})

    def test_a_job_is_not_defined_anew_while_what_it_has_sent_is_not_known_unless_that_is_abandoned(
        self, ledger: Ledger
    ) -> None:
        lease, records = self._job(ledger)
        records.insert(lease, 1, "j_1", {0: 0}, {0: 1})
        records.mark_sent(lease, 1)
        jobs = LoadJobs(ledger)
        jobs.leases.release(lease)
        with pytest.raises(Refused, match="j_1"):
            jobs.define_again("j", lambda _: "{}")
        assert jobs.get("j").incarnation == 1
        assert jobs.define_again("j", lambda _: "{}", abandon=True).incarnation == 2

    def _reached(self, ledger: Ledger, part: Partition, version: int) -> None:
        ledger.write("w", type(None), lambda it: partitions.reached(it, "n", part, [0], version))

    def _job_in(self, jobs: LoadJobs, job_id: str, state: LoadJobState) -> tuple[LoadJob, Lease]:
        jobs.create(job_id, "d", "t", "topic", "{}")
        lease = jobs.leases.acquire(job_id, "host", HOUR_MS)
        jobs.change_state(job_id, LoadJobEvent.START, "as it was")
        if state is LoadJobState.FAILED:
            jobs.fail(lease, "as it was")
        elif state is not LoadJobState.RUNNING:
            event = LoadJobEvent.PAUSE if state is LoadJobState.PAUSED else LoadJobEvent.STOP
            jobs.change_state(job_id, event, "as it was")
        return jobs.get(job_id), lease

    def _job(self, ledger: Ledger) -> tuple[Lease, OffsetsRecords]:
        jobs = LoadJobs(ledger)
        jobs.create("j", "d", "t", "topic", "{}")
        return jobs.leases.acquire("j", "host", HOUR_MS), OffsetsRecords(ledger)

    # --- stored tables --------------------------------------------------------------------------------

    def test_tables_are_found_by_name_and_never_share_an_id(self, ledger: Ledger) -> None:
        first = write(ledger, lambda it: tables.insert(it, DAILY, initial_schema(DAILY), 5), DefinedTable)
        assert read(ledger, lambda it: tables.get(it, "d", "daily")) == first
        assert read(ledger, lambda it: tables.find(it, "d", "Daily")) is None
        with pytest.raises(CommitConflict):
            write(ledger, lambda it: tables.insert(it, DAILY, initial_schema(DAILY), 5), DefinedTable)
        write(ledger, lambda it: tables.delete(it, first), type(None))
        with pytest.raises(NotFound):
            read(ledger, lambda it: tables.get(it, "d", "daily"))
        again = write(ledger, lambda it: tables.insert(it, DAILY, initial_schema(DAILY), 6), DefinedTable)
        assert again.table_id > first.table_id

    def test_what_is_visible_of_several_tables_is_read_at_once(self, ledger: Ledger) -> None:
        table = write(ledger, lambda it: tables.insert(it, DAILY, initial_schema(DAILY), 5), DefinedTable)
        parts = [partition_of(day * 24 * HOUR_MS, "day") for day in (3, 1, 2)]

        def fill(connection: sa.Connection) -> None:
            for part in parts:
                tables.add_partition(connection, table, part, {0: ("a", "b"), 1: ("b",)})
            where = tables.partition(connection, table, parts[0])
            assert partitions.assign(connection, where) == 1
            assert partitions.make_visible(connection, where, 1)

        write(ledger, fill, type(None))
        found = read(ledger, lambda it: tables.visible(it, [("d", "daily"), ("d", "nope")]))
        assert found == {("d", "daily"): (table, {parts[1]: (0, 2), parts[2]: (0, 3), parts[0]: (1, 1)})}
        assert list(found["d", "daily"][1]) == sorted(parts)
        assert read(ledger, lambda it: tables.ranges(it, table)) == tuple(sorted(parts))
        assert len(read(ledger, lambda it: partitions.replicas_of(it, "d", "daily"))) == 9
        versions = read(ledger, lambda it: partitions.versions_of(it, "d", "daily"))
        assert versions[parts[0].name] == PartitionVersions(1, 1)
        write(ledger, lambda it: tables.delete_partition(it, table, parts[0]), type(None))
        assert set(read(ledger, lambda it: tables.visible(it, [("d", "daily")]))["d", "daily"][1]) == {
            *parts[1:]
        }

    def test_a_partition_that_is_made_again_is_another_one(self, ledger: Ledger) -> None:
        table = write(ledger, lambda it: tables.insert(it, DAILY, initial_schema(DAILY), 5), DefinedTable)
        part, other = (partition_of(day * 24 * HOUR_MS, "day") for day in (1, 2))
        add = partial(tables.add_partition, table=table, nodes={0: ("a",)})
        first = write(ledger, partial(add, part=part), Partition)
        assert write(ledger, partial(add, part=other), Partition).incarnation == 2
        write(ledger, lambda it: partitions.assign(it, first), int)
        write(ledger, lambda it: partitions.reached(it, "a", first, (0,), 1), type(None))
        write(ledger, lambda it: tables.delete_partition(it, table, part), type(None))
        again = write(ledger, partial(add, part=part), Partition)
        assert (first.incarnation, again.incarnation) == (1, 3)
        assert read(ledger, lambda it: tables.last_incarnation(it, table.table_id)) == 3
        assert read(ledger, lambda it: partitions.named(it, "d", "daily", part.name)) == again
        # What belongs to the one that was dropped finds nothing, and changes nothing.
        assert read(ledger, lambda it: partitions.versions(it, first)) is None
        assert read(ledger, lambda it: partitions.replicas(it, (first,))) == ()
        with pytest.raises(NotFound):
            write(ledger, lambda it: partitions.assign(it, first), int)
        write(ledger, lambda it: partitions.reached(it, "a", first, (0,), 7), type(None))
        (replica,) = read(ledger, lambda it: partitions.replicas(it, (again,)))
        assert (replica.tablet.partition, replica.version) == (again, 0)

    def test_a_task_that_comes_twice_is_of_the_later_incarnation(self, ledger: Ledger) -> None:
        first = PendingTabletTask(2, "d", "t", "q", "n", "drop", (3,), 1)
        later = PendingTabletTask(2, "d", "t", "q", "n", "drop", (4,), 2)
        for task in (first, later, first):
            write(ledger, lambda it, task=task: pending_tablet_tasks.add_tasks(it, (task,)), type(None))  # type: ignore[misc]
        both = PendingTabletTask(2, "d", "t", "q", "n", "drop", (3, 4), 2)
        assert read(ledger, pending_tablet_tasks.all_tasks) == (both,)
        write(ledger, lambda it: pending_tablet_tasks.complete(it, first), type(None))
        assert read(ledger, pending_tablet_tasks.all_tasks) == (both,)
        write(ledger, lambda it: pending_tablet_tasks.complete(it, both), type(None))
        assert read(ledger, pending_tablet_tasks.all_tasks) == ()

    def test_a_change_is_noted_with_its_answer_until_that_is_forgotten(self, ledger: Ledger) -> None:
        def note(connection: sa.Connection, request_id: str, at_ms: int) -> None:
            table_changes.note(connection, request_id, "fingerprint", '{"answer": "é"}', at_ms)

        def find(connection: sa.Connection, request_id: str, fingerprint: str) -> str | None:
            return table_changes.find(connection, request_id, fingerprint)

        for request_id, at_ms in (("old", 10), ("young", 20), ("Young", 20)):
            ledger.write("w", type(None), partial(note, request_id=request_id, at_ms=at_ms))
        with pytest.raises(CommitConflict):
            ledger.write("w", type(None), partial(note, request_id="old", at_ms=30))
        with pytest.raises(Refused, match="request old has been another change"):
            ledger.read("r", partial(find, request_id="old", fingerprint="another"))
        assert ledger.write("w", int, lambda it: table_changes.forget(it, 20)) == 1
        found = [
            ledger.read("r", partial(find, request_id=request_id, fingerprint="fingerprint"))
            for request_id in ("old", "young", "Young")
        ]
        assert found == [None, '{"answer": "é"}', '{"answer": "é"}']

    def test_debts_are_paid_in_the_order_of_tables_dropping_first(self, ledger: Ledger) -> None:
        made = PendingTabletTask(2, "d", "t", "p", "n", "create", (0, 1))
        dropped = PendingTabletTask(2, "d", "t", "q", "n", "drop", (3,))
        older = PendingTabletTask(1, "d", "t", "", "n", "schema")
        write(ledger, lambda it: pending_tablet_tasks.add_tasks(it, (made, dropped, older)), type(None))
        write(ledger, lambda it: pending_tablet_tasks.add_tasks(it, (made,)), type(None))
        assert read(ledger, pending_tablet_tasks.all_tasks) == (older, dropped, made)
        write(ledger, lambda it: pending_tablet_tasks.cancel(it, 2), type(None))
        assert read(ledger, pending_tablet_tasks.all_tasks) == (older, dropped)
        write(ledger, lambda it: pending_tablet_tasks.complete(it, older), type(None))
        write(ledger, lambda it: pending_tablet_tasks.complete(it, older), type(None))
        assert read(ledger, lambda it: pending_tablet_tasks.of_table(it, 2)) == (dropped,)


def read(ledger: Ledger, work: Callable[[sa.Connection], R]) -> R:
    return ledger.read("r", work)


def write(ledger: Ledger, work: Callable[[sa.Connection], R], kind: type[R]) -> R:
    return ledger.write("w", kind, work)
