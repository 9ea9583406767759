"""The product's own services: health, and clocks beside this host's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime

import httpx

from rtolap.base.addresses import host_port
from rtolap.base.errors import DefinitionError, Unavailable
from rtolap.base.settings import Settings
from rtolap.doctor.findings import Finding, Look, failed, ok, warning
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import ClusterInfo

CLOCK_S_MAX = 3.0  # the header has whole seconds, and an answer takes some time
ANSWER_S_MAX = 5.0


def looks(settings: Settings) -> Iterator[Look]:
    """Give a look at each service that settings name, and at what the leader knows of receivers and cubes."""
    for url in settings.coordinator_urls():
        yield _health(f"coordinator {url}", url, "rtolap coordinator serve, on its host")
    yield Look("cluster", lambda: look_at_cluster(_cluster(settings)))
    agent = settings.agent_url()
    yield _health(f"agent {agent}", agent, "rtolap agent serve, on its host", needed=False)
    query = settings.query_url()
    yield _health(f"query service {query}", query, "rtolap query serve, on its host", ca=settings.query_ca)
    for url in settings.stream_load_urls():
        yield _health(
            f"front end {url}",
            url,
            "rtolap stream-load serve, where tables are stored",
            needed=False,
            ca=settings.stream_load_ca,
        )


def _health(subject: str, url: str, start: str, *, needed: bool = True, ca: object = None) -> Look:
    """needed: False makes a service that does not answer a warning: not every cluster has one."""
    return Look(subject, lambda: look_at_service(subject, url, start, needed=needed, ca=ca))


def look_at_service(
    subject: str, url: str, start: str, *, needed: bool = True, ca: object = None
) -> Iterator[Finding]:
    """The service answers, and its clock is this host's. start: the command that starts it."""
    try:
        verify = str(ca) if ca is not None else True
        answer = httpx.get(f"{url}/health", timeout=ANSWER_S_MAX, verify=verify, trust_env=False)
    except (httpx.HTTPError, OSError) as error:
        judged = failed if needed else warning
        yield judged(subject, f"it does not answer: {error}", start)
        return
    if answer.status_code != httpx.codes.OK:
        yield failed(subject, f"its health is {answer.status_code}: {answer.text[:200]}", "see its log")
        return
    ahead_s = _clock_ahead_s(answer.headers.get("date", ""))
    if ahead_s is not None and abs(ahead_s) > CLOCK_S_MAX:
        word = "ahead of" if ahead_s > 0 else "behind"
        found = f"its clock is {abs(ahead_s):.0f} s {word} this host's"
        yield warning(subject, found, "chronyc makestep, on the host whose clock is wrong")
    else:
        yield ok(subject, "it answers")


def _clock_ahead_s(date: str) -> float | None:
    """Return how far a `Date` header is ahead of this host; None for none."""
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except ValueError:
        return None


def coordinator(settings: Settings) -> CoordinatorClient:
    """Return a client that asks once, and waits a few seconds for the answer."""
    return CoordinatorClient(
        settings.coordinator_urls(), settings.token(), timeout_s=ANSWER_S_MAX, retry_s=0.0
    )


def _cluster(settings: Settings) -> ClusterInfo:
    with coordinator(settings) as client:
        return client.cluster()


def look_at_cluster(cluster: ClusterInfo) -> Iterator[Finding]:
    """A coordinator leads, each receiver is healthy, each cube has what it needs."""
    yield ok("cluster", f"{cluster.leader_url} leads {len(cluster.coordinators)} coordinators")
    for receiver in cluster.receivers:
        subject = f"receiver {receiver.receiver_id}"
        if receiver.health == "HEALTHY":
            yield ok(
                subject,
                f"of replica set {receiver.replica_set}, at {host_port(receiver.host, receiver.port)}",
            )
        else:
            judged = warning if receiver.health == "WARN" else failed
            found = f"it is {receiver.health}" + (f": {receiver.reason}" if receiver.reason else "")
            yield judged(subject, found, "read its log; start it again if it is gone")
    running = [one for one in cluster.receivers if one.health != "DOWN"]
    programs = sorted({one.program or "an earlier version" for one in running})
    if len(programs) > 1:
        found = f"receivers run {', '.join(programs)}"
        yield warning("versions", found, "end the upgrade: rtolap receivers list shows who runs what")
    living = {one.replica_set for one in cluster.receivers if one.health in ("HEALTHY", "WARN")}
    for cube in cluster.cubes:
        subject = f"cube {cube.name}"
        lonely = sorted(name for name, held in cube.assignment.items() if held and name not in living)
        if cube.problem:
            yield failed(subject, cube.problem, f"rtolap describe {cube.name}")
        elif cube.enabled and lonely:
            action = f"start a receiver there, or rtolap receivers drain {lonely[0]}"
            yield failed(subject, f"nobody of {', '.join(lonely)} lives, which has its partitions", action)


def topics_of(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Return Kafka cluster and topic of each table; none where no coordinator answers: another look says
    so."""
    try:
        with coordinator(settings) as client:
            tables = [client.table(name) for name in client.tables()]
    except (Unavailable, DefinitionError):
        return ()
    return tuple((str(table.get("kafka_cluster", "")), str(table["topic"])) for table in tables)
