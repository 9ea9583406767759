"""A process of a subscription: it waits until it leads, serves for as long as it does, and waits again.

    stand ──elected──▶ recover ──▶ listen ──▶ register the ports ──▶ serve
      ▲                                                                │  leads no more · replaced · stopped
      └────── delivery closed ◀── calls answered ◀── ports withdrawn ◀─┘

Only the leader has ports, so region servers ship to one process; who is replaced without noticing is kept
from writing by the journal.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from rtolap.base.clock import Clock
from rtolap.base.errors import (
    CommitConflict,
    CommitUnknown,
    NotLeader,
    RtolapError,
    SessionLost,
    Unavailable,
)
from rtolap.metadata.store import Election, MetadataStore
from rtolap.sep.consumer.calls import Answer, Deliver, SetApart
from rtolap.sep.consumer.registration import Registration, small_master
from rtolap.sep.consumer.server import ConsumerServer
from rtolap.sep.consumer.wakeups import Wakeups
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.delivery.requests import RequestNodes
from rtolap.sep.delivery.serving import DeliveryThread
from rtolap.sep.delivery.state import StateNode
from rtolap.sep.hbase.znodes import ServerName
from rtolap.sep.subscriptions.records import SubscriptionPaths

log = logging.getLogger(__name__)

DRAIN_S = 30.0
STATE_S = 3.0
_PAUSE_S, _PAUSE_MAX_S = 0.5, 15.0

MakeServer = Callable[[Deliver, SetApart, Mapping[str, Answer]], ConsumerServer]


class SubscriptionProcess:
    """The process that consumes a subscription while it leads.

    Args:
        open_delivery: opens the delivery; called with `leads`, once a term.
        make_server: makes the server; called with `deliver`, `set_apart` and `answers`, once a term.
        cluster_id: the UUID under which HBase knows this cluster.
        host: the name by which region servers reach the ports.
        is_wanted: returns False once the subscription was dropped; the process then ends.
        forget: called when the process ends because the subscription was dropped.
    """

    def __init__(
        self,
        name: str,
        store: MetadataStore,
        clock: Clock,
        *,
        open_delivery: Callable[[Callable[[], bool]], Delivery],
        make_server: MakeServer,
        cluster_id: str,
        host: str,
        bind: str,
        ports: Sequence[int],
        is_wanted: Callable[[], bool] = lambda: True,
        forget: Callable[[], None] = lambda: None,
    ) -> None:
        self.paths = SubscriptionPaths(name)
        self.serving_ports: list[int] = []
        self.delivery: Delivery | None = None
        self._store = store
        self._clock = clock
        self._open_delivery = open_delivery
        self._make_server = make_server
        self._cluster_id = cluster_id
        self._host, self._bind, self._ports = host, bind, list(ports)
        self._forget = forget
        self._wakeups = Wakeups(is_wanted)

    @property
    def leads(self) -> bool:
        return bool(self.serving_ports)

    def stop(self) -> None:
        """End after the calls that are at work. On the event loop."""
        self._wakeups.stop()

    async def run(self) -> None:
        """Return once stopped, or dropped. Raises what no later try would mend."""
        changed = self._wakeups.announced(asyncio.get_running_loop())
        identity = f"{self._host}@{self._clock.now_ms()}"
        election = await asyncio.to_thread(self._store.elect, self.paths.leader, identity, changed)
        watch = self._store.watch(self.paths.definition, changed)
        tries = 0
        try:
            while not await self._wakeups.is_over():
                if not election.is_leader():
                    await self._wakeups.wait(_PAUSE_MAX_S)
                    continue
                try:
                    await self._lead_or_step_back(election)
                    tries = 0
                except (Unavailable, CommitUnknown, CommitConflict, SessionLost) as error:
                    log.warning("this process leads, and cannot serve yet: %s", error)
                    tries += 1
                    await self._wakeups.wait(min(_PAUSE_MAX_S, _PAUSE_S * 2**tries))
        finally:
            watch.stop()
            await asyncio.to_thread(election.close)
        if not self._wakeups.stopping:
            await asyncio.to_thread(self._forget)

    async def _lead_or_step_back(self, election: Election) -> None:
        try:
            await self._lead(election)
        except NotLeader as error:
            log.warning("%s", error)
            await asyncio.to_thread(election.step_back)

    async def _lead(self, election: Election) -> None:
        """Lead for a term. Raises the error that ended it, unless the term is simply over."""
        delivery = await asyncio.to_thread(self._open_delivery, election.is_leader)
        try:
            began_s = time.monotonic()
            await asyncio.to_thread(delivery.recover)
            self.delivery = delivery
            log.info("leads; what was delivered is known after %.1f s", time.monotonic() - began_s)
            await self._serve(election, delivery)
        finally:
            self.delivery = None
            await asyncio.to_thread(delivery.close)

    async def _serve(self, election: Election, delivery: Delivery) -> None:
        changed = self._wakeups.announced(asyncio.get_running_loop())
        ended: list[Exception] = []

        def over(error: Exception | None) -> None:
            if error is not None:
                ended.append(error)
                changed()

        thread = DeliveryThread(delivery, self._clock, ended=over)
        sinks: list[ServerName] = []
        server = self._make_server(
            thread.deliver, thread.set_apart, small_master(self._cluster_id, lambda: sinks)
        )
        registration: Registration | None = None
        show = StateNode(self._store, self.paths.delivery)
        requests = RequestNodes(self._store, self.paths.requests)
        thread.start()
        try:
            ports = await server.start(self._bind, self._ports)
            start_code = self._clock.now_ms()
            sinks += [ServerName(self._host, port, start_code) for port in ports]
            fence = election.fence()
            if fence is None:
                return
            registration = Registration(self._store, self.paths.root, sinks)
            await asyncio.to_thread(registration.register, fence)
            self.serving_ports = ports
            log.info("region servers may ship to %s", ", ".join(map(str, ports)))
            # with another node it leads again: the ports went with the session of the one before
            while election.fence() == fence and not ended and not await self._wakeups.is_over():
                await asyncio.to_thread(show.publish, delivery)
                await asyncio.to_thread(requests.take, thread.request, delivery)
                await self._wakeups.wait(STATE_S)
        finally:
            self.serving_ports = []
            if registration is not None:
                await asyncio.to_thread(withdraw, registration)
            await server.drain(DRAIN_S)
            await asyncio.to_thread(thread.close)
        if ended:
            raise ended[0]


def withdraw(registration: Registration) -> None:
    """Withdraw the registration before the running calls end, so that no new ones come.

    The nodes go with the session anyway.
    """
    try:
        registration.withdraw()
    except RtolapError as error:
        log.info("the ports are left to their session: %s", error)
