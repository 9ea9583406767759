"""Which errors fail a task at once and which are retried, for every operator and sensor that is shipped."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import BaseOperator
from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.sdk.exceptions import AirflowFailException
from rtolap.airflow import operators, sensors
from rtolap.airflow.declared import LOADERS
from rtolap.airflow.errors import FINAL, final_at_once
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.operators.alterations import AlterCubeOperator, PlanAlterationOperator
from rtolap.airflow.operators.approved import ApprovedCubeOperator
from rtolap.airflow.operators.coordinator import (
    CleanupOperator,
    CubeOperator,
    PromoteOperator,
    PurgeOperator,
    RequeueOperator,
    RequeueSegmentOperator,
    RetentionOperator,
    SwitchCubeOperator,
)
from rtolap.airflow.operators.fleet import (
    BrokerOperationOperator,
    CancelPlanOperator,
    FleetOperator,
    PlanFleetOperator,
    SubmitPlanOperator,
)
from rtolap.airflow.operators.letters import DeadLettersOperator
from rtolap.airflow.operators.moves import MoveBackOperator, MovePartitionsOperator, PlanMoveOperator
from rtolap.airflow.operators.notices import TellDeadLettersOperator, TellOverdueWindowsOperator
from rtolap.airflow.operators.process import ManagedProcessOperator
from rtolap.airflow.operators.services import declared_services, service_dag
from rtolap.airflow.operators.subscriptions import (
    CreateSubscriptionOperator,
    DropSubscriptionOperator,
    HBaseOperator,
)
from rtolap.airflow.operators.topics import CheckTopicsOperator
from rtolap.airflow.operators.window_approval import ApproveWindowOperator, WindowApprovalOperator
from rtolap.airflow.sensors import base as sensors_base
from rtolap.airflow.sensors.base import DeferredSensor
from rtolap.base import errors
from rtolap.base.errors import NotFound, RtolapError

APPROVED = {"chosen_options": ["Approve"], "responded_by_user": {"id": "a", "name": "a"}, "params_input": {}}
CONTEXT: Any = {"ti": SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=1)}
# Their state is elsewhere, and what ends them is for a person: see `airflow.errors`.
RETRIED_WHATEVER = {ManagedProcessOperator, CheckTopicsOperator}
BASES = {CubeOperator, ApprovedCubeOperator, FleetOperator, HBaseOperator}
PLANNED = {"plan": {"cube": "c", "changes": []}, "request": {"definition": {}}}
CALLS: dict[type[BaseOperator], dict[str, Any]] = {
    PromoteOperator: {"cube": "c", "segment": "s", "build_id": "b"},
    PurgeOperator: {"cube": "c", "before": 1},
    RetentionOperator: {"cube": "c"},
    CleanupOperator: {"cube": "c"},
    RequeueOperator: {"cube": "c", "start": 0, "end": 1},
    RequeueSegmentOperator: {"cube": "c", "segment": "s"},
    SwitchCubeOperator: {"cube": "c", "to": "pause"},
    ApproveWindowOperator: {"application": "a", "window_end": 1, "answer": APPROVED},
    WindowApprovalOperator: {"application": "a", "window_end": 1},
    PlanFleetOperator: {"kind": "rack"},
    SubmitPlanOperator: {"planned": {}, "answer": APPROVED},
    CancelPlanOperator: {"plan_id": "p"},
    BrokerOperationOperator: {"operation": "retire", "broker": 1, "answer": APPROVED},
    CreateSubscriptionOperator: {"subscription": "s"},
    DropSubscriptionOperator: {"subscription": "s"},
    PlanMoveOperator: {"cube": "c"},
    PlanAlterationOperator: {"cube": "c", "file": "f.yaml"},
    AlterCubeOperator: {
        "cube": "c",
        "planned": PLANNED,
        "answer": APPROVED,
    },
    MovePartitionsOperator: {"cube": "c", "planned": {"after": {}, "epoch": 1}, "answer": APPROVED},
    TellOverdueWindowsOperator: {},
    TellDeadLettersOperator: {},
    DeadLettersOperator: {"loader": "l", "action": "replay"},
    MoveBackOperator: {"cube": "c", "planned": {"before": {}}, "epoch": 2, "answer": APPROVED},
}


def shipped(package: Any) -> set[type[BaseOperator]]:
    """Concrete operators of the package's modules."""
    found: set[type[BaseOperator]] = set()
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(kind, BaseOperator) and kind.__module__ == module.name:
                found.add(kind)
    return found


def all_errors(kind: type[RtolapError] = RtolapError) -> Iterator[type[RtolapError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from all_errors(child)


def made(kind: type[RtolapError]) -> RtolapError:
    return errors.from_dict({"code": kind.code, "message": "of a test"})


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_an_error_is_final_or_retried_by_its_type_alone(kind: type[RtolapError]) -> None:
    expected = AirflowFailException if issubclass(kind, FINAL) else kind
    with pytest.raises(expected, match="of a test"), final_at_once():
        raise made(kind)


def test_every_operator_that_is_shipped_goes_by_the_types_or_is_retried_whatever_it_is() -> None:
    others = {
        kind
        for kind in shipped(operators)
        if kind not in CALLS and not issubclass(kind, tuple(RETRIED_WHATEVER)) and kind not in BASES
    }
    assert others == set()


@pytest.mark.parametrize("kind", CALLS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("error", ["not_found", "unavailable"])
def test_an_unknown_name_fails_an_operator_at_once_and_a_silent_peer_is_retried(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseOperator], error: str
) -> None:
    raised = errors.from_dict({"code": error, "message": "of a test"})

    class Broken:
        def opened(self) -> Any:
            return self

        def __enter__(self) -> Any:
            raise raised

        def __exit__(self, *_: object) -> None: ...

    for service in ("coordinator", "agent"):
        monkeypatch.setattr(RtolapHook, service, lambda _hook: Broken())
    for module in ("fleet.open_fleet", "subscriptions.open_replication"):
        monkeypatch.setattr(f"rtolap.airflow.operators.{module}", lambda *_: Broken())
    defined = {"s": object()}
    monkeypatch.setattr("rtolap.airflow.operators.subscriptions.defined_subscriptions", lambda _: defined)
    expected = AirflowFailException if error == "not_found" else type(raised)
    with pytest.raises(expected, match="of a test"):
        kind(task_id="t", **CALLS[kind]).execute(CONTEXT)


def test_every_sensor_that_is_shipped_defers() -> None:
    kinds = {kind for kind in shipped(sensors) if kind.__module__ != sensors_base.__name__}
    assert kinds
    for kind in kinds:
        assert issubclass(kind, DeferredSensor), kind
        assert issubclass(kind, BaseSensorOperator)
        assert kind.execute is DeferredSensor.execute, kind


@pytest.mark.parametrize("passing", [(), (NotFound,)])
def test_a_sensor_fails_at_once_for_a_name_that_nobody_knows_unless_it_may_come(
    passing: tuple[type[RtolapError], ...],
) -> None:
    class Sensor(DeferredSensor[None]):
        @contextmanager
        def client(self, hook: RtolapHook) -> Iterator[None]:
            raise NotFound("of a test")
            yield

        poll = found = trigger = fired = None  # type: ignore[assignment]

    Sensor.__abstractmethods__ = frozenset()
    Sensor.passing = passing
    with pytest.raises(NotFound if passing else AirflowFailException, match="of a test"):
        Sensor(task_id="t").execute({})


@pytest.mark.parametrize("declared", [None, []])
def test_while_no_loaders_are_declared_the_task_waits_and_says_where_they_are_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, caplog: pytest.LogCaptureFixture, declared: Any
) -> None:
    with service_dag(LOADERS, None) as dag:
        declared_services(LOADERS)
    task = dag.get_task("declared")
    monkeypatch.setenv("RTOLAP_INCLUDE_DIR", str(tmp_path))
    monkeypatch.setattr("rtolap.airflow.operators.services.Variable.get", lambda *_, **__: declared)
    with caplog.at_level("INFO"):
        seen = task.poke({})
    assert not seen.is_done
    assert "no loaders are declared, in Variable rtolap_loaders or" in caplog.text
    (tmp_path / "loaders.yaml").write_text("[{name: hits, port: 7051}]")
    if declared is None:
        assert task.poke({}).xcom_value == [{"loader": "hits", "port": 7051, "complete": None}]
    assert (task.mode, task.timeout > 86_400 * 365) == ("reschedule", True)
