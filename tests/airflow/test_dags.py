"""The DAG files parse quickly, without errors, and say what they should."""

from __future__ import annotations

import inspect
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.api.datamodels._generated import DagRunType
from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from jinja2 import Template
from rtolap.airflow.sensors.base import DeferredSensor

DAGS = Path(__file__).resolve().parents[2] / "dags"
IDS = {
    "rtolap_receivers",
    "rtolap_loaders",
    "rtolap_subscriptions",
    "rtolap_publications",
    "rtolap_subscription_definitions",
    "rtolap_segment_build",
    "rtolap_merge_segments",
    "rtolap_purge",
    "rtolap_cube_switch",
    "rtolap_requeue",
    "rtolap_move_partitions",
    "rtolap_retention",
    "rtolap_cleanup",
    "rtolap_backfill",
    "rtolap_watermark_gate",
    "rtolap_notices",
    "rtolap_dead_letters",
    "rtolap_window_approval",
    "rtolap_fleet_balance",
    "rtolap_fleet_rack_repair",
    "rtolap_fleet_drain",
    "rtolap_fleet_cancel",
    "rtolap_fleet_repair",
    "rtolap_fleet_retire",
}


@pytest.fixture(scope="module")
def dag_bag() -> Any:
    return DagBag(str(DAGS))


def test_there_are_no_import_errors(dag_bag: Any) -> None:
    assert dag_bag.import_errors == {}
    assert set(dag_bag.dags) >= IDS


def test_the_whole_folder_parses_in_a_second(dag_bag: Any) -> None:
    """Imports are warm after the first time, as in a DAG processor that has parsed one of the files."""
    started = time.process_time()
    again = DagBag(str(DAGS))
    assert time.process_time() - started < 1.0  # of this process: other load does not count
    assert again.import_errors == {}


def test_parsing_loads_nothing_heavy() -> None:
    script = (
        "import sys\n"
        f"sys.path.insert(0, {str(DAGS)!r})\n"
        "import receivers, loaders, segment_build, purge, upkeep, backfill, watermark_gate\n"
        "import subscriptions, subscription_definitions, fleet_balance, fleet_brokers, move_partitions\n"
        "import merge_segments\n"
        "import rtolap.airflow.assets\n"
        "print([name for name in ('pyarrow', 'pyspark', 'confluent_kafka', 'kazoo', 'duckdb', 'pandas') "
        "if name in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300
    )
    assert answer.stdout.strip().splitlines()[-1] == "[]"


def test_a_run_of_the_build_is_started_by_the_queue_and_never_beside_another(dag_bag: Any) -> None:
    dag = dag_bag.dags["rtolap_segment_build"]
    assert dag.max_active_runs == 1
    assert [asset.name for asset in dag.timetable.asset_condition.objects] == ["rtolap_remote_persisted"]


def test_a_window_has_one_run_in_which_silence_and_reject_let_nothing_go(dag_bag: Any) -> None:
    once = dag_bag.dags["rtolap_watermark_gate"].get_task("ask_once").partial_kwargs
    assert once["trigger_dag_id"] == "rtolap_window_approval"
    assert (once["skip_when_already_exists"], once["logical_date"]) == (True, None)
    tasks = dag_bag.dags["rtolap_window_approval"].task_dict
    assert (tasks["ask"].defaults, tasks["ask"].response_timeout) == (None, None)
    assert tasks["ask"].downstream_task_ids == {"let_go"}  # what Reject skips
    assert tasks["let_go"].trigger_rule == "all_success"
    assert tasks["may_close"].trigger_rule == "none_failed"


def test_nothing_is_done_to_brokers_before_somebody_has_approved_it(dag_bag: Any) -> None:
    for dag_id, changes in (
        *((f"rtolap_fleet_{kind}", {"submit"}) for kind in ("balance", "rack_repair", "drain")),
        ("rtolap_fleet_repair", {"repair", "repaired"}),
        ("rtolap_fleet_retire", {"submit", "retire"}),
    ):
        dag = dag_bag.dags[dag_id]
        assert dag.max_active_runs == 1
        for task_id, task in dag.task_dict.items():
            assert hasattr(task, "answer") == (task_id in changes), task_id
            assert task.trigger_rule == "all_success"
            approvals = {"approve", "well_again"}
            assert task_id not in changes or task.get_flat_relative_ids(upstream=True) & approvals
            if task_id in approvals:
                assert (task.defaults, task.response_timeout) == (None, None)


def test_each_step_in_a_brokers_life_comes_after_a_look_at_the_cluster_of_its_own(dag_bag: Any) -> None:
    """What a step before it has shown may be hours old: somebody was asked meanwhile. A machine that is being
    repaired shows nothing; of that, the person who approves says that it is well."""
    for dag_id, steps in (
        ("rtolap_fleet_repair", {"repair": "may_stop", "repaired": "well_again", None: "in_sync_again"}),
        ("rtolap_fleet_retire", {"submit": "nothing_moves", "retire": "in_sync_again", None: "gone"}),
    ):
        dag = dag_bag.dags[dag_id]
        before: set[str] = set()
        for step, check in steps.items():
            upstream = dag.task_dict[step].get_flat_relative_ids(upstream=True) if step else {*dag.task_dict}
            assert check in upstream - before, step
            before = {*upstream, str(step)}
            looks = isinstance(dag.task_dict[check], BaseSensorOperator)
            assert looks or check == "well_again"


@pytest.mark.parametrize(
    ("dag_id", "task_id", "field"),
    [
        ("rtolap_receivers", "receiver", "receiver_id"),
        ("rtolap_loaders", "loader", "loader"),
        ("rtolap_subscriptions", "consumer", "subscription"),
        ("rtolap_publications", "publisher", "publication"),
    ],
)
def test_tasks_of_services_carry_their_names(dag_bag: Any, dag_id: str, task_id: str, field: str) -> None:
    mapped = dag_bag.dags[dag_id].get_task(task_id)
    rendered = Template(mapped.map_index_template).render(task=SimpleNamespace(**{field: "r7"}))
    assert rendered == "r7"
    assert field in inspect.signature(mapped.operator_class.__init__).parameters


def test_every_task_of_a_broker_dag_is_retried_and_every_look_waits_for_days(dag_bag: Any) -> None:
    for dag_id, dag in dag_bag.dags.items():
        if not dag_id.startswith("rtolap_fleet_"):
            continue
        for task in dag.tasks:
            assert task.retries >= 3, (dag_id, task.task_id)
            assert task.execution_timeout is None
            if isinstance(task, BaseSensorOperator):
                assert isinstance(task, DeferredSensor)
                assert task.timeout >= timedelta(days=14).total_seconds()


def test_receivers_run_once_and_without_end(dag_bag: Any) -> None:
    dag = dag_bag.dags["rtolap_receivers"]
    assert dag.max_active_runs == 1
    assert dag.get_task("receiver").partial_kwargs["retries"] >= 10


def test_backfill_has_daily_intervals_and_catches_nothing_up(dag_bag: Any) -> None:
    dag = dag_bag.dags["rtolap_backfill"]
    assert dag.catchup is False
    assert type(dag.timetable).__name__ == "CronDataIntervalTimetable"


DAY = {"from": None, "to": None}
RANGE = {"from": "2013-01-02T00:00:00Z", "to": "2013-01-04T00:00:00Z"}


def test_a_backfill_acts_and_the_daily_schedule_does_not(dag_bag: Any) -> None:
    cubes = dag_bag.dags["rtolap_backfill"].get_task("cubes").python_callable
    at = datetime(2013, 1, 3, tzinfo=UTC)
    for run_type in (DagRunType.BACKFILL, DagRunType.MANUAL):
        run = SimpleNamespace(run_type=run_type, logical_date=at)
        assert cubes(dag_run=run, params={"cube": "c", **DAY}) == ["c"]
    run = SimpleNamespace(run_type=DagRunType.MANUAL, logical_date=None)
    assert cubes(dag_run=run, params={"cube": "c", **RANGE}) == ["c"]
    with pytest.raises(AirflowSkipException):
        cubes(
            dag_run=SimpleNamespace(run_type=DagRunType.SCHEDULED, logical_date=at),
            params={"cube": "c", **DAY},
        )


@pytest.mark.parametrize("missing", [("from",), ("to",), ("from", "to")])
def test_a_run_by_hand_without_a_range_says_what_is_missing(dag_bag: Any, missing: tuple[str, ...]) -> None:
    cubes = dag_bag.dags["rtolap_backfill"].get_task("cubes").python_callable
    params = {"cube": "c", **RANGE, **dict.fromkeys(missing)}
    with pytest.raises(AirflowFailException, match="expected `from` and `to`"):
        cubes(dag_run=SimpleNamespace(run_type=DagRunType.MANUAL, logical_date=None), params=params)


def test_a_backfill_queues_its_own_range_or_that_of_its_day(dag_bag: Any) -> None:
    requeue = dag_bag.dags["rtolap_backfill"].get_task("requeue").partial_kwargs
    day = {
        "data_interval_start": datetime(2013, 1, 2, tzinfo=UTC),
        "data_interval_end": datetime(2013, 1, 3, tzinfo=UTC),
    }
    for params, dates, expected in (
        (DAY, day, ["2013-01-02T00:00:00+00:00", "2013-01-03T00:00:00+00:00"]),
        (RANGE, day, [*RANGE.values()]),
        (RANGE, {}, [*RANGE.values()]),  # a run without a logical date has no interval
    ):
        found = [Template(requeue[each]).render(params=params, **dates) for each in ("start", "end")]
        assert found == expected
