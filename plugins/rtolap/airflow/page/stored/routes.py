"""The routes of stored tables, loads and loaders. They read; changes are runs of DAGs.

Records that were refused are data: those routes take the right to ask statements.
"""

from __future__ import annotations

from fastapi import APIRouter, Depends, Response

from rtolap.airflow.declared import RunningLoader, find_loader
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.page.answers import ANSWER_S_MAX, json_answer
from rtolap.airflow.page.rights import asker
from rtolap.airflow.page.stored.loaders import letters_of, loaders_of
from rtolap.airflow.page.stored.loads import containing, error_page, loads_found, loads_of, table_page
from rtolap.base.clock import SystemClock
from rtolap.base.errors import NotFound, RtolapError
from rtolap.base.settings import Settings
from rtolap.protocols.loader.messages import LoaderStatus
from rtolap.protocols.storage.messages import MovesInfo
from rtolap.protocols.stored_tables.client import StoredTablesClient
from rtolap.protocols.stored_tables.messages import TableName, TableTablets
from rtolap.protocols.stream_load.error_rows import read_error_rows

router = APIRouter()

LOADER_S_MAX = 3.0  # for one loader of several; the others are not kept waiting

_clock = SystemClock()


@router.get("/loads")
def loads() -> Response:
    with _front_ends() as front_ends:
        databases, tables = front_ends.databases(), front_ends.tables()
        moves, error = _moves(front_ends)
    return json_answer(loads_of(databases, tables, moves, now_ms=_clock.now_ms(), nodes_error=error))


@router.get("/loads/tables/{db}/{table}")
def one_table(db: str, table: str) -> Response:
    name = TableName(db, table)
    with _front_ends() as front_ends:
        partitions = front_ends.partitions(name)
        (view,) = front_ends.read_view([name]).tables
        tablets = _tablets(front_ends, name)
    return json_answer(table_page(name, partitions, view, tablets, now_ms=_clock.now_ms()))


@router.get("/loads/transactions/{db}")
def transactions(db: str, label: str = "") -> Response:
    """Answer the latest loads of a database whose labels contain `label`."""
    with _front_ends() as front_ends:
        found = front_ends.transactions(db, containing(label))
    return json_answer(loads_found(found, now_ms=_clock.now_ms()))


@router.get("/loads/errors/{db}", dependencies=[Depends(asker)])
def error_rows(db: str, label: str, reason: str = "", first: int = 0) -> Response:
    """Answer rejected rows of the load with this label, from number `first` on."""
    with _front_ends() as front_ends:
        load = front_ends.transaction(db, label)
    if load.error_url is None:
        raise NotFound(f"load {label} has no rejected rows")
    found = read_error_rows(load.error_url, ca_file=Settings().stream_load_ca, timeout_s=ANSWER_S_MAX / 2)
    return json_answer(error_page(label, found, reason, first, now_ms=_clock.now_ms()))


@router.get("/loaders")
def loaders() -> Response:
    hook = RtolapHook()
    with hook.agent() as agent:
        processes = agent.processes()

    def ask(loader: RunningLoader) -> LoaderStatus:
        with hook.loader(loader.port, timeout_s=LOADER_S_MAX) as client:
            return client.status()

    return json_answer(loaders_of(processes, ask, now_ms=_clock.now_ms(), answer_s_max=ANSWER_S_MAX))


@router.get("/loaders/{loader}/dead-letters", dependencies=[Depends(asker)])
def dead_letters(loader: str, reason: str = "", state: str = "") -> Response:
    """Answer the newest dead letters of a loader, as its process reads them: of a reason, in a state."""
    hook = RtolapHook()
    with hook.agent() as agent:
        port = find_loader(agent, loader).port
    with hook.loader(port, timeout_s=ANSWER_S_MAX) as client:
        found = client.dead_letters(reason=reason, state=state)
    return json_answer(letters_of(loader, found, now_ms=_clock.now_ms()))


def _front_ends() -> StoredTablesClient:
    return RtolapHook().stored_tables(read_timeout_s=ANSWER_S_MAX / 2, retry_s=0.0)


def _tablets(front_ends: StoredTablesClient, name: TableName) -> TableTablets:
    """Return the replicas as nodes report them, or why they are missing: partitions stand without them."""
    try:
        return front_ends.tablets(name)
    except RtolapError as error:
        return TableTablets(replicas=(), missing={"": str(error)})


def _moves(front_ends: StoredTablesClient) -> tuple[MovesInfo, str]:
    """Return nodes and moves, which the master alone knows, or why they are missing: tables stand without
    them."""
    try:
        return front_ends.storage_moves(), ""
    except RtolapError as error:
        return MovesInfo(nodes=(), moves=()), str(error)
