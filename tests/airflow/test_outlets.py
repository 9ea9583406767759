"""Assets that tasks announce: each event once, whatever ends an execution and however often it is cleared."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import AssetEventResult, AssetEventsResult, ErrorResponse
from hypothesis import given
from hypothesis import strategies as st
from rtolap.airflow.outlets import recorded as recorded_module
from rtolap.airflow.outlets.loads import LOADED_TABLES, announce_load, loaded_table
from rtolap.airflow.outlets.plans import FINISHED_PLANS, finished_plans
from rtolap.airflow.outlets.recorded import announce_once, recorded
from rtolap.airflow.triggers.table_versions import TableVersionTrigger
from rtolap.model.stored.table import StoredColumn, StoredTable

from tests.airflow.task_context import Recorded, events_of, task_context
from tests.support.stored.load_endpoint import PASSWORD, TOKEN, USER, LoadEndpoint, load_endpoint

ALIAS = AssetAlias(name="of_test")
ENDS = ("succeeds", "fails", "is lost while it announces")


class LostWorker(BaseException):
    pass


@given(
    executions=st.lists(
        st.tuples(st.sampled_from(ENDS), st.lists(st.integers(0, 4), max_size=6), st.integers(0, 3)),
        min_size=1,
        max_size=8,
    )
)
def test_each_event_is_recorded_once_over_any_executions_of_a_task(executions: Any) -> None:
    """Whatever an execution that succeeds has to tell is recorded then, and nothing is recorded twice."""
    ctx, airflow = task_context(), Recorded()
    expected: set[tuple[str, int]] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded_module, "recorded", airflow)
        for end, numbers, cut in executions:
            wanted = [(Asset(f"a{number % 2}"), {"n": number}) for number in dict.fromkeys(numbers)]
            if end == ENDS[2]:

                def lost(events: Any = wanted, after: int = cut) -> Any:
                    yield from events[:after]
                    raise LostWorker

                with pytest.raises(LostWorker):
                    announce_once(ctx, ALIAS, lost(), identity=("n",))
                airflow.lose(ctx)
                continue
            announce_once(ctx, ALIAS, wanted, identity=("n",))
            if end == "fails":
                airflow.lose(ctx)
            else:
                airflow.succeed(ctx, ALIAS)
                expected |= {(f"a{number % 2}", number) for number in numbers}
    found = [(name, extra["n"]) for name, extra in airflow.events]
    assert sorted(found) == sorted(expected)


def test_the_first_execution_asks_airflow_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Recorded()
    monkeypatch.setattr(recorded_module, "recorded", airflow)
    announce_once(task_context(), ALIAS, [(Asset("a"), {"n": 1})], identity=("n",))
    assert airflow.looks == 0


class Supervisor:
    """Answers the question for an asset's events as Airflow does."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    def send(self, message: Any) -> Any:
        self.asked.append(message)
        return self.answer


def event(number: int, **source: Any) -> AssetEventResult:
    of_task = {"source_dag_id": "d", "source_run_id": "r", "source_task_id": "t", "source_map_index": -1}
    return AssetEventResult.model_validate(
        {
            "id": number,
            "timestamp": "2026-01-02T00:00:00Z",
            "extra": {"n": number},
            "asset": {"name": "a", "uri": "a", "group": "asset"},
            "created_dagruns": [],
            **of_task,
            **source,
        }
    )


def test_only_events_of_this_task_in_this_run_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [
        event(2, source_run_id="another"),
        event(3, source_map_index=1),
        event(4, source_task_id="another"),
        event(5, source_dag_id="another"),
        event(6, source_task_id=None, source_map_index=None),
    ]
    supervisor = Supervisor(AssetEventsResult(asset_events=[event(1), *others]))
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", supervisor, raising=False)
    assert recorded(task_context(), Asset("a")) == [{"n": 1}]
    (asked,) = supervisor.asked
    assert (asked.name, asked.after.isoformat()) == ("a", "2026-01-01T00:00:00+00:00")


def test_where_airflow_cannot_say_an_event_comes_again_rather_than_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 500})
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Supervisor(answer), raising=False)
    assert recorded(task_context(), Asset("a")) == []


def test_a_load_is_an_event_of_its_tables_asset_with_version_and_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    airflow, ctx = Recorded(), task_context()
    monkeypatch.setattr(recorded_module, "recorded", airflow)
    result = {
        "loaded": {"0": 5, "1": 7},
        "loader": "hits",
        "topic": "t",
        "database": "web",
        "table": "hits",
        "rows": 12,
    }
    announce_load(ctx, result)
    told = {
        "database": "web",
        "table": "hits",
        "loader": "hits",
        "topic": "t",
        "version": {"0": 5, "1": 7},
        "rows": 12,
    }
    assert events_of(ctx, LOADED_TABLES) == [(loaded_table("web", "hits").name, told)]
    airflow.succeed(ctx, LOADED_TABLES)
    announce_load(ctx, {**result, "rows": 0})  # the loader was started again, and has loaded nothing since
    assert events_of(ctx, LOADED_TABLES) == []
    announce_load(ctx, {**result, "loaded": {"0": 6, "1": 7}})
    assert [extra["version"] for _, extra in events_of(ctx, LOADED_TABLES)] == [{"0": 6, "1": 7}]


@pytest.mark.parametrize("name", ["a", "a b", "a/b", "ä%"])
def test_names_of_clusters_and_tables_make_assets(name: str) -> None:
    assert finished_plans(name).uri.startswith("x-rtolap://kafka/")
    assert loaded_table(name, name).uri.startswith("x-rtolap://tables/")
    assert finished_plans(name).name != finished_plans(name + "x").name
    assert FINISHED_PLANS.name != LOADED_TABLES.name


# -- versions of stored tables ---------------------------------------------------------------------------

TABLE = StoredTable(
    database="web",
    name="hits",
    columns=(StoredColumn("id", "int", nullable=False), StoredColumn("host", "string")),
    keys=("id",),
)


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadEndpoint]:
    with load_endpoint(tmp_path / "endpoint") as running:
        running.assembly.catalogue.create_table(TABLE)
        extra = {
            "agent_url": "http://127.0.0.1:1",
            "coordinator_urls": "http://127.0.0.1:1",
            "stream_load_urls": running.url,
        }
        connection = {"conn_type": "rtolap", "password": TOKEN, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_RTOLAP_DEFAULT", json.dumps(connection))
        yield running


class KeptState:
    """The state that Airflow keeps with a watched asset, over triggerers."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    async def aget(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    async def aset(self, key: str, value: Any) -> None:
        self.values[key] = json.loads(json.dumps(value))

    def versions(self) -> dict[str, int]:
        found = self.values.get("announced_versions")
        return found if isinstance(found, dict) and all(isinstance(at, int) for at in found.values()) else {}


def loaded(endpoint: LoadEndpoint, label: str) -> None:
    answer = httpx.put(
        f"{endpoint.body_url}/api/web/hits/_stream_load",
        content=b"1,a\n2,b\n",
        headers={"label": label, "column_separator": ",", "Expect": "100-continue"},
        auth=(USER, PASSWORD),
        timeout=60,
    )
    assert answer.json()["Status"] == "Success", answer.text


async def watched(kept: KeptState, act: Callable[[], None] | None, number: int) -> list[Any]:
    """The first `number` events of a triggerer's watch; `act` is done once the first look is over."""
    trigger = TableVersionTrigger(database="web", table="hits", poll_s=0.05)
    trigger.asset_state_store = kept  # type: ignore[assignment]
    events = aiter(trigger.run())
    if act is not None:
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.to_thread(act)
        found = [(await asyncio.wait_for(waiting, 30)).payload]
    else:
        found = []
    found += [(await asyncio.wait_for(anext(events), 30)).payload for _ in range(number - len(found))]
    going_on = asyncio.ensure_future(anext(events))  # what was fired is noted as the watch goes on
    async with asyncio.timeout(30):
        while sum(kept.versions().values()) != found[-1]["version"]:
            await asyncio.sleep(0.01)
    assert not going_on.done()
    going_on.cancel()
    return found


def test_each_new_version_is_an_event_once_over_changes_of_the_triggerer(endpoint: LoadEndpoint) -> None:
    kept = KeptState()
    (first,) = asyncio.run(watched(kept, lambda: loaded(endpoint, "a"), 1))
    assert (first["database"], first["table"], first["version"]) == ("web", "hits", 1)
    assert first["rows"] == 2
    loaded(endpoint, "b")  # while no triggerer lives
    loaded(endpoint, "c")
    (second,) = asyncio.run(watched(kept, None, 1))
    assert (second["version"], list(second["partitions"].values())) == (3, [3])
    assert second["rows"] == 4, "of both loads, though another triggerer has seen the first one"
    (third,) = asyncio.run(watched(kept, lambda: loaded(endpoint, "d"), 1))
    assert third["version"] == 4
    kept.values["announced_incarnations"] = {"hits": 7}
    loaded(endpoint, "e")
    (fourth,) = asyncio.run(watched(kept, None, 1))
    assert (fourth["version"], fourth["rows"]) == (5, None), "of a partition that was made again"


@pytest.mark.parametrize("value", [{"hits": "x"}, [1], "1"])
def test_kept_versions_in_no_form_are_told_anew(endpoint: LoadEndpoint, value: Any) -> None:
    kept = KeptState()
    kept.values["announced_versions"] = value
    (event,) = asyncio.run(watched(kept, lambda: loaded(endpoint, "a"), 1))
    assert event["version"] == 1
    assert kept.values["announced_versions"] == event["partitions"]
