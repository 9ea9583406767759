"""The endpoint put together over a ledger and storage nodes: transactions, tables, loads, routes, periodic
tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from fastapi import APIRouter, FastAPI

from rtolap.base.ids import CarryingPool
from rtolap.base.metrics import Metrics
from rtolap.protocols.storage.messages import TabletId
from rtolap.servers.limits import HttpLimits
from rtolap.stored.frontend.catalogue.read_views import ReadViews
from rtolap.stored.frontend.catalogue.stray_tablets import StrayTablets
from rtolap.stored.frontend.catalogue.table_writes import REPLICATION
from rtolap.stored.frontend.catalogue.tables import Catalogue
from rtolap.stored.frontend.catalogue.tablet_reports import Reports, TabletReports
from rtolap.stored.frontend.decisions import ElectedDecisions, MasterDecisions
from rtolap.stored.frontend.election import LEASE_MS, Election, Endpoint, Mastership
from rtolap.stored.frontend.http.app import make_app
from rtolap.stored.frontend.http.decisions import Decisions, decisions_router
from rtolap.stored.frontend.http.moves import moves_router
from rtolap.stored.frontend.http.public import public_routes
from rtolap.stored.frontend.http.redirects import BodyRedirects, RedirectPolicy
from rtolap.stored.frontend.http.tables import tables_router
from rtolap.stored.frontend.http.transactions import transaction_routes
from rtolap.stored.frontend.moves.mover import Mover, MoverSettings, Sizes
from rtolap.stored.frontend.moves.requests import MoveRequests
from rtolap.stored.frontend.transactions.labels import LabelPolicy
from rtolap.stored.frontend.transactions.participants import Participants, TabletHosts
from rtolap.stored.frontend.transactions.publishing import Publisher, Visibility
from rtolap.stored.frontend.transactions.rebuilding import Rebuilding
from rtolap.stored.frontend.transactions.requests import PRECOMMITTED_TIMEOUT_MS, TransactionManager
from rtolap.stored.frontend.transactions.requests import RUNNING_MAX as TRANSACTIONS_MAX
from rtolap.stored.frontend.upkeep import PartitionUpkeep, Upkeep
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.leases import Leases
from rtolap.stored.stream_load.authentication import Guard
from rtolap.stored.stream_load.distribution import OpenWriter
from rtolap.stored.stream_load.error_files import ErrorFiles
from rtolap.stored.stream_load.load_routes import LoadSettings, load_routes
from rtolap.stored.stream_load.periodic_task import PeriodicTask

_UPKEEP_S = 1.0
_PUBLISH_S = 1.0
_PARTITIONS_S = 10.0
_REBUILDING_S = 10.0  # each node lists its tablets for it
_MOVES_S = 1.0
_SWEEP_S = 60.0
_STRAYS_S = 60.0  # each node lists its tablets for it
NODE_LOST_AFTER_S = 1800.0
_NODE_CALLS_MAX = 16


class FrontendOptions(LoadSettings, frozen=True, kw_only=True):
    """The options of a front end.

    Attributes:
        label_keep_s: how long labels that nobody acknowledges are retained; None for ever.
        label_count_max: how many of these labels are retained; None for all.
        node_lost_after_s: without a heartbeat, after which a storage node is replaced.
        node_calls_max: the most calls to nodes at a time, over all commits and publications.
        redirect: where loads are redirected to, on the port that takes no bodies.
    """

    lease_ms: int = LEASE_MS
    transactions_max: int = TRANSACTIONS_MAX
    precommitted_timeout_ms: int = PRECOMMITTED_TIMEOUT_MS
    label_keep_s: int | None = 12 * 3600
    label_count_max: int | None = None
    replication: int = REPLICATION
    node_lost_after_s: float = NODE_LOST_AFTER_S
    node_calls_max: int = _NODE_CALLS_MAX
    redirect: RedirectPolicy = "none"
    http: HttpLimits = HttpLimits()


@dataclass(frozen=True)
class Storage:
    """The interface to the storage nodes. `names` (those that may get new tablets), `addresses` (those of
    live nodes), `lately` (those with a recent heartbeat) and `living` (those with a lease; None: `names`) are
    read with the given connection. `sizes` asks a node for the bytes of its tablets, `tablets` for the
    versions of all of them, `reports` for all that it reports of those of tables that exist. `body_urls`
    returns where living nodes take bodies.
    """

    participants: Participants
    hosts: TabletHosts
    open_writer: OpenWriter
    names: Callable[[Connection], Collection[str]]
    addresses: Callable[[Connection], Mapping[str, str]]
    lately: Callable[[Connection], Collection[str]] = lambda connection: ()
    living: Callable[[Connection], Collection[str]] | None = None
    sizes: Sizes = lambda node: {}
    body_urls: Callable[[], tuple[str, ...]] = tuple
    tablets: Callable[[str], Mapping[TabletId, int]] = lambda node: {}
    reports: Reports = lambda node: {}


class Assembly:
    """The parts of a front end. The caller keeps the ledger, calls `start` and `stop` for the periodic tasks,
    or `run_once`, and serves `app`. `masters` carries requests to another front end that is master, with the
    cluster's token; the caller closes it."""

    def __init__(
        self,
        ledger: Ledger,
        here: Endpoint,
        storage: Storage,
        guard: Guard,
        error_folder: Path,
        options: FrontendOptions = FrontendOptions(),
        *,
        masters: httpx.Client,
        own_routes: Collection[APIRouter] = (),
        broken: Callable[[str], object],
    ) -> None:
        leases = Leases(ledger)
        mastership = Mastership(leases, here.owner, lease_ms=options.lease_ms)
        self.election = Election(ledger, leases, mastership, here)
        self._pool = CarryingPool(options.node_calls_max, thread_name_prefix="nodes")
        self.manager = TransactionManager(
            ledger,
            mastership,
            storage.participants,
            running_max=options.transactions_max,
            precommitted_timeout_ms=options.precommitted_timeout_ms,
            for_each=self._pool.map,
        )
        publisher = Publisher(ledger, mastership, storage.participants, for_each=self._pool.map)
        policy = LabelPolicy(
            None if options.label_keep_s is None else options.label_keep_s * 1000, options.label_count_max
        )
        upkeep = Upkeep(ledger, mastership, self.manager, publisher, policy)
        self.catalogue = Catalogue(
            ledger,
            mastership,
            storage.hosts,
            storage.names,
            lately=storage.lately,
            replication=options.replication,
        )
        self.visibility = Visibility(self.manager, publisher)
        self.error_files = ErrorFiles(error_folder, here.body_url)
        self.metrics = Metrics("stream_load")
        self.http_limits = options.http
        own = MasterDecisions(self.catalogue, self.manager, self.visibility)
        decisions = ElectedDecisions(self.election, own, masters, retry_s=options.election_wait_s)
        redirects = BodyRedirects(options.redirect, here, storage.body_urls)
        views = ReadViews(ledger, storage.addresses)
        reports = TabletReports(ledger, storage.addresses, storage.reports, self._pool)
        self.mover = Mover(
            ledger,
            mastership,
            storage.participants,
            storage.hosts,
            storage.sizes,
            replication=options.replication,
            settings=MoverSettings(lost_after_ms=round(options.node_lost_after_s * 1000)),
        )
        self.app: FastAPI = make_app(
            public=(
                load_routes(
                    decisions,
                    storage.open_writer,
                    self.error_files,
                    redirects.next_url,
                    guard,
                    self.metrics,
                    options,
                ),
                transaction_routes(
                    self.manager, self.visibility, self.election, guard, options.publish_timeout_s
                ),
                public_routes(
                    lambda db, table: self.catalogue.table(db, table).schema,
                    self.election,
                    guard,
                    self.error_files,
                    redirects.urls,
                ),
            ),
            own=(
                tables_router(self.catalogue, views, self.manager, reports),
                moves_router(MoveRequests(ledger, mastership, self.mover), self.election),
                decisions_router(Decisions(self.catalogue, self.manager, self.visibility), self.election),
                *own_routes,
            ),
            guard=guard,
            election=self.election,
            metrics=self.metrics,
            limits=options.http,
        )
        partitions = PartitionUpkeep(self.catalogue)
        living = storage.living or storage.names
        rebuilding = Rebuilding(ledger, storage.participants, living)
        strays = StrayTablets(ledger, mastership, storage.hosts, storage.tablets, living)
        election, visibility, sweep = self.election, self.visibility, self.error_files.sweep
        publishing = PeriodicTask("publishing", _PUBLISH_S, _if_leading(election, visibility.publish), broken)
        self.visibility.wake = publishing.wake
        self._periodic_tasks = (
            PeriodicTask("election", options.lease_ms / 3000, election.run_once, broken),
            publishing,
            PeriodicTask("upkeep", _UPKEEP_S, upkeep.run_once, broken),
            PeriodicTask("rebuilding", _REBUILDING_S, _if_leading(election, rebuilding.run_once), broken),
            PeriodicTask("partitions", _PARTITIONS_S, _if_leading(election, partitions.run_once), broken),
            PeriodicTask("stray tablets", _STRAYS_S, _if_leading(election, strays.run_once), broken),
            PeriodicTask("moves", _MOVES_S, _if_leading(election, self.mover.run_once), broken),
            PeriodicTask("error files", _SWEEP_S, sweep, broken),
        )

    def start(self) -> None:
        for duty in self._periodic_tasks:
            duty.start()

    def run_once(self) -> None:
        """Perform every duty once in the caller's thread, in an assembly that is driven step by step and
        never started."""
        for duty in self._periodic_tasks:
            duty.run_once()

    def stop(self) -> None:
        """End the periodic tasks, then give up the lease: the next front end is master at once."""
        for duty in self._periodic_tasks:
            duty.stop()
        self.election.give_up()
        self._pool.shutdown()


def _if_leading(election: Election, work: Callable[[], object]) -> Callable[[], object]:
    return lambda: work() if election.leading else None
