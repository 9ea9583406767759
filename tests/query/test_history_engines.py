"""The engine that reads history: chosen by the size of the read or by the session, and said by EXPLAIN."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from rtolap.base.errors import DefinitionError, QueryError, TooLarge, Unavailable
from rtolap.base.settings import Settings
from rtolap.base.users import Users
from rtolap.query.cancel import Cancellation
from rtolap.query.cubes.history import EmbeddedHistory, MemoryBounds
from rtolap.query.cubes.history_choices import ScannedVersion
from rtolap.query.engine_choice import EngineRules, EngineWish, HistorySize
from rtolap.query.http.server import make_app
from rtolap.query.memory_budget import MemoryBudget
from rtolap.query.plan import CubeRead, ReadStats
from rtolap.query.spark.connections import check_version
from rtolap.query.spark.service import declared_service, service_token
from rtolap.query.statement_service import QueryService
from rtolap.query.statements.sql_session import SqlSession
from rtolap.servers.limits import HttpLimits
from rtolap.stack.servers.spark import TOKEN_VARIABLE, connect_program

from tests.support.query.oracles.sql_oracle import rows_of
from tests.support.query.query_world import QueryWorld

CHANGES_WORLD = True
SQL = "select carrier, count(*), sum(distance) from flights group by carrier"
TOKEN = "secret-of-the-cluster"


class TwinScans:
    """Reads by the embedded engine, under the interface of the other one.

    Attributes:
        reads: number of versions of each read.
    """

    def __init__(self, world: QueryWorld) -> None:
        self._history = EmbeddedHistory(world.store)
        self.reads: list[int] = []

    def read(
        self, read: CubeRead, versions: Sequence[ScannedVersion], cancellation: Cancellation
    ) -> pa.Table:
        self.reads.append(len(versions))
        segments = [record for version in versions for record in version.unit.records]
        part = cancellation.part()
        part.engine = "local"
        found = self._history.read(read, segments, ReadStats(read.cube), part, MemoryBudget().account(""))
        assert isinstance(found, pa.Table)
        return found

    def close(self) -> None:
        self._history.close()


@pytest.fixture
def scans(world: QueryWorld) -> TwinScans:
    return TwinScans(world)


@contextlib.contextmanager
def made(
    world: QueryWorld, scans: TwinScans | None, *, keep: bool = False, **rules: int
) -> Iterator[QueryService]:
    made_rules = EngineRules(has_spark=scans is not None, **rules)
    bounds = MemoryBounds() if keep else MemoryBounds(result_bytes=0)
    with contextlib.closing(world.service(scans=scans, rules=made_rules, bounds=bounds)) as service:
        yield service


def read_by(service: QueryService, sql: str, wish: EngineWish = "auto") -> str:
    outcome = service.execute(sql, (), service.cancellation(engine=wish))
    rows = {row["item"]: row["value"] for row in outcome.table().to_pylist()}
    return str(rows["history read by"])


def answer(service: QueryService, wish: EngineWish = "auto") -> object:
    return rows_of(service.execute(SQL, (), service.cancellation(engine=wish)).table())


def test_without_a_spark_service_everything_is_read_here(world: QueryWorld) -> None:
    with made(world, None) as service:
        assert read_by(service, f"explain {SQL}") == "local: no Spark service is declared"
        assert read_by(service, f"explain analyze {SQL}") == "local: no Spark service is declared"
        with pytest.raises(DefinitionError, match=r"no Spark service; expected RTOLAP_HISTORY_SPARK"):
            answer(service, "spark")
        assert read_by(service, f"explain {SQL} limit 3", "spark").startswith("refused: the session asks")


def test_a_large_read_goes_to_spark_and_a_small_one_does_not(world: QueryWorld, scans: TwinScans) -> None:
    with made(world, None) as local:
        wanted = answer(local)
    with made(world, scans, spark_bytes_min=1) as service:
        said = read_by(service, f"explain {SQL}")
        assert said.startswith("spark: ")
        assert "files are at least RTOLAP_HISTORY_SPARK_BYTES_MIN" in said
        assert not scans.reads, "EXPLAIN reads nothing"
        assert answer(service) == wanted
        assert scans.reads == [len(world.built["flights"])]
    with made(world, TwinScans(world), spark_bytes_min=1 << 40) as service:
        said = read_by(service, f"explain analyze {SQL}")
        assert said.startswith("local: ")
        assert "files are less than RTOLAP_HISTORY_SPARK_BYTES_MIN, 1.0 TiB" in said


def test_the_session_decides_whatever_the_size(world: QueryWorld, scans: TwinScans) -> None:
    with made(world, scans, spark_bytes_min=1) as service:
        assert read_by(service, f"explain analyze {SQL}", "local") == "local: rtolap_engine is local"
        assert not scans.reads
    scans = TwinScans(world)
    with made(world, scans, spark_bytes_min=1 << 40) as service:
        assert read_by(service, f"explain analyze {SQL}", "spark") == "spark: rtolap_engine is spark"
        assert scans.reads


def test_results_of_spark_are_kept_and_only_new_versions_are_read(
    world: QueryWorld, scans: TwinScans
) -> None:
    with made(world, scans, keep=True, spark_bytes_min=1) as service:
        first = answer(service)
        assert read_by(service, f"explain analyze {SQL}") == "nobody: the result is kept"
        assert read_by(service, f"explain {SQL}") == "nobody: the result is kept"
        assert answer(service) == first
        assert len(scans.reads) == 1


def test_more_history_than_may_be_read_here_is_refused_by_name_and_read_by_spark(
    world: QueryWorld, scans: TwinScans
) -> None:
    with made(world, None) as unbounded:
        wanted = answer(unbounded)
    with made(world, None, local_bytes_max=100) as service:
        with pytest.raises(TooLarge, match=r"at most 100 B, RTOLAP_HISTORY_LOCAL_BYTES_MAX; found .* files;"):
            answer(service)
        assert read_by(service, f"explain {SQL}").startswith("refused: the statement reads more history")
    with made(world, scans, local_bytes_max=100, spark_bytes_min=100) as service:
        assert answer(service) == wanted
        with pytest.raises(TooLarge, match="SET rtolap_engine = spark"):
            answer_of_another_text(service, "local")


def answer_of_another_text(service: QueryService, wish: EngineWish) -> object:
    """Ask for what no kept result stands for."""
    sql = "select origin, count(*) from flights group by origin"
    return service.execute(sql, (), service.cancellation(engine=wish)).table()


def test_the_choice_is_a_function_of_wish_and_size() -> None:
    rules = EngineRules(has_spark=True, spark_bytes_min=1_000, local_bytes_max=5_000)
    for size_bytes in (0, 999, 1_000, 5_000, 5_001):
        size = HistorySize(1, 10, size_bytes)
        assert rules.choose("auto", size).engine == ("spark" if size_bytes >= 1_000 else "local")
        assert rules.choose("spark", size).engine == "spark"
        if size_bytes <= 5_000:
            assert rules.choose("local", size).engine == "local"
        else:
            with pytest.raises(TooLarge):
                rules.choose("local", size)
    assert (
        EngineRules(has_spark=True, spark_bytes_min=0).choose("auto", HistorySize(0, 0, 0)).engine == "local"
    )
    assert not EngineRules().needs_size("auto"), "it costs nothing where nothing is declared"


@pytest.mark.parametrize(
    ("assignments", "engine"),
    [
        (" rtolap_engine = spark", "spark"),
        (" SESSION rtolap_engine = 'LOCAL'", "local"),
        (" @@rtolap_engine = DEFAULT", "auto"),
        (" @old = 'spark', rtolap_engine = @old", "spark"),
    ],
)
def test_set_rtolap_engine_holds_for_the_session(assignments: str, engine: str) -> None:
    session = SqlSession(1, "ann", "localhost")
    assert session.engine == "auto"
    session.set(assignments)
    assert session.engine == engine
    session.reset()
    assert session.engine == "auto"


def test_an_unknown_engine_is_refused_and_changes_nothing() -> None:
    session = SqlSession(1, "ann", "localhost")
    session.set(" rtolap_engine = spark")
    with pytest.raises(QueryError, match=r"unknown engine of history; expected one of auto, local, spark"):
        session.set(" rtolap_engine = trino")
    with pytest.raises(QueryError, match="unsupported SET GLOBAL rtolap_engine"):
        session.set(" GLOBAL rtolap_engine = local")
    assert session.engine == "spark"


def test_a_request_over_http_names_its_engine(world: QueryWorld, scans: TwinScans) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with made(world, scans, spark_bytes_min=1 << 40) as service:
        client = TestClient(make_app(service, Users({}), TOKEN, HttpLimits()))
        for engine in ("spark", "local", None):
            body = {"sql": f"explain analyze {SQL}"} | ({"engine": engine} if engine else {})
            answered = client.post("/api/v1/query", json=body, headers=headers)
            assert answered.status_code == 200, answered.text
            said = dict(answered.json()["rows"])["history read by"]
            assert said.startswith("spark: " if engine == "spark" else "local: "), engine
        refused = client.post("/api/v1/query", json={"sql": "select 1", "engine": "x"}, headers=headers)
        assert refused.status_code in (400, 422)


@pytest.mark.parametrize(
    "url",
    [
        "sc://10.0.0.1:15002",
        "sc://127.0.0.2:15002",
        "http://localhost:15002",
        "sc://localhost:15002/;token=abc",
        "localhost:15002",
    ],
)
def test_an_address_that_would_give_the_token_away_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="RTOLAP_HISTORY_SPARK") as refused:
        declared_service(settings_with(tmp_path, url))
    assert "abc" not in str(refused.value)


@pytest.mark.parametrize("url", ["sc://localhost:15002", "sc://spark.example:443/;use_ssl=true"])
def test_a_declared_service_has_a_token_of_its_own(url: str, tmp_path: Path) -> None:
    settings = settings_with(tmp_path, url)
    service = declared_service(settings)
    assert service is not None
    assert service.token == service_token(settings)
    assert TOKEN not in service.connection
    assert service.connection.endswith(f";token={service.token}")
    assert service.token not in repr(service)
    own = tmp_path / "own"
    own.write_text("another-token\n")
    assert service_token(settings.model_copy(update={"history_spark_token_file": own})) == "another-token"
    own.write_text("abc;user_id=other\n")
    with pytest.raises(DefinitionError, match="letters, digits"):
        service_token(settings.model_copy(update={"history_spark_token_file": own}))
    assert declared_service(settings_with(tmp_path, "")) is None


def settings_with(folder: Path, url: str) -> Settings:
    (folder / "token").write_text(TOKEN)
    return Settings(token_file=folder / "token", history_spark=url)


def test_the_service_listens_on_loopback_and_its_token_is_on_no_command_line(tmp_path: Path) -> None:
    program = connect_program(
        tmp_path, master="local[2]", port=15_002, token="abc", memory_mb=600, spark_host="127.0.0.1"
    )
    words = " ".join(program.argv)
    assert "spark.connect.grpc.binding.address=127.0.0.1" in words
    assert "spark.authenticate=true" in words
    assert "abc" not in words
    assert program.environment[TOKEN_VARIABLE] == "abc"


@pytest.mark.parametrize("server", ["4.1.0", "4.1.7", "4.1.0-preview"])
def test_a_service_of_the_same_minor_version_is_taken(server: str) -> None:
    check_version(server, "4.1.0", "sc://localhost:1")


@pytest.mark.parametrize("server", ["3.5.1", "4.0.0", "5.1.0", ""])
def test_a_service_of_another_version_of_spark_is_named(server: str) -> None:
    with pytest.raises(
        Unavailable, match=r"sc://localhost:1 has another version .* expected 4\.1, .*rtolap_engine"
    ):
        check_version(server, "4.1.0", "sc://localhost:1")
