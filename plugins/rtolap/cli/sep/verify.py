"""`rtolap sep verify` compares a mirrored table with HBase, and repairs it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Annotated, Any

import typer

from rtolap.base.clock import SystemClock
from rtolap.base.errors import DefinitionError, TooSlow
from rtolap.base.settings import Settings
from rtolap.cli.output import JsonOption, print_json, print_table, success, warn
from rtolap.cli.progress import progress_of
from rtolap.cli.sep.cluster import ClusterOption, source_of
from rtolap.metadata.store import MetadataStore
from rtolap.model.durations import parse_duration_ms
from rtolap.model.subscription import Subscription
from rtolap.protocols.query.client import QueryClient
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.sep.delivery.requests import ROWS_BYTES_MAX, Request, is_done
from rtolap.sep.listeners.assembly import event_columns, followed_families, open_row_reader
from rtolap.sep.listeners.verify import Mirrored, RowDifference, TableVerifier
from rtolap.sep.shares.requests import post_to_shares
from rtolap.sep.subscriptions.commands import followed_tables
from rtolap.sep.subscriptions.records import SubscriptionRecord, load
from rtolap.sep.subscriptions.source import SourceCluster, open_source

EXIT_DIFFERENT = 3
_ROWS_MAX = 100_000  # that differ and are kept: more are counted by the next run
_CHECK_ROWS = 500
_LOOKS = 3  # a row that differs in each of them is no edit on its way
_POLL_S = 0.5
_TRIES = 60  # about a minute for a region that is on its way: a comparison of a large table takes longer


def verify(
    name: Annotated[str, typer.Argument(help="Name of a subscription whose listener is a unique table.")],
    cluster: ClusterOption = "",
    from_row: Annotated[
        str, typer.Option(help="First row. Bytes that are not text are written as \\xHH.")
    ] = "",
    to_row: Annotated[
        str, typer.Option(help="Row before which to end. Default: the last row is included.")
    ] = "",
    repair: Annotated[bool, typer.Option("--repair", help="Deliver rows that differ again.")] = False,
    pause: Annotated[str, typer.Option(help="Time between two looks at rows that differ.")] = "5s",
    timeout: Annotated[str, typer.Option(help="Time after which a repair is given up.")] = "10m",
    limit: Annotated[int, typer.Option(min=0, help="Number of rows to show.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Compare a mirrored table with a scan of HBase, row by row.

    It finds changes without an edit: an expired time to live, a truncation, a bulk load, rows older than
    the subscription. Exits with 3 when rows differ, or still differ after --repair. The process that
    delivers a row repairs it.
    """
    settings = Settings()
    pause_s, timeout_s = parse_duration_ms(pause) / 1000, parse_duration_ms(timeout) / 1000
    with ExitStack() as opened:
        source = opened.enter_context(open_source(source_of(cluster)))
        subscription = load(source.store, name).subscription
        client = opened.enter_context(
            QueryClient(settings.query_url(), token=settings.token(), ca_file=settings.query_ca)
        )
        verifier = _verifier(opened, source, subscription, client)
        compared = 0
        done = opened.enter_context(progress_of("comparing rows", counts=True))

        def add(rows: int) -> None:
            nonlocal compared
            compared += rows
            done(compared)

        found: list[RowDifference] = []
        for difference in verifier.differences(_row(from_row), _row(to_row), on_rows=add):
            found.append(difference)
            if len(found) >= _ROWS_MAX:
                warn(f"{_ROWS_MAX} rows differ, and no more are looked for; run it again after a repair")
                break
        left = _persistent(verifier, found, pause_s)
        repaired = 0
        if repair and left:
            _repair(source.store, load(source.store, name), left, timeout_s)
            remaining = _persistent(verifier, left, pause_s)
            repaired, left = len(left) - len(remaining), remaining
    counts = Counter(each.kind for each in left)
    if as_json:
        rows = [{"table": each.table, "row": _text(each.row), "kind": each.kind} for each in left[:limit]]
        print_json(
            {"rows": compared, "differ": len(left), "repaired": repaired, "kinds": counts, "first": rows}
        )
    elif left:
        print_table(("table", "row", "kind"), [(e.table, _text(e.row), e.kind) for e in left[:limit]])
        warn(f"{len(left)} of {compared} rows differ: {dict(counts)}; {repaired} are repaired")
    else:
        success(f"{compared} rows are as in HBase; {repaired} of them are repaired")
    if left:
        raise typer.Exit(EXIT_DIFFERENT)


def _verifier(
    opened: ExitStack, source: SourceCluster, subscription: Subscription, client: QueryClient
) -> TableVerifier:
    listener = subscription.listener
    if listener.kind != "stored_table" or listener.database is None or listener.table is None:
        raise DefinitionError(
            f"subscription {subscription.name} mirrors no rows",
            expected="a listener of kind stored_table with a unique table",
            found=listener.kind,
        )
    if subscription.filters:
        raise DefinitionError(
            f"subscription {subscription.name} has filters, which select edits, not rows",
            found=", ".join(subscription.filters),
        )
    families = source.master.replicated_families()
    mirrored = Mirrored(
        followed_tables(subscription, families),
        TableName(listener.database, listener.table),
        event_columns(subscription),
        subscription.row.type,
        {name: column.type for name, column in subscription.columns.items()},
        lambda table: [family.encode() for family in followed_families(subscription, table)],
        [prefix.encode() for prefix in subscription.row_prefixes],
        keeps_extra=subscription.deletes == "ignore",
    )
    reader = opened.enter_context(open_row_reader(subscription, source.store, tries=_TRIES))

    def ask(sql: str, parameters: Sequence[Any]) -> Sequence[Sequence[Any]]:
        return client.query(sql, list(parameters)).rows

    return TableVerifier(mirrored, reader, ask)


def _persistent(verifier: TableVerifier, found: list[RowDifference], pause_s: float) -> list[RowDifference]:
    """Return those that differ in further looks as well."""
    left = found
    for _ in range(_LOOKS - 1):
        if not left:
            return left
        time.sleep(pause_s)
        rows = [(each.table, each.row) for each in left]
        left = [
            difference
            for first in range(0, len(rows), _CHECK_ROWS)
            for difference in verifier.check(rows[first : first + _CHECK_ROWS])
        ]
    return left


def _repair(
    store: MetadataStore, record: SubscriptionRecord, rows: list[RowDifference], timeout_s: float
) -> None:
    """Return once the processes that deliver the rows have read them again. TooSlow: they have not."""
    deadline, name = SystemClock().monotonic_s() + timeout_s, record.name
    for request in _requests(rows):
        paths = post_to_shares(store, record, request)
        while not all(is_done(store, path) for path in paths):
            if SystemClock().monotonic_s() > deadline:
                raise TooSlow(
                    f"rows of subscription {name} were not read again within {timeout_s:g} s",
                    expected="processes that deliver their rows and can load its table",
                    action=f"look at `rtolap sep describe {name}`; it is done once they can",
                )
            time.sleep(_POLL_S)


def _requests(rows: list[RowDifference]) -> Iterator[Request]:
    for table in dict.fromkeys(each.table for each in rows):
        some: list[bytes] = []
        size = 0
        for each in rows:
            if each.table != table or each.kind == "unreadable":
                continue
            if some and size + len(each.row) > ROWS_BYTES_MAX:
                yield Request("read", table, tuple(some))
                some, size = [], 0
            some.append(each.row)
            size += len(each.row) + 16
        if some:
            yield Request("read", table, tuple(some))


def _row(text: str) -> bytes:
    r"""Return the bytes of a row as HBase's shell writes it: `\xHH` is a byte."""
    return text.encode().decode("unicode_escape").encode("latin-1") if "\\x" in text else text.encode()


def _text(row: bytes) -> str:
    return row.decode("utf-8", "backslashreplace")
