"""A server of a busy machine that answers late does not end the demonstration: the report names it."""

from __future__ import annotations

import pytest
from rtolap.base.errors import Unavailable
from rtolap.demo.journal import DemoJournal, outcome
from rtolap.demo.run import ask_again

LATE = "receiver 127.0.0.1:7080 does not answer checkpoint"


def test_a_question_that_is_answered_late_is_repeated_and_counted() -> None:
    journal, left = DemoJournal(), [Unavailable(LATE), Unavailable(LATE)]

    def question() -> str:
        if left:
            raise left.pop()
        return "answer"

    assert ask_again(journal, question) == "answer"
    assert outcome(journal, frozenset()).asked_again == {LATE: 2}


def test_a_question_that_is_never_answered_ends_with_its_error() -> None:
    journal = DemoJournal()

    def question() -> str:
        raise Unavailable(LATE)

    with pytest.raises(Unavailable, match="does not answer checkpoint"):
        ask_again(journal, question, within_s=0)
    assert journal.unanswered == {LATE: 1}
