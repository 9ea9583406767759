"""Two coordinators: one leads, the other owns an application, by which a cube closes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import msgspec
import pytest
from fastapi.testclient import TestClient
from rtolap.base.errors import NotLeader, NotOwner
from rtolap.cli import coordinator as coordinator_commands
from rtolap.coordinator.applications.owned import chosen_owner
from rtolap.coordinator.assembly import Coordinator
from rtolap.coordinator.closable import WINDOWS_KEPT
from rtolap.coordinator.server import build_app
from rtolap.metadata import paths
from rtolap.metadata.applications import ApplicationRecords
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.model.completeness import Completeness
from rtolap.model.segment import SegmentRange
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import HeartbeatRequest
from rtolap.protocols.watermark.messages import ReportBatch, SourceReport
from rtolap.servers.limits import HttpLimits
from typer.testing import CliRunner

from tests.support.cubes.coordinator_harness import CUBE, HOUR_MS, NAME, TABLE, TOKEN, URL, Cluster
from tests.support.cubes.metadata_contract import eventually
from tests.support.scrape import Scrape
from tests.support.twins.metadata import MemoryStore, _Node
from tests.support.watermarks.application_reports import NAME as LOGS
from tests.support.watermarks.application_reports import application

OTHER = next(
    url
    for url in (f"http://127.0.0.1:{port}" for port in range(2, 100))
    if chosen_owner(LOGS, [URL, url]) == url
)
HOSTED = {
    **TABLE,
    "columns": [*TABLE["columns"], {"name": "host", "type": "string"}],
    "host_column": "host",
}
MARK = {"application": LOGS, "source": "web", "sink": "store"}


class Routed(httpx.BaseTransport):
    """The network between the two, by address."""

    def __init__(self, places: dict[str, httpx.BaseTransport]) -> None:
        self._places = places

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        address = f"{request.url.scheme}://{request.url.netloc.decode()}"
        if address not in self._places:
            raise httpx.ConnectError("nobody listens", request=request)
        return self._places[address].handle_request(request)


class Two:
    """`cluster.coordinator` leads; `other` owns the application that both know of."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.store = MemoryStore(cluster.ensemble)
        self.other = Coordinator(
            ClusterMetadata(self.store, cluster.clock),
            lambda name: cluster.topics,
            object_store_uri=cluster.uri,
            url=OTHER,
            open_client=cluster.open_client,
            tick_s=3600,
        )
        eventually(lambda: self.other.leadership.node() is not None, "it stands behind the leader")
        self.http = TestClient(
            build_app(self.other, TOKEN, HttpLimits()), headers={"Authorization": f"Bearer {TOKEN}"}
        )
        self.http.__enter__()
        cluster.peers[OTHER] = self.http._transport
        places = {URL: cluster.http._transport, OTHER: self.http._transport}
        self.places = places
        self.client = CoordinatorClient([URL, OTHER], TOKEN, retry_s=0.0, transport=Routed(places))
        assert cluster.ensemble.settle()
        self.client.create_application(application())
        self.sequence = 0
        self.ended = False

    def tick(self) -> None:
        """Tick the owner, then the leader, once its watches have brought what the owner has persisted."""
        for _ in range(2):
            self.other.tick()
        assert self.cluster.ensemble.settle()
        self.cluster.coordinator.tick()

    def report(self, **hosts_ms: int) -> None:
        self.sequence += 1
        running = self.other.applications.running(LOGS)
        source = SourceReport("web", 0, 0, progress=hosts_ms)
        batch = ReportBatch("c", self.sequence, running.epoch, self.sequence == 1, (source,))
        assert running.report(batch).refused == ()

    def hour(self, number: int) -> int:
        return (self.cluster.clock.now_ms() // HOUR_MS + number) * HOUR_MS

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self.places.pop(OTHER)
            self.http.__exit__()
            self.other.close()
            self.store.close()
            assert self.cluster.ensemble.settle()


@pytest.fixture
def two(cluster: Cluster) -> Iterator[Two]:
    two = Two(cluster)
    yield two
    two.end()


def created(two: Two) -> None:
    two.client.create_table(HOSTED)
    two.client.create_cube({**CUBE, "watermark": MARK})


def told(two: Two) -> Completeness:
    """Return the newest window that the leader tells receivers of."""
    answer = two.cluster.coordinator.heartbeat(HeartbeatRequest(receiver_id="r", replica_set="s"))
    return msgspec.convert(answer.windows[NAME][-1].model_dump(), Completeness)


# -- requests ------------------------------------------------------------------------------------------


def test_a_request_at_another_coordinator_is_sent_to_the_owner_who_answers_though_it_does_not_lead(
    two: Two,
) -> None:
    two.client.change_hosts(LOGS, "web", "register", ["a"])
    assert two.client.application(LOGS).owner == OTHER
    assert two.client.explain_window(LOGS, 1).reasons
    path = f"/api/v1/applications/{LOGS}"
    for method, where in [
        ("GET", path),
        ("GET", f"{path}/watermarks"),
        ("GET", f"{path}/hosts"),
        ("GET", f"{path}/units"),
        ("GET", f"{path}/history"),
        ("GET", f"{path}/explain?window_end_ms=1"),
        ("POST", f"{path}/reports"),
        ("DELETE", path),
    ]:
        body = {"client_id": "c", "sequence": 0, "client_epoch": 0} if method == "POST" else None
        answer = two.cluster.http.request(method, where, json=body)
        assert answer.status_code == 503, "nobody listens at the owner's address"
        assert (answer.json()["code"], answer.json()["leader_url"]) == ("not_owner", OTHER), where
    assert two.http.get("/api/v1/queue").json()["code"] == "not_leader"
    assert two.http.get("/api/v1/applications").json() == [LOGS], "names are no secret of the owner"


def test_the_client_goes_straight_to_the_owner_and_to_the_leader_from_then_on(two: Two) -> None:
    asked: list[str] = []

    class Watched(Routed):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            asked.append(f"{request.url.scheme}://{request.url.netloc.decode()}")
            return super().handle_request(request)

    client = CoordinatorClient([URL, OTHER], TOKEN, retry_s=0.0, transport=Watched(two.places))
    for _ in range(3):
        client.application_watermarks(LOGS)
        client.queue()
    assert asked == [URL, OTHER, URL, OTHER, URL, OTHER, URL]


def test_it_is_changed_and_dropped_at_its_owner(two: Two) -> None:
    two.client.change_hosts(LOGS, "web", "register", ["a"])
    epoch = two.client.application(LOGS).epoch
    changed = {**application(), "sinks": [{"name": "store"}, {"name": "alerts"}]}
    changed["edges"] = [*changed["edges"], ["sessions", "alerts"]]
    two.client.change_application(LOGS, changed)
    assert two.client.application(LOGS).epoch > epoch
    assert set(two.client.application(LOGS).definition["sinks"][1].values()) >= {"alerts"}
    two.client.drop_application(LOGS)
    assert two.client.applications() == []
    assert two.cluster.metadata.store.get(paths.application_state(LOGS)) is None


def test_one_that_cannot_be_read_is_dropped_all_the_same(two: Two) -> None:
    node = two.store.get(paths.application_state(LOGS))
    assert node is not None
    two.store.ensemble.nodes[paths.application_state(LOGS)].data = b"damaged"
    two.client.drop_application(LOGS)
    assert two.client.applications() == []


# -- ownership -----------------------------------------------------------------------------------------


def test_who_ends_leaves_its_applications_to_those_that_live(two: Two) -> None:
    two.client.change_hosts(LOGS, "web", "register", ["a"])
    two.report(a=two.hour(0))
    two.tick()
    before = two.client.application_watermarks(LOGS)
    assert before.levels["web"].input_ms == two.hour(0)
    two.end()
    two.cluster.coordinator.tick()
    after = two.client.application_watermarks(LOGS)
    assert after.epoch > before.epoch
    assert after.levels["web"].input_ms == before.levels["web"].input_ms
    assert two.client.application(LOGS).owner == URL


def test_who_lost_its_session_persists_and_answers_nothing(two: Two) -> None:
    """Though it knows nothing of that, and nobody has taken its application yet."""
    two.client.change_hosts(LOGS, "web", "register", ["a"])
    two.report(a=two.hour(0))
    two.tick()
    running = two.other.applications.running(LOGS)
    before = ApplicationRecords(two.cluster.store).state(LOGS)
    node = two.other.leadership.node()
    two.store.ensemble.nodes.pop(node or "")  # no watch is called, as in a process that is stopped
    two.report(a=two.hour(0) + 1)
    with pytest.raises(NotLeader):
        two.other.applications.tick()
    assert ApplicationRecords(two.cluster.store).state(LOGS) == before
    assert running.published.marks.levels["web"].input_ms == two.hour(0)


def test_a_former_owner_answers_no_more_once_its_session_may_have_ended(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.client.change_hosts(LOGS, "web", "register", ["a"])
    node = two.other.leadership.node()
    two.store.ensemble.nodes.pop(node or "")
    taker = two.cluster.coordinator.applications
    monkeypatch.setattr(taker.own._live, "urls", lambda: frozenset({URL}))
    taker.running(LOGS)
    two.cluster.clock.advance_ms(2_000)
    with pytest.raises(NotOwner):
        two.other.applications.watermarks(LOGS)


# -- cubes ---------------------------------------------------------------------------------------------


def test_the_owner_decides_windows_and_the_leader_tells_them_to_receivers(two: Two) -> None:
    two.client.change_hosts(LOGS, "web", "register", ["a", "b"])
    created(two)
    end_ms = two.hour(0)
    two.report(a=end_ms + 1, b=end_ms - 1)
    two.tick()
    assert two.cluster.metadata.published_watermark_ms(NAME) == end_ms - 1
    assert two.client.watermark(NAME).low_watermark_ms == end_ms - 1
    two.report(b=end_ms)
    two.tick()
    assert told(two) == Completeness(
        application=LOGS,
        window_end_ms=end_ms,
        closed_by="watermark",
        watermark_ms=end_ms,
        expected_missing_ppm=0,
        bound_ppm=0,
    )
    # and with the next owner it stays so, whatever that one knows
    two.end()
    two.client.change_hosts(LOGS, "web", "register", ["never-seen"])
    before = two.cluster.metadata.published_watermark(NAME)
    two.cluster.coordinator.tick()
    two.cluster.coordinator.tick()
    assert two.cluster.metadata.published_watermark(NAME) == before
    assert told(two).watermark_ms == end_ms


def test_a_cube_made_again_starts_without_the_windows_that_the_owner_decided_for_the_one_before(
    two: Two,
) -> None:
    two.client.change_hosts(LOGS, "web", "register", ["a"])
    created(two)
    two.report(a=two.hour(0))
    two.tick()
    assert len(two.cluster.metadata.published_watermark(NAME).windows) == WINDOWS_KEPT
    two.client.drop_cube(NAME)
    later = {**CUBE, "watermark": MARK, "segment": {"window_ms": HOUR_MS, "allowed_lateness_ms": HOUR_MS}}
    two.client.create_cube(later)
    assert two.cluster.ensemble.settle()
    two.tick()
    again = two.cluster.metadata.published_watermark(NAME).windows
    assert again[-1].window_end_ms == two.hour(-1), "the one before had decided the hour after, too"
    assert told(two) == again[-1]


def test_a_leaders_tick_reads_nothing_of_a_cube_whose_owner_has_persisted_nothing_new(two: Two) -> None:
    created(two)
    two.tick()
    two.cluster.coordinator.tick()
    reads: list[str] = []
    get = two.cluster.store.get

    def counted(path: str) -> object:
        reads.append(path)
        return get(path)

    two.cluster.store.get = counted  # type: ignore[method-assign,assignment]
    two.cluster.coordinator._ticks = 1  # its checks are not due
    two.cluster.coordinator.tick()
    assert [path for path in reads if "watermark" not in path] == []


def test_a_forced_closing_states_what_the_owner_knows(two: Two) -> None:
    two.client.change_hosts(LOGS, "web", "register", ["never-seen"])
    created(two)
    window = SegmentRange(two.hour(-1), two.hour(0))
    two.client.close_segment(NAME, window.name)
    known = two.cluster.metadata.control(NAME).close_completeness
    assert known is not None
    assert (known.closed_by, known.window_end_ms, known.bound_ppm) == ("forced", window.end_ms, 1_000_000)


def test_a_forced_closing_waits_for_no_owner_that_does_not_answer(two: Two) -> None:
    two.client.change_hosts(LOGS, "web", "register", ["never-seen"])
    created(two)
    two.cluster.peers[OTHER] = Routed({})
    window = SegmentRange(two.hour(-1), two.hour(0))
    two.client.close_segment(NAME, window.name)
    known = two.cluster.metadata.control(NAME).close_completeness
    assert known == Completeness(application=LOGS, window_end_ms=window.end_ms, closed_by="forced")


def test_the_leader_says_of_a_cube_whose_application_is_gone_why_it_waits(two: Two) -> None:
    created(two)
    two.tick()
    assert two.client.cube(NAME).problem is None
    ApplicationRecords(two.cluster.store).drop(LOGS)  # by somebody who does not ask for cubes
    assert two.cluster.ensemble.settle()
    two.tick()
    assert f"application {LOGS} does not exist" in (two.client.cube(NAME).problem or "")


def _damaged() -> _Node:
    return _Node(b"damaged", 0, None)


# -- what is shown -------------------------------------------------------------------------------------


def test_a_cube_whose_application_nobody_can_run_says_so(two: Two) -> None:
    created(two)
    two.tick()
    two.end()
    two.store.ensemble.nodes[paths.application_hosts(LOGS, "web")] = _damaged()
    two.cluster.coordinator.tick()
    assert "watermark stands still" in (two.client.cube(NAME).problem or ""), "as it is the leader's own"


def test_a_cube_whose_application_its_owner_cannot_run_says_so(two: Two) -> None:
    created(two)
    two.store.ensemble.nodes[paths.application_hosts(LOGS, "web")] = _damaged()
    two.tick()
    assert "run by no coordinator" in (two.client.cube(NAME).problem or "")


def test_status_and_metrics_show_who_owns_which_application(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.other.tick()
    monkeypatch.setenv("RTOLAP_COORDINATORS", f"{URL},{OTHER}")
    monkeypatch.setattr(two.client, "close", lambda: None)
    monkeypatch.setattr(coordinator_commands, "coordinator_client", lambda: two.client)
    shown = CliRunner().invoke(coordinator_commands.app, ["status"]).stdout.splitlines()
    assert f"{OTHER}\tstandby\t{URL}\tTrue\t1" in shown
    assert f"{URL}\tleader\t{URL}\tTrue\t0" in shown
    assert f"{LOGS}\t{OTHER}" in shown
    as_json = json.loads(CliRunner().invoke(coordinator_commands.app, ["status", "--json"]).stdout)
    assert as_json["applications"] == [{"application": LOGS, "owner": OTHER}]
    owner = Scrape(two.other.metrics.registry.render()[0].decode())
    leader = Scrape(two.cluster.coordinator.metrics.registry.render()[0].decode())
    assert (owner("rtolap_coordinator_applications"), leader("rtolap_coordinator_applications")) == (1, 0)
    assert owner("rtolap_coordinator_application_moves_total", how="taken") == 1
