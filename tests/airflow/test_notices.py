"""Notices of overdue windows and refused records: each once over looks, lost workers and mail servers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.notices import LetterTopic, overdue_notice, refused_notice
from rtolap.airflow.notify import Notice
from rtolap.airflow.operators import notices
from rtolap.airflow.operators.notices import NOTICES, TellDeadLettersOperator, TellOverdueWindowsOperator
from rtolap.airflow.windows import Window
from rtolap.base.errors import NotFound, Unavailable
from rtolap.kafka.dead_letters import DeadLetter, NewDeadLetters
from rtolap.protocols.watermark.messages import Explanation

SECRET = "4111-1111-1111-1111"


class AssetState:
    """The state that Airflow keeps with an asset, over the runs of a DAG."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def __getitem__(self, asset: Any) -> AssetState:
        assert asset == NOTICES
        return self

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def set(self, key: str, value: Any) -> None:
        self.values[key] = value


def context(state: AssetState, asked: frozenset[str] = frozenset()) -> Any:
    def count(*, dag_id: str, run_ids: list[str]) -> int:
        return len(asked & set(run_ids))

    ti = SimpleNamespace(get_dr_count=count)
    return {"ti": ti, "asset_state_store": state}


class People:
    """Those who are told; `reached` is False while the mail server is away."""

    def __init__(self) -> None:
        self.told: list[Notice] = []
        self.reached = True

    def __call__(self, notice: Notice, context: Any) -> bool:
        if self.reached:
            self.told.append(notice)
        return self.reached


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch) -> People:
    made = People()
    monkeypatch.setattr(notices, "tell", made)
    return made


# -- refused records -------------------------------------------------------------------------------------


def letter(offset: int, topic: str = "orders", reason: str = "not_json") -> DeadLetter:
    return DeadLetter(topic, 0, offset, reason, f"of {offset}", SECRET)


class Topics:
    """Topics of dead letters with one partition, whose n-th letter is at offset n."""

    def __init__(self) -> None:
        self.letters: dict[str, list[DeadLetter]] = {}
        self.away = False

    def open(self, cluster: str, kafka_conn_id: str | None = None) -> Any:
        return SimpleNamespace(new_dead_letters=self.new)

    def new(self, topic: str, since: dict[int, int], letters_max: int) -> NewDeadLetters:
        if self.away:
            raise Unavailable("Kafka does not answer")
        if topic not in self.letters:
            raise NotFound(f"there is no topic {topic}")
        first = since.get(0, 0)
        found = self.letters[topic][first : first + letters_max]
        more = len(self.letters[topic]) > first + len(found)
        return NewDeadLetters(tuple(found), {0: first + len(found)}, more)


@given(steps=st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.booleans()), max_size=12))
def test_each_letter_is_told_once_over_looks_with_kafka_or_the_mail_server_away(steps: Any) -> None:
    topics, people, state = Topics(), People(), AssetState()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(notices, "tell", people)
        patch.setattr(notices, "open_kafka", topics.open)
        patch.setattr(notices, "LETTERS_MAX", 3)
        operator = TellDeadLettersOperator(task_id="t", topics=["orders.dead-letters"])
        for refused, away, unreached in [*steps, *[(0, False, False)] * 25]:
            if refused:
                known = topics.letters.setdefault("orders.dead-letters", [])
                known += [letter(len(known) + number) for number in range(refused)]
            topics.away, people.reached = away, not unreached
            if away:
                with pytest.raises(Unavailable):
                    operator.execute(context(state))
            else:
                operator.execute(context(state))
    told = "\n".join(notice.text for notice in people.told)
    for each in topics.letters.get("orders.dead-letters", []):
        assert told.count(f"offset {each.offset}:") == 1
    assert SECRET not in told


def test_a_topic_that_cannot_be_read_hides_no_other(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Topics()
    topics.letters = {"b": [letter(0)]}

    def new(topic: str, *rest: Any) -> NewDeadLetters:
        if topic == "a":
            raise Unavailable("Kafka does not answer")
        return topics.new(topic, *rest)

    monkeypatch.setattr(notices, "open_kafka", lambda *_: SimpleNamespace(new_dead_letters=new))
    operator = TellDeadLettersOperator(task_id="t", topics=["a", "b", "c"])
    with pytest.raises(Unavailable):
        operator.execute(context(AssetState()))
    assert [notice.subject for notice in people.told] == ["rtolap: 1 record of b set apart"]


def test_a_notice_counts_a_record_that_two_processes_refused_once() -> None:
    source = LetterTopic("default", "t", "table orders", "rtolap dead-letters list orders")
    told = refused_notice(source, [letter(1), letter(1), letter(2, reason="too_late")], more=True)
    assert told.subject == "rtolap: 2 and more records of table orders set apart"
    assert "1 × not_json" in told.text
    assert "1 × too_late" in told.text
    assert told.text.endswith("Look: rtolap dead-letters list orders")


# -- overdue windows -------------------------------------------------------------------------------------

WINDOWS = [Window("logs", 3_600_000 * hour) for hour in range(3)]


def explanation(window: Window) -> Explanation:
    return Explanation(
        application=window.application,
        window_end_ms=window.end_ms,
        may_close=False,
        reasons=("h1 is behind",),
    )


class Coordinator:
    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, *_: object) -> None: ...


@given(
    looks=st.lists(
        st.tuples(st.sets(st.sampled_from(WINDOWS)), st.sets(st.sampled_from(WINDOWS)), st.booleans()),
        max_size=8,
    )
)
def test_a_window_is_told_once_while_it_is_overdue_and_not_while_a_person_is_asked(looks: Any) -> None:
    people, state = People(), AssetState()
    expected: list[str] = []
    standing: set[Window] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(notices, "tell", people)
        patch.setattr(RtolapHook, "coordinator", lambda _hook: Coordinator())
        patch.setattr(notices, "explain", lambda _coordinator, window: explanation(window))
        operator = TellOverdueWindowsOperator(task_id="t")
        for overdue, asked, reached in looks:
            people.reached = reached
            patch.setattr(notices, "windows_to_ask_about", lambda *_, found=overdue: sorted(found))
            operator.execute(context(state, frozenset(window.run_id for window in asked)))
            fresh = {window for window in overdue - standing - asked if reached}
            expected += [overdue_notice(explanation(window)).text for window in sorted(fresh)]
            standing = (standing & overdue) | fresh
    assert [notice.text for notice in people.told] == expected


def test_what_another_version_has_kept_in_another_form_is_told_anew(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, topics = AssetState(), Topics()
    topics.letters = {"a": [letter(0)]}
    monkeypatch.setattr(notices, "open_kafka", topics.open)
    state.values["letters.kafka_default.a"] = ["x"]
    assert TellDeadLettersOperator(task_id="t", topics=["a"]).execute(context(state)) == {"a": 1}
    assert state.values["letters.kafka_default.a"] == {"0": 1}
    assert TellDeadLettersOperator(task_id="t", topics=["a"]).execute(context(state)) == {}
