"""Every move of a transaction, and the words for those that are forbidden."""

from __future__ import annotations

import itertools
import re

import pytest
from rtolap.base.errors import DefinitionError, IllegalTransition
from rtolap.stored.frontend.transactions import states
from rtolap.stored.frontend.transactions.labels import label_used
from rtolap.stored.frontend.transactions.states import (
    ONE_PHASE,
    TWO_PHASES,
    TransactionEvent,
    done_before,
    transition,
)
from rtolap.stored.metastore.records import (
    ABORTABLE,
    FINAL,
    RUNNING,
    Partition,
    Replica,
    Tablet,
    Transaction,
    TransactionState,
)
from rtolap.stored.stream_load.labels import checked_label
from rtolap.stored.stream_load.quorum import shortfall

S, E = TransactionState, TransactionEvent


def transaction(state: TransactionState, *, two_phase: bool = True) -> Transaction:
    return Transaction(
        7, "d", "L", "r", state, ("t",), two_phase, False, False, False, 0, 1, None, None, "disk full", "ann"
    )


TABLES = {False: ONE_PHASE, True: TWO_PHASES}


@pytest.mark.parametrize("two_phase", [False, True])
@pytest.mark.parametrize(("state", "event"), list(itertools.product(S, E)))
def test_a_move_leads_where_the_table_says_and_no_other_is_legal(state: S, event: E, two_phase: bool) -> None:
    present = transaction(state, two_phase=two_phase)
    after = TABLES[two_phase].get((state, event))
    assert done_before(present, event) is (after is state)
    if after is None:
        with pytest.raises(IllegalTransition):
            transition(present, event)
    else:
        assert transition(present, event) is after


def test_of_one_phase_nothing_is_precommitted_and_of_two_everything_is() -> None:
    assert S.PRECOMMITTED not in {*ONE_PHASE.values(), *(state for state, _ in ONE_PHASE)}
    before_commit = {state for (state, _), after in TWO_PHASES.items() if after is S.COMMITTED}
    assert before_commit == {S.PRECOMMITTED}


def test_a_refusal_says_how_many_phases_it_was_begun_with() -> None:
    with pytest.raises(IllegalTransition, match="was not begun with two phases"):
        transition(transaction(S.PREPARE, two_phase=False), E.PRECOMMIT)
    with pytest.raises(IllegalTransition, match="was begun with two phases, so it is pre-committed before"):
        transition(transaction(S.PRECOMMITTED, two_phase=True), E.COMMIT)


def test_the_drawings_name_the_states_and_events_of_the_tables() -> None:
    _, one, two, _ = (states.__doc__ or "").split("\n\n")
    for drawing, table in ((one, ONE_PHASE), (two, TWO_PHASES)):
        assert set(re.findall(r"[A-Z]{2,}(?:_[A-Z]+)*", drawing)) == {
            name.value for (state, event), after in table.items() for name in (state, event, after)
        }


def test_the_ledger_means_the_same_by_running_abortable_and_final() -> None:
    """A final state is left by nothing but what was done before."""
    moves = [(s, e, after) for table in TABLES.values() for (s, e), after in table.items() if after is not s]
    assert {state for state, event, _ in moves if event is E.ABORT} == set(ABORTABLE)
    assert {state for state, _, _ in moves} == set(RUNNING)
    assert set(S) - set(RUNNING) == set(FINAL)


@pytest.mark.parametrize(
    ("state", "event", "words"),
    [
        (S.PREPARE, E.COMMIT_PRECOMMITTED, "transaction [7] is prepare, not pre-committed."),
        (S.COMMITTED, E.COMMIT_PRECOMMITTED, "transaction [7] is already committed, not pre-committed."),
        (S.VISIBLE, E.COMMIT_PRECOMMITTED, "transaction [7] is already visible, not pre-committed."),
        (S.ABORTED, E.COMMIT_PRECOMMITTED, "transaction [7] is already aborted. abort reason: disk full"),
        (S.COMMITTED, E.ABORT, "transaction [7] state is COMMITTED, could not abort"),
        (S.VISIBLE, E.ABORT, "transaction [7] state is VISIBLE, could not abort"),
        (S.COMMITTED, E.PRECOMMIT, "transaction [7] is already committed"),
    ],
)
def test_a_forbidden_move_is_refused_in_the_words_that_clients_match(state: S, event: E, words: str) -> None:
    with pytest.raises(IllegalTransition) as caught:
        transition(transaction(state), event)
    assert str(caught.value) == words


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
