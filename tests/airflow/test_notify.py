"""Who is told of failed tasks and questions: what is said, by whom, and what is never executed."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.bases.notifier import BaseNotifier
from hypothesis import given
from hypothesis import strategies as st
from rtolap.airflow import notify
from rtolap.airflow.notify import Declared, Notice, Notify, notice_of, notifier_of
from rtolap.base.errors import DefinitionError

from tests.airflow.task_context import Store
from tests.airflow.test_dags import DAGS

MODULE = "airflow.providers.for_tests"


class Told(BaseNotifier):
    """Keeps what it was told, as rendered."""

    template_fields = ("text",)
    found: ClassVar[list[tuple[str, Any]]] = []

    def __init__(self, text: str = "", plain: Any = None, fails: bool = False) -> None:
        super().__init__()
        self.text, self.plain, self.fails = text, plain, fails

    def notify(self, context: Any) -> None:
        if self.fails:
            raise OSError("the server is away")
        self.found.append((self.text, self.plain))


@pytest.fixture(autouse=True)
def provider(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(MODULE)
    module.Told, module.Other = Told, dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, MODULE, module)
    Told.found.clear()


def variable(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    monkeypatch.setattr(notify.Variable, "get", lambda *_args, **_more: text)


def failed(error: str = "no space", **more: Any) -> Any:
    ti = SimpleNamespace(dag_id="d", task_id="t", run_id="r", log_url="http://airflow/log", **more)
    return {"ti": ti, "exception": ValueError(error)}


def declared(**arguments: Any) -> dict[str, Any]:
    return {"class": f"{MODULE}.Told", "arguments": arguments}


def test_a_failed_task_is_told_by_every_notifier_though_one_of_them_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variable(monkeypatch, [declared(fails=True), declared(text="{subject}", plain=["{text}"])])
    Notify()(failed(rendered_map_index="flights"))
    ((text, plain),) = Told.found
    assert text == "rtolap: d.t [flights] failed"
    assert plain == ["Task d.t [flights] of run r\n\nno space\n\nhttp://airflow/log"]


class Question:
    """What a notice needs of Airflow's operator of a question."""

    subject, body = "May it go on?", "3 segments"

    def __init__(self, users: Any = None, timeout: Any = None, defaults: Any = None) -> None:
        self.assigned_users, self.response_timeout, self.defaults = users, timeout, defaults


def asking(question: Question, store: Any, *, max_tries: int = 3) -> Any:
    ti = failed(max_tries=max_tries)["ti"]
    return {"ti": ti, "task": question, "task_state_store": store}


def test_a_question_says_who_is_asked_until_when_and_what_silence_means(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notify, "utcnow", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    users = [{"id": "ann", "name": "Ann"}, {"id": "bob", "name": "Bob"}]
    asked = notice_of(asking(Question(users, timedelta(hours=2), ["Reject"]), Store()))
    assert "For: Ann (ann), Bob (bob)" in asked.text
    assert "Answer by 2026-01-01T02:00:00+00:00, else Reject is taken" in asked.text
    ended = notice_of(asking(Question(timeout=timedelta(hours=2)), Store()))
    assert "else the task fails" in ended.text
    plain = notice_of(asking(Question(), Store())).text
    assert "For:" not in plain
    assert "Answer by" not in plain


def test_a_question_is_told_once_over_its_tries_and_anew_after_a_clear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store()
    variable(monkeypatch, [declared(fails=True)])
    Notify()(asking(Question(), store))  # told nobody: the next try tells
    variable(monkeypatch, [declared(text="{subject}")])
    for _ in range(3):
        Notify()(asking(Question(), store))
    assert len(Told.found) == 1
    Notify()(asking(Question(), store, max_tries=7))
    assert len(Told.found) == 2


def test_every_question_of_the_shipped_dags_may_be_told() -> None:
    """Airflow's own operators of questions have what a notice reads of them."""
    operator = ApprovalOperator(
        task_id="t",
        subject="s",
        assigned_users={"id": "ann", "name": "Ann"},
        response_timeout=timedelta(hours=1),
        defaults="Reject",
    )
    text = notice_of(asking(operator, Store())).text  # type: ignore[arg-type]
    assert "For: Ann (ann)" in text
    assert "else Reject is taken" in text


def test_without_the_variable_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    variable(monkeypatch, "")
    Notify()(failed())
    assert Told.found == []


def test_a_question_is_told_with_its_text() -> None:
    ti = failed()["ti"]
    operator = SimpleNamespace(subject="Change a\nrunning cube?", body="3 segments")
    notice = notice_of({"ti": ti, "task": operator})  # type: ignore[typeddict-item]
    assert notice.subject == "rtolap asks: Change a running cube?"
    assert "3 segments" in notice.text


@given(st.text(alphabet="{}%#'\"<&ab \n\\", max_size=30), st.sampled_from(["{text}", "x{subject}{text}"]))
def test_what_is_told_is_never_executed_as_a_template(said: str, template: str) -> None:
    notice = Notice("{{ 1/0 }}", said)
    Told.found.clear()
    notifier_of(Declared(f"{MODULE}.Told", {"text": template, "plain": "{html}"}), notice)({})
    ((text, plain),) = Told.found
    # Jinja drops one newline at the end of a template.
    expected = template.replace("{subject}", "{{ 1/0 }}").replace("{text}", said)
    assert text.rstrip("\n") == expected.rstrip("\n")
    assert "<" not in plain


@pytest.mark.parametrize(
    "path", ["os.system", f"{MODULE}.Other", f"{MODULE}.Gone", "airflow.providers.gone.A", "x"]
)
def test_a_class_that_is_no_notifier_of_a_provider_is_refused(path: str) -> None:
    with pytest.raises(DefinitionError, match="names no notifier"):
        notifier_of(Declared(path, {}), Notice("s", "t"))


@pytest.mark.parametrize("value", ["{", "{}", '[{"arguments": {}}]', '[{"class": "a", "to": 1}]'])
def test_a_variable_in_no_form_is_named_in_the_log_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    variable(monkeypatch, value)
    with pytest.raises(DefinitionError, match=notify.VARIABLE):
        notify.declared_notifiers()
    Notify()(failed())


def test_every_task_tells_of_its_failure_and_every_question_is_told() -> None:
    for dag_id, dag in DagBag(str(DAGS)).dags.items():
        for task in dag.tasks:
            arguments = getattr(task, "partial_kwargs", None) or vars(task)
            callbacks = arguments.get("on_failure_callback") or arguments.get("_on_failure_callback")
            found = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
            assert [type(each) for each in found] == [Notify], (dag_id, task.task_id)
            if hasattr(task, "assigned_users"):
                assert [type(each) for each in task.notifiers] == [Notify], (dag_id, task.task_id)
