"""The clients of a loader and stand-ins for Doris and StarRocks: credentials, redirects, refusals, phases."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rtolap.base.errors import Forbidden, NotFound, Refused, RtolapError, Unauthorized, Unavailable
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import LoadState, SchemaColumn, SendOptions, TableSchema
from rtolap.protocols.stream_load.redirects import PlainBackends
from rtolap.protocols.stream_load.starrocks import StarRocksClient
from rtolap.stack.ports import free_port
from rtolap.stored.loader.records.encode import encode, format_headers

from tests.support.certificates import Certificates, make_certificates
from tests.support.foreign.cluster import ForeignCluster
from tests.support.foreign.servers import HOST, PASSWORD, USER, ForeignServers, Kind, foreign_servers
from tests.support.loader.sink_contract import ROWS, SCHEMA
from tests.support.twins.clock import ManualClock

KEPT_MS = 3_600_000
COLUMNS = (SchemaColumn("k", "BIGINT"), SchemaColumn("s", "VARCHAR"), SchemaColumn("n", "BIGINT"))
BODY = encode(ROWS.cast(SCHEMA), "json")


class World:
    def __init__(self, tls: Certificates | None = None, front_ends: int = 1) -> None:
        self.clock = ManualClock(1_000_000)
        self.closing = ExitStack()
        self._tls, self._front_ends = tls, front_ends

    def serve(self, kind: Kind, labels_max: int = 1_000) -> ForeignServers:
        cluster = ForeignCluster(self.clock.now_ms, labels_max=labels_max, label_kept_ms=KEPT_MS)
        keys = "DUP_KEYS" if kind == "doris" else ""
        cluster.tables["d", "t"] = TableSchema(keys_type=keys, properties=COLUMNS)
        context = None
        if self._tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self._tls.certificate, self._tls.key)
        return self.closing.enter_context(
            foreign_servers(kind, cluster, front_ends=self._front_ends, tls=context)
        )

    def client(self, servers: ForeignServers, password: str = PASSWORD, **options: Any) -> StreamLoadClient:
        kind = StarRocksClient if servers.kind == "starrocks" else StreamLoadClient
        return self.closing.enter_context(kind(servers.urls, USER, password, **options))


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    with made.closing:
        yield made


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def secure(certificates: Certificates) -> Iterator[World]:
    made = World(certificates)
    with made.closing:
        yield made


def options(kind: Kind, **changes: Any) -> SendOptions:
    target = "starrocks" if kind == "starrocks" else "doris"
    headers = format_headers(target, "json") | changes.pop("headers", {})  # type: ignore[arg-type]
    return SendOptions(format="json", columns=("k", "s", "n"), timeout_s=20, headers=headers, **changes)


KINDS: tuple[Kind, ...] = ("doris", "starrocks")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("two_phase", [False, True])
def test_a_load_goes_to_the_backend_and_its_label_takes_no_other(
    world: World, kind: Kind, two_phase: bool
) -> None:
    servers = world.serve(kind)
    client = world.client(servers)
    answer = client.load("d", "t", "l", BODY, options(kind, rows=2), two_phase=two_phase)
    assert (answer.status, answer.number_loaded_rows) == ("Success", 2)
    if two_phase:
        assert client.state("d", "l") is LoadState.PRECOMMITTED
        assert not servers.cluster.rows("d", "t")
        assert client.commit_label("d", "l").status == "Success"
    assert client.state("d", "l") is LoadState.VISIBLE
    again = client.load("d", "t", "l", BODY, options(kind), two_phase=two_phase)
    assert (again.status, again.existing_job_status) == ("Label Already Exists", "FINISHED")
    assert len(servers.cluster.rows("d", "t")) == 2
    assert servers.seen_by("be"), "the body went to the backend"


@pytest.mark.parametrize("kind", KINDS)
def test_a_prepared_transaction_can_be_rolled_back(world: World, kind: Kind) -> None:
    client = world.client(world.serve(kind))
    client.load("d", "t", "l", BODY, options(kind), two_phase=True)
    assert client.roll_back("d", "l").status == "Success"
    assert client.state("d", "l") is LoadState.ABORTED
    assert client.load("d", "t", "l", BODY, options(kind), two_phase=True).status == "Success"


@pytest.mark.parametrize("kind", KINDS)
def test_a_marker_is_remembered_and_loads_nothing(world: World, kind: Kind) -> None:
    servers = world.serve(kind, labels_max=3)
    client = world.client(servers)
    assert client.mark("d", "t", "m")
    assert client.mark("d", "t", "m"), "again, after a lost answer"
    assert not servers.cluster.rows("d", "t")
    servers.cluster.use_labels("d", 3)
    assert client.state("d", "m") is LoadState.UNKNOWN


@pytest.mark.parametrize("kind", KINDS)
def test_labels_go_by_age_and_by_number(world: World, kind: Kind) -> None:
    servers = world.serve(kind, labels_max=2)
    client = world.client(servers)
    for label in ("a", "b", "c"):
        client.load("d", "t", label, BODY, options(kind))
    assert client.state("d", "a") is LoadState.UNKNOWN
    assert client.state("d", "c") is LoadState.VISIBLE
    world.clock.advance_ms(KEPT_MS + 1)
    assert client.state("d", "c") is LoadState.UNKNOWN


def test_a_transaction_that_nobody_prepares_ends_at_its_timeout(world: World) -> None:
    servers = world.serve("starrocks")
    client = world.client(servers)
    servers.cluster.begin_transaction("d", "t", "l", 20)
    servers.cluster.kill_backend()
    assert client.load("d", "t", "l", BODY, options("starrocks"), two_phase=True).status != "Success"
    assert client.state("d", "l") is LoadState.PREPARE
    world.clock.advance_ms(20_001)
    assert client.state("d", "l") is LoadState.ABORTED


def test_rows_of_an_earlier_attempt_in_a_transaction_are_noticed_by_their_number(world: World) -> None:
    servers = world.serve("starrocks")
    servers.cluster.stray = lambda label, txn_id, rows: list(rows)
    client = world.client(servers)
    answer = client.load("d", "t", "l", BODY, options("starrocks", rows=2), two_phase=True)
    assert answer.status == "Fail"
    assert "4 rows where 2 were sent" in answer.message
    assert client.state("d", "l") is LoadState.ABORTED
    assert not servers.cluster.rows("d", "t")


@pytest.mark.parametrize("operation", ["load", "prepare"])
def test_a_transaction_whose_answer_is_lost_is_rolled_back_at_once(world: World, operation: str) -> None:
    servers = world.serve("starrocks")
    client = world.client(servers)
    servers.cut = lambda server, path: "after" if server == "be" and path.endswith(operation) else None
    with pytest.raises(Unavailable):
        client.load("d", "t", "l", BODY, options("starrocks"), two_phase=True)
    assert client.state("d", "l") is LoadState.ABORTED


@pytest.mark.parametrize("kind", KINDS)
def test_publishing_late_is_committed_and_not_visible(world: World, kind: Kind) -> None:
    servers = world.serve(kind)
    client = world.client(servers)
    servers.cluster.publishes_late = True
    assert client.load("d", "t", "l", BODY, options(kind)).status == "Publish Timeout"
    assert client.state("d", "l") is LoadState.COMMITTED
    servers.cluster.publish()
    assert client.state("d", "l") is LoadState.VISIBLE


# --- TLS and redirects ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_front_end_with_tls_may_redirect_to_declared_plain_backends_only(
    secure: World, certificates: Certificates, kind: Kind
) -> None:
    servers = secure.serve(kind)
    undeclared = secure.client(servers, ca_file=certificates.authority)
    for two_phase in (False, True):
        with pytest.raises(Forbidden, match="in plain"):
            undeclared.load("d", "t", "l", BODY, options(kind), two_phase=two_phase)
    assert not servers.seen_by("be"), "no credentials have gone there"
    declared = secure.client(servers, ca_file=certificates.authority, plain_backends=("127.0.0.0/8",))
    assert declared.load("d", "t", "l", BODY, options(kind)).status == "Success"


@pytest.mark.parametrize("kind", KINDS)
def test_a_declared_backend_is_spoken_to_in_plain_though_the_front_end_names_tls(
    secure: World, certificates: Certificates, kind: Kind
) -> None:
    servers = secure.serve(kind)
    servers.redirect_scheme = "https"
    at = f"{HOST}:{servers.backend_port}"
    client = secure.client(servers, ca_file=certificates.authority, plain_backends=(at,))
    assert client.load("d", "t", "l", BODY, options(kind), two_phase=True).status == "Success"


def test_an_authority_that_is_not_trusted_is_named(secure: World, tmp_path: Path) -> None:
    servers = secure.serve("doris")
    other = make_certificates(tmp_path, "other")
    client = secure.client(servers, ca_file=other.authority)
    with pytest.raises(Unavailable, match="certificate"):
        client.state("d", "l")
    with pytest.raises(Unavailable, match="certificate"):
        client.load("d", "t", "l", BODY, options("doris"))
    assert not servers.seen


def test_plain_front_ends_may_be_held_to_declared_backends_too(world: World) -> None:
    servers = world.serve("doris")
    client = world.client(servers, plain_backends=("10.0.0.0/8",))
    with pytest.raises(Forbidden, match=r"sink\.backends\.plain"):
        client.load("d", "t", "l", BODY, options("doris"))
    assert not servers.seen_by("be")


def test_the_redirect_policy_chooses_the_address(world: World) -> None:
    servers = world.serve("doris")
    servers.redirect_hosts = {"": "192.0.2.1", "public": HOST}
    client = world.client(servers)
    headers = {"redirect-policy": "public"}
    assert client.load("d", "t", "l", BODY, options("doris", headers=headers)).status == "Success"


@pytest.mark.parametrize(
    ("url", "location", "expected"),
    [
        ("http://fe:1/a", "http://u:p@be:2/a?b", "http://be:2/a?b"),
        ("https://fe:1/a", "https://u:p%40@be:2/a", "https://be:2/a"),
        ("https://fe:1/a", "http://be.in.example:8040/a", "http://be.in.example:8040/a"),
        ("https://fe:1/a", "https://BE.in.example:8040/a", "http://be.in.example:8040/a"),
        ("https://fe:1/a", "http://[fd00::7]:8040/a", "http://[fd00::7]:8040/a"),
        ("http://fe:1/a", "https://fe:2/a", "https://fe:2/a"),
        ("https://fe:1/a", "/b", "https://fe:1/b"),
    ],
)
def test_a_redirect_is_followed(url: str, location: str, expected: str) -> None:
    patterns = () if url.startswith("http:") else ("*.in.example", "fd00::/8")
    assert PlainBackends(patterns).next_url(url, location) == expected


@pytest.mark.parametrize(
    ("location", "error"),
    [
        ("http://10.1.0.7:8040/a", Forbidden),
        ("http://be.in.example.evil:8040/a", Forbidden),
        ("http://evil?.in.example/a", Forbidden),
        ("http://be.in.example@evil/a", Forbidden),
        ("http://only:8041/a", Forbidden),
        ("ftp://be.in.example/a", Refused),
        ("http://", Refused),
        ("http://be:port/", Refused),
        ("http://[::1/", Refused),
        ("", Refused),
    ],
)
def test_a_redirect_to_nobody_declared_is_refused_without_a_password(
    location: str, error: type[RtolapError]
) -> None:
    policy = PlainBackends(("*.in.example", "10.0.0.0/16", "only:8040"))
    with pytest.raises(error) as refused:
        policy.next_url("https://fe:1/a", location.replace("//", "//u:secret@", 1))
    assert "secret" not in str(refused.value)


def test_credentials_of_a_load_never_go_to_its_error_log_elsewhere(
    secure: World, certificates: Certificates
) -> None:
    servers = secure.serve("doris")
    client = secure.client(servers, ca_file=certificates.authority)
    servers.answers["GET", "/log"] = (200, b"row 1")
    host = f"{HOST}:{servers.backend_port}"
    assert client.error_log(f"http://{host}/log") == "row 1"
    plain = servers.urls[0].replace("https", "http")
    with pytest.raises((Unavailable, NotFound)):
        client.error_log(f"{plain}/log")
    assert all("authorization" not in seen.headers for seen in servers.seen_by("be"))


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_credentials_are_named(world: World, kind: Kind) -> None:
    client = world.client(world.serve(kind), "guessed")
    for call in (
        lambda: client.schema("d", "t"),
        lambda: client.state("d", "l"),
        lambda: client.load("d", "t", "l", BODY, options(kind)),
        lambda: client.load("d", "t", "l", BODY, options(kind), two_phase=True),
    ):
        with pytest.raises(Unauthorized, match=r"sink\.password_file"):
            call()


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_table_is_named(world: World, kind: Kind) -> None:
    client = world.client(world.serve(kind))
    with pytest.raises(NotFound, match="`database` and `table`"):
        client.schema("d", "nowhere")
    assert client.load("d", "nowhere", "l", BODY, options(kind)).status == "Fail"


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_right_to_read_columns_is_named(world: World, kind: Kind) -> None:
    servers = world.serve(kind)
    inner = b'{"status": 401, "exception": "no SELECT"}'
    outer = b'{"code": 0, "msg": "success", "data": ' + inner + b"}" if kind == "doris" else inner
    servers.answers["GET", "/api/d/t/_schema"] = (200 if kind == "doris" else 401, outer)
    with pytest.raises(RtolapError, match="SELECT") as refused:
        world.client(servers).schema("d", "t")
    assert isinstance(refused.value, (Unauthorized, Forbidden))


def test_a_starrocks_without_the_transaction_interface_is_named(world: World) -> None:
    servers = world.serve("starrocks")
    servers.has_transactions = False
    with pytest.raises(Refused, match=r"version of the server"):
        world.client(servers).load("d", "t", "l", BODY, options("starrocks"), two_phase=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_of_another_kind_is_named(world: World, kind: Kind) -> None:
    servers = world.serve(kind)
    for path in ("/api/d/t/_schema", "/api/d/get_load_state"):
        servers.answers["GET", path] = (404, b"<html>Not Found</html>")
    client = world.client(servers)
    with pytest.raises(Refused, match=r"sink\.target"):
        client.schema("d", "t")
    with pytest.raises(Refused, match=r"sink\.target"):
        client.state("d", "l")


@pytest.mark.parametrize("kind", KINDS)
def test_a_front_end_that_is_away_is_passed_over_and_all_away_is_named(world: World, kind: Kind) -> None:
    servers = world.serve(kind)
    away = f"http://{HOST}:{free_port()}"
    servers.urls = (away, *servers.urls)
    assert world.client(servers).load("d", "t", "l", BODY, options(kind)).status == "Success"
    servers.urls = (away,)
    with pytest.raises(Unavailable, match=r"sink\.urls"):
        world.client(servers).state("d", "l")


def test_the_words_of_a_front_end_that_refuses_before_any_backend_are_kept(world: World) -> None:
    servers = world.serve("doris")
    servers.answers["PUT", "/api/d/t/_stream_load"] = (
        200,
        b'{"status": "FAILED", "msg": "No backend load available"}',
    )
    answer = world.client(servers).load("d", "t", "l", BODY, options("doris"))
    assert (answer.status, answer.message) == ("Fail", "No backend load available")


def test_what_a_schema_leaves_out_stays_open(world: World) -> None:
    doris = world.client(world.serve("doris")).schema("d", "t")
    assert (doris.keys_type, [column.is_nullable for column in doris.properties]) == ("DUP_KEYS", [""] * 3)
    assert world.client(world.serve("starrocks")).schema("d", "t").keys_type == ""
