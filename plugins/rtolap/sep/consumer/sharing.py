"""A process of a subscription with several consumers: it holds its shares, and takes calls of all rows.

    join ──▶ look ──▶ claim and give back by the plan ──▶ ports while it holds a share ──▶ look …
     ▲        │ the consumer's node is gone
     └────────┘ all shares are lost

Every holder of a share has ports, since region servers choose among them at random; a call's events go to the
holders of their shares. A process without a share stands by and has none.

To end, in this order:
    1. withdraw the ports        crash here and below: nodes go with the session, HBase sends again
    2. answer the calls at work  their parts still have holders, this process among them
    3. give the shares back      the next holders claim them at once
    4. remove the consumer's node, close the endpoint
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rtolap.base.clock import Clock
from rtolap.base.errors import CommitConflict, CommitUnknown, RtolapError, SessionLost, Unavailable
from rtolap.metadata.store import MetadataStore, Watch
from rtolap.protocols.capture.client import CaptureClient
from rtolap.protocols.flight.client import FlightClients
from rtolap.sep.consumer.process import DRAIN_S, STATE_S, MakeServer, withdraw
from rtolap.sep.consumer.registration import Registration, small_master
from rtolap.sep.consumer.server import ConsumerServer
from rtolap.sep.consumer.wakeups import Wakeups
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.delivery.requests import RequestNodes
from rtolap.sep.delivery.state import StateNode
from rtolap.sep.hbase.znodes import ServerName
from rtolap.sep.shares.endpoint import PartsEndpoint, TakesParts
from rtolap.sep.shares.held import HeldShare
from rtolap.sep.shares.lease import Lease
from rtolap.sep.shares.nodes import Member, ShareMap, ShareNodes
from rtolap.sep.shares.plan import plan
from rtolap.sep.shares.router import Router
from rtolap.sep.shares.states import ShareEvent, ShareState
from rtolap.sep.subscriptions.records import SubscriptionPaths
from rtolap.servers.flight_server import shut_down

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0  # between looks when nothing is announced; a lease is renewed by each
_PAUSE_S: Final = 1.0


OpenEndpoint = Callable[[asyncio.AbstractEventLoop, Callable[[int], TakesParts | None]], PartsEndpoint]


@dataclass(frozen=True)
class Reached:
    """The addresses at which others reach this process.

    Attributes:
        host: the name by which region servers reach the ports.
        bind: the address on which the ports listen.
        ports: the ports for region servers; 0 takes a free one.
    """

    host: str
    bind: str
    ports: Sequence[int]


class SharedProcess:
    """A process of a subscription with several consumers.

    Attributes:
        drained: False where a call of another consumer was still open at the end. The process then has to end
            without waiting for it.

    Args:
        count: the number of shares.
        open_delivery: opens the delivery of a share; called with `leads`, each time the share is taken over.
        make_server: makes the server for region servers, once.
        open_endpoint: opens the endpoint for other consumers, once.
        session_timeout_s: after which ZooKeeper may end a session.
        is_wanted: returns False once the subscription was dropped; the process then ends.
        forget: called when the process ends because the subscription was dropped.
    """

    def __init__(
        self,
        name: str,
        count: int,
        store: MetadataStore,
        clock: Clock,
        *,
        open_delivery: Callable[[int, Callable[[], bool]], Delivery],
        make_server: MakeServer,
        open_endpoint: OpenEndpoint,
        token: str,
        cluster_id: str,
        reached: Reached,
        session_timeout_s: float,
        member_id: str,
        is_wanted: Callable[[], bool] = lambda: True,
        forget: Callable[[], None] = lambda: None,
    ) -> None:
        self.paths = SubscriptionPaths(name)
        self.serving_ports: list[int] = []
        self.router: Router | None = None
        self.drained = True
        self._count = count
        self._store = store
        self._clock = clock
        self._make_server = make_server
        self._open_endpoint = open_endpoint
        self._token = token
        self._cluster_id = cluster_id
        self._reached = reached
        self._forget = forget
        self._wakeups = Wakeups(is_wanted)
        self._id = member_id
        self._nodes = ShareNodes(store, self.paths, count)
        self._lease = Lease(clock, session_timeout_s)
        self._registered = False
        self._publish_due_s = 0.0
        self._busy: dict[int, asyncio.Task[None]] = {}
        self.shares = {share: self._held(share, open_delivery) for share in range(count)}
        self._states = {
            share: StateNode(
                store,
                self.paths.delivery_of(share, count),
                clock,
                (self.paths.holder(share), self._id.encode()),
            )
            for share in range(count)
        }
        self._requests: dict[int, tuple[Delivery, RequestNodes]] = {}

    @property
    def serving(self) -> list[int]:
        """The shares that this process delivers now."""
        return [share for share, held in self.shares.items() if held.is_serving]

    @property
    def deliveries(self) -> dict[int, Delivery]:
        return {share: held.delivery for share, held in self.shares.items() if held.delivery is not None}

    def stop(self) -> None:
        """End after the calls that are at work. On the event loop."""
        self._wakeups.stop()

    async def run(self) -> None:
        """Return once stopped, or dropped. Raises what no later try would mend."""
        loop = asyncio.get_running_loop()
        endpoint = self._open_endpoint(loop, self.shares.get)
        member = Member(self._id, endpoint.address, self._clock.now_ms())
        clients = FlightClients(lambda other: CaptureClient(other, self._token))
        router = self.router = Router(
            self.shares, clients.at, cluster_id=self._cluster_id, own_address=endpoint.address
        )
        sinks: list[ServerName] = []
        server = self._make_server(
            router.deliver, router.set_apart, small_master(self._cluster_id, lambda: sinks)
        )
        watches: list[Watch] = []
        try:
            ports = await server.start(self._reached.bind, self._reached.ports)
            sinks += [ServerName(self._reached.host, port, member.joined_ms) for port in ports]
            registration = Registration(self._store, self.paths.root, sinks)
            changed = self._wakeups.announced(loop)
            watches = [self._store.watch(path, changed) for path in self._watched()]
            while not await self._wakeups.is_over():
                try:
                    await self._take_part(member, router, clients, registration, ports)
                except (Unavailable, CommitUnknown, CommitConflict, SessionLost) as error:
                    log.warning("this consumer holds no shares for now: %s", error)
                    await self._lose_all(router)
                    await self._wakeups.wait(_PAUSE_S)
            await self._leave(member, registration, server)
        finally:
            for watch in watches:
                watch.stop()
            await self._lose_all(router)
            await server.drain(0.0)
            router.close()
            self.drained = await asyncio.to_thread(shut_down, endpoint)
            clients.close()
        if not self._wakeups.stopping:
            await asyncio.to_thread(self._forget)

    # -- looks -------------------------------------------------------------------------------------------

    async def _take_part(
        self,
        member: Member,
        router: Router,
        clients: FlightClients[CaptureClient],
        registration: Registration,
        ports: list[int],
    ) -> None:
        """Look, and do what the plan says, until the process is to end. Return when the consumer's node is
        gone; all shares are lost then."""
        await asyncio.to_thread(self._nodes.join, member)
        while not await self._wakeups.is_over():
            renew = self._lease.begin()
            seen = await asyncio.to_thread(self._nodes.look)
            if not seen.has(self._id):
                log.warning("the session is over: this consumer joins again")
                await self._lose_all(router)
                return
            renew()
            routes = {share: seen.address_of(share) for share in range(self._count)}
            router.update(routes)
            clients.keep({each.address for each in seen.members})
            await self._follow(seen)
            await self._show_ports(registration, ports)
            await self._publish()
            await self._wakeups.wait(LOOK_S)

    async def _follow(self, seen: ShareMap) -> None:
        """Begin what each share needs. A share whose last change is not over is left to a later look."""
        own = plan(self._id, [each.id for each in seen.members], seen.holders, self._count)
        for share in own.claim:
            if self.shares[share].state is ShareState.FREE and share not in self._busy:
                await asyncio.to_thread(self._nodes.claim, share, self._id)
                self._wakeups.notify()  # the next look tells whether it was this consumer's claim
        for share, held in self.shares.items():
            event = self._event(held, seen, share in own.release)
            if event is not None and share not in self._busy:
                self._begin(share, event)

    def _event(self, held: HeldShare, seen: ShareMap, is_unplanned: bool) -> ShareEvent | None:
        is_ours = seen.holders.get(held.share) == self._id
        if held.state is ShareState.FREE:
            return ShareEvent.CLAIMED if is_ours else None
        if not is_ours:
            return ShareEvent.LOST
        if is_unplanned:
            return ShareEvent.UNPLANNED
        if held.state is ShareState.CLAIMED:
            return ShareEvent.RETRIED
        return ShareEvent.FENCED if held.fenced else None

    def _begin(self, share: int, event: ShareEvent) -> asyncio.Task[None]:
        if event in (ShareEvent.LOST, ShareEvent.UNPLANNED):
            self._requests.pop(share, None)

        async def handle() -> None:
            try:
                if event is ShareEvent.UNPLANNED:
                    await asyncio.to_thread(self._states[share].withdraw)
                await self.shares[share].handle(event)
            except RtolapError as error:
                log.warning("share %d: %s", share, error)
            finally:
                del self._busy[share]
                self._wakeups.notify()

        task = self._busy[share] = asyncio.create_task(handle())
        return task

    async def _lose_all(self, router: Router) -> None:
        self._lease.end()
        router.update({})
        self._registered, self.serving_ports = False, []
        await self._end_shares(ShareEvent.LOST)

    async def _end_shares(self, event: ShareEvent) -> None:
        """Wait until no share is held any more."""
        await asyncio.gather(*self._busy.values(), return_exceptions=True)
        tasks = [
            self._begin(share, event)
            for share, held in self.shares.items()
            if held.state is not ShareState.FREE
        ]
        await asyncio.gather(*tasks)

    async def _leave(self, member: Member, registration: Registration, server: ConsumerServer) -> None:
        await asyncio.to_thread(withdraw, registration)
        self._registered, self.serving_ports = False, []
        await server.drain(DRAIN_S)
        await self._end_shares(ShareEvent.UNPLANNED)
        try:
            await asyncio.to_thread(self._nodes.leave, member.id)
        except RtolapError as error:
            log.info("the node of this consumer is left to its session: %s", error)

    # -- what others see ---------------------------------------------------------------------------------

    async def _show_ports(self, registration: Registration, ports: list[int]) -> None:
        if self.serving:
            await asyncio.to_thread(registration.register)
            if not self._registered:
                log.info("region servers may ship to %s", ", ".join(map(str, ports)))
            self._registered, self.serving_ports = True, ports
        elif self._registered:
            await asyncio.to_thread(registration.withdraw)
            self._registered, self.serving_ports = False, []

    async def _publish(self) -> None:
        if self._clock.monotonic_s() < self._publish_due_s:
            return
        self._publish_due_s = self._clock.monotonic_s() + STATE_S
        for share, held in self.shares.items():
            delivery, thread = held.delivery, held.thread
            if delivery is None or thread is None:
                continue
            await asyncio.to_thread(self._states[share].publish, delivery, held.waiting(), self._id)
            known = self._requests.get(share)
            if known is None or known[0] is not delivery:
                folder = self.paths.requests_of(share, self._count)
                known = self._requests[share] = (delivery, RequestNodes(self._store, folder))
            await asyncio.to_thread(known[1].take, thread.request, delivery)

    def _held(self, share: int, open_delivery: Callable[[int, Callable[[], bool]], Delivery]) -> HeldShare:
        return HeldShare(
            share,
            self._clock,
            open_delivery=lambda: open_delivery(share, self._lease.holds),
            release=lambda: self._nodes.release(share, self._id),
            notify=self._wakeups.notify,
        )

    def _watched(self) -> list[str]:
        shares = [self.paths.holder(share) for share in range(self._count)]
        return [self.paths.definition, self.paths.consumers, *shares]
