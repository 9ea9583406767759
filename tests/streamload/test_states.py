"""Every move of a transaction, and the words for those that are forbidden."""

from __future__ import annotations

import pytest
from rtolap.base.errors import DefinitionError, IllegalTransition
from rtolap.ledger.records import Partition, Replica, Tablet, Transaction, TransactionState
from rtolap.streamload.labels import checked_label, label_used
from rtolap.streamload.quorum import shortfall
from rtolap.streamload.states import TRANSITIONS, TransactionEvent, transition

S, E = TransactionState, TransactionEvent


def transaction(state: TransactionState, *, two_phase: bool = True) -> Transaction:
    return Transaction(
        7, "d", "L", "r", state, ("t",), two_phase, False, False, False, 0, 1, None, None, "disk full", "ann"
    )


@pytest.mark.parametrize(("state", "event"), list(TRANSITIONS))
def test_a_legal_move_leads_where_the_table_says(state: S, event: E) -> None:
    one_phase = (state, event) == (S.PREPARE, E.COMMIT)
    assert transition(transaction(state, two_phase=not one_phase), event) is TRANSITIONS[state, event]


@pytest.mark.parametrize(
    ("state", "event", "words"),
    [
        (S.PREPARE, E.COMMIT, "transaction [7] is prepare, not pre-committed."),
        (S.COMMITTED, E.COMMIT, "transaction [7] is already committed, not pre-committed."),
        (S.VISIBLE, E.COMMIT, "transaction [7] is already visible, not pre-committed."),
        (S.ABORTED, E.COMMIT, "transaction [7] is already aborted. abort reason: disk full"),
        (S.COMMITTED, E.ABORT, "transaction [7] state is COMMITTED, could not abort"),
        (S.VISIBLE, E.ABORT, "transaction [7] state is VISIBLE, could not abort"),
        (S.COMMITTED, E.PRECOMMIT, "transaction [7] is already committed"),
    ],
)
def test_a_forbidden_move_is_refused_in_the_words_that_clients_match(state: S, event: E, words: str) -> None:
    with pytest.raises(IllegalTransition) as caught:
        transition(transaction(state), event)
    assert str(caught.value) == words


def test_nothing_else_is_legal() -> None:
    for state in S:
        for event in E:
            if (state, event) not in TRANSITIONS:
                with pytest.raises(IllegalTransition):
                    transition(transaction(state), event)
    with pytest.raises(IllegalTransition, match="was not begun with two phases"):
        transition(transaction(S.PREPARE, two_phase=False), E.PRECOMMIT)


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (S.PREPARE, "RUNNING"),
        (S.PRECOMMITTED, "PRECOMMITTED"),
        (S.COMMITTED, "FINISHED"),
        (S.VISIBLE, "FINISHED"),
    ],
)
def test_a_used_label_names_its_transaction_and_how_far_it_is(state: S, status: str) -> None:
    error = label_used(transaction(state))
    assert str(error) == "Label [L] has already been used, relate to txn [7]"
    assert (error.txn_id, error.existing_job_status) == (7, status)


@pytest.mark.parametrize("label", ["", "a b", "a/b", "é", "x" * 129, "a\n"])
def test_a_label_of_another_form_is_refused(label: str) -> None:
    with pytest.raises(DefinitionError, match="Label format error"):
        checked_label(label)


def test_a_majority_is_more_than_half_of_each_tablets_replicas() -> None:
    tablet, other = Tablet(Partition("d", "t", "p"), 0), Tablet(Partition("d", "t", "p"), 1)
    replicas = [Replica(each, node, 0) for each in (tablet, other) for node in ("a", "b", "c", "d")]
    enough = {node: {tablet, other} for node in ("a", "b", "c")}
    assert shortfall(replicas, enough) is None
    half = {**enough, "c": {tablet}, "x": {other}}
    missing = shortfall(replicas, half)
    assert missing is not None
    assert (missing.tablet, missing.have, missing.needed, missing.without) == (other, 2, 3, ("c", "d"))
