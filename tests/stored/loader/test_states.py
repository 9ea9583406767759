"""What is done with a batch by the state of its label: every cell of the table."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from rtolap.protocols.stream_load.messages import LoadAnswer, LoadState
from rtolap.stored.loader.states import ACTIONS, Action, Sent, Verdict, verdict

S, A = LoadState, Action


def test_the_table_is_complete() -> None:
    assert ACTIONS.keys() == {(sent, state) for sent in Sent for state in LoadState}


@pytest.mark.parametrize(
    ("state", "action"),
    [
        (S.UNKNOWN, A.SEND),
        (S.PREPARE, A.WAIT),
        (S.PRECOMMITTED, A.COMMIT),
        (S.COMMITTED, A.LOADED),
        (S.VISIBLE, A.LOADED),
        (S.ABORTED, A.SEND),
    ],
)
def test_a_sent_batch_follows_its_label(state: LoadState, action: Action) -> None:
    assert ACTIONS[Sent.LATELY, state] is action
    late = A.STOP_FORGOTTEN if state is S.UNKNOWN else action
    assert ACTIONS[Sent.LONG_AGO, state] is late


def test_a_label_that_was_never_sent_is_somebody_elses_when_it_is_known() -> None:
    found = {state: ACTIONS[Sent.NEVER, state] for state in LoadState}
    assert found.pop(S.UNKNOWN) is A.SEND
    assert set(found.values()) == {A.STOP_FOREIGN}


@pytest.mark.parametrize("two_phase", [False, True])
def test_nothing_but_a_definite_answer_is_believed(two_phase: bool) -> None:
    def of(status: str, existing: str | None = None) -> Verdict:
        answer = LoadAnswer(
            status=status,  # type: ignore[arg-type]
            existing_job_status=UNSET if existing is None else existing,
        )
        return verdict(answer, two_phase=two_phase)

    done = Verdict.COMMIT if two_phase else Verdict.LOADED
    assert of("Success") is done
    assert of("Publish Timeout") is done
    assert of("Label Already Exists", "FINISHED") is Verdict.LOADED
    for unsure in (
        of("Label Already Exists", "RUNNING"),
        of("Label Already Exists", "PRECOMMITTED"),
        of("Label Already Exists"),
        of("Fail"),
    ):
        assert unsure is Verdict.ASK
