"""A ledger repeats reads and writes until they are known to stand, or gives up with the reason.

A write, numbered by what a break after each step leaves behind:

    1. BEGIN
    2. INSERT the write's key         nothing; who repeats the write meanwhile waits for this row's lock
    3. the work                       nothing
    4. COMMIT is sent                 everything or nothing: the repetition finds the key, or it does not
    5. COMMIT is acknowledged

The key goes in first. A repetition that comes while the first attempt's commit is still under way in the
server (our connection broke, its end of it did not yet) therefore waits at step 2 instead of working on rows
that are about to change, and then returns the result that stands beside the key.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import RLock
from typing import Self, TypeVar

import msgspec
import sqlalchemy as sa
import tenacity

from rtolap.base.clock import Clock, SystemClock
from rtolap.base.closeable import Closeable
from rtolap.base.decoding import decode_json
from rtolap.base.errors import CommitConflict, CommitUnknown, Unauthorized, Unavailable
from rtolap.base.files import read_password
from rtolap.stored.metastore.dialects import Dialect, MySqlDialect, SqliteDialect, checked_address
from rtolap.stored.metastore.schema import applied_write
from rtolap.stored.metastore.upgrade import SHIPPED, Revisions, present_revision, upgrade_schema

log = logging.getLogger(__name__)

R = TypeVar("R")

Connection = sa.Connection  # within a read or a write; its users need no more of SQLAlchemy than this

RETRY_BUDGET_S = 30.0
# A repetition comes within the retry budget of its caller; keys older than this are of no more use.
KEY_KEPT_MS = 3_600_000
_KEYS_FORGOTTEN_MAX = 10_000  # at a time, to hold few locks
_PAUSE_S = 0.02
_PAUSE_MAX_S = 1.0
# Of every write: to put them together each time takes longer than to send them.
_NOTE_KEY = sa.insert(applied_write)
_NOTE_RESULT = sa.update(applied_write).where(applied_write.c.write_key == sa.bindparam("of_key"))


class Ledger(Closeable):
    """The ledger, whose calls are all thread-safe. Raises Unavailable (nothing was written), CommitUnknown
    (perhaps it was: read back) and Unauthorized, and what the work raises, which rolls it back."""

    def __init__(
        self,
        engine: sa.Engine,
        dialect: Dialect,
        *,
        retry_budget_s: float = RETRY_BUDGET_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._engine = engine
        self._dialect = dialect
        self._retry_budget = LedgerRetryBudget(dialect, retry_budget_s, sleep)
        one_connection = isinstance(engine.pool, sa.pool.StaticPool)
        self._one_at_a_time = RLock() if one_connection else nullcontext()

    @classmethod
    def open(
        cls,
        address: str,
        *,
        password_file: Path | None = None,
        clock: Clock | None = None,
        revisions: Revisions = SHIPPED,
        retry_budget_s: float = RETRY_BUDGET_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Self:
        """Open `mysql://user@host:port/database` (its password from the file) or `sqlite:///path`, brought to
        the newest revision of its schema. `sqlite://` lives in memory, as long as the object.

        `clock` is that of the database where it is embedded; a server has its own.
        Raises DefinitionError, SchemaTooNew.
        """
        url = checked_address(address)
        if password_file is not None:
            url = url.set(password=read_password(password_file, "the ledger's database"))
        dialect: Dialect
        if url.get_backend_name() == "sqlite":
            dialect = SqliteDialect(clock or SystemClock())
        else:
            url = url.set(drivername="mysql+pymysql")
            dialect = MySqlDialect()
        ledger = cls(dialect.create_engine(url), dialect, retry_budget_s=retry_budget_s, sleep=sleep)
        try:
            ledger._retry_budget.repeat(
                "bring the ledger's schema up to date", lambda: ledger._upgrade(revisions)
            )
        except BaseException:
            ledger.close()
            raise
        return ledger

    def close(self) -> None:
        self._engine.dispose()

    def now_ms(self, connection: sa.Connection) -> int:
        """Return the database's clock."""
        return self._dialect.now_ms(connection)

    def read(self, purpose: str, work: Callable[[sa.Connection], R]) -> R:
        """Read in a transaction. Errors name what was attempted (`purpose`). `work` may be called more than
        once."""

        def attempt() -> R:
            with self._connection() as connection:
                self._dialect.begin_read(connection)
                with connection.begin():
                    return work(connection)

        return self._retry_budget.repeat(purpose, attempt)

    def write(
        self, purpose: str, kind: type[R], work: Callable[[sa.Connection], R], *, key: str | None = None
    ) -> R:
        """Return the work's result, committed exactly once for its key; a write with a key that was applied
        before returns what it returned then. `kind`: the type of the stored result (msgspec, JSON).

        The work may be done more than once, but not more than one of these stands. CommitConflict: a unique
        key of its tables is taken.
        """
        unique = key or uuid.uuid4().hex

        def attempt() -> R:
            with self._connection() as connection:
                transaction = connection.begin()
                try:
                    applied, result = self._apply(connection, unique, kind, work, purpose)
                except BaseException:
                    self._roll_back(connection, transaction)
                    raise
                if applied:
                    self._commit(transaction)
                else:
                    self._roll_back(connection, transaction)
                return result

        return self._retry_budget.repeat(purpose, attempt)

    def forget_keys(self) -> int:
        """Delete old keys of writes; returns their number."""

        def work(connection: sa.Connection) -> int:
            old = applied_write.c.written_at_ms < self.now_ms(connection) - KEY_KEPT_MS
            keys = connection.scalars(
                sa.select(applied_write.c.write_key).where(old).limit(_KEYS_FORGOTTEN_MAX)
            )
            result = list(keys)
            if result:
                connection.execute(sa.delete(applied_write).where(applied_write.c.write_key.in_(result)))
            return len(result)

        return self.write("forget the keys of old writes", int, work)

    def _apply(
        self,
        connection: sa.Connection,
        key: str,
        kind: type[R],
        work: Callable[[sa.Connection], R],
        purpose: str,
    ) -> tuple[bool, R]:
        """Return (whether there is something to commit, the result)."""
        table = applied_write
        now_ms = self.now_ms(connection)
        try:
            connection.execute(_NOTE_KEY, {"write_key": key, "result": "null", "written_at_ms": now_ms})
        except sa.exc.IntegrityError:
            # costs the statement only, on all servers; the transaction goes on
            stored = connection.scalar(sa.select(table.c.result).where(table.c.write_key == key))
            if stored is None:
                raise CommitConflict(f"{purpose}: the key of a write was taken and given up") from None
            return False, decode_json(stored, kind)
        try:
            result = work(connection)
        except sa.exc.IntegrityError as error:
            raise CommitConflict(f"{purpose}: a unique key is taken", found=reason(error)) from error
        if result is not None:
            encoded = msgspec.json.encode(result).decode()
            connection.execute(_NOTE_RESULT, {"of_key": key, "result": encoded})
        return True, result

    def _commit(self, transaction: sa.RootTransaction) -> None:
        try:
            transaction.commit()
        except sa.exc.DBAPIError as error:
            if self._dialect.is_lost(error):
                raise self._in_doubt(error) from error
            raise

    def _in_doubt(self, error: sa.exc.DBAPIError) -> Exception:
        """Return the error of a connection that broke at a commit. The write is repeated, and finds its key
        if it stands."""
        return Transient(error, in_doubt=True)

    def _roll_back(self, connection: sa.Connection, transaction: sa.RootTransaction) -> None:
        try:
            transaction.rollback()
        except sa.exc.DBAPIError as error:
            # the server rolls back by itself what nobody committed; the error that led here goes on
            log.debug("the ledger's connection broke during a rollback: %s", reason(error))
            connection.invalidate()

    def _upgrade(self, revisions: Revisions) -> None:
        with self._connection() as connection:
            self._dialect.begin_read(connection)
            with connection.begin():
                if present_revision(connection) == revisions.head:
                    return
        with self._connection() as connection:
            upgrade_schema(connection, self._dialect, revisions)

    @contextmanager
    def _connection(self) -> Iterator[sa.Connection]:
        with self._one_at_a_time, self._engine.connect() as connection:
            yield connection


class Transient(Exception):
    """The attempt is to be repeated. `in_doubt`: its commit may be durable."""

    def __init__(self, error: sa.exc.DBAPIError, *, in_doubt: bool) -> None:
        super().__init__(reason(error))
        self.in_doubt = in_doubt
        self.lost = error.connection_invalidated


class LedgerRetryBudget:
    """Repeats an attempt on the database until it succeeds, or until the budget is spent. Thread-safe."""

    def __init__(self, dialect: Dialect, retry_budget_s: float, sleep: Callable[[float], None]) -> None:
        self._dialect = dialect
        self._retry_budget_s = retry_budget_s
        self._sleep = sleep

    def repeat(self, purpose: str, attempt: Callable[[], R]) -> R:
        """Repeat an attempt. Raises Unavailable, CommitUnknown, Unauthorized, and what the attempt raises
        otherwise."""
        in_doubt = False

        def once() -> R:
            nonlocal in_doubt
            try:
                return attempt()
            except Transient as error:
                in_doubt = in_doubt or error.in_doubt
                raise
            except sa.exc.DBAPIError as error:
                if self._dialect.is_denied(error):
                    raise Unauthorized(
                        f"{purpose}: the database refuses the login", found=reason(error)
                    ) from None
                if self._dialect.is_lost(error) or self._dialect.is_busy(error):
                    raise Transient(error, in_doubt=False) from error
                raise

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Transient),
            wait=tenacity.wait_random_exponential(multiplier=_PAUSE_S, max=_PAUSE_MAX_S),
            stop=tenacity.stop_after_delay(self._retry_budget_s),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return retrying(once)
        except Transient as error:
            kind = CommitUnknown if in_doubt else Unavailable
            raise kind(
                f"{purpose}: the ledger's database did not answer within {self._retry_budget_s:g} s",
                found=str(error),
                action="read back before acting" if in_doubt else "try again later",
            ) from error


def reason(error: sa.exc.DBAPIError) -> str:
    """Return the driver's own words, without the statement and its values."""
    return str(error.orig)
