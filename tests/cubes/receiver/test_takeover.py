"""What a receiver may close by an application, when others have reported before it."""

from __future__ import annotations

from rtolap.cubes.receiver.closing_rules import Takeover, generation_of

POSITIONS = {0: 10, 1: 20}
BOTH = frozenset(POSITIONS)


def test_generations_grow_with_terms_assignments_and_re_creations() -> None:
    one = generation_of(0, 1, 7)
    assert one < generation_of(0, 1, 8) < generation_of(0, 2, 0) < generation_of(2, 1, 0)


def test_nothing_was_let_go_before_it_so_all_that_is_let_go_is_its_own() -> None:
    assert Takeover(1, BOTH).may_close(100, 5, POSITIONS)


def test_what_the_watermark_of_its_beginning_let_go_waits_until_it_has_read_as_far() -> None:
    beginning = Takeover(1, BOTH, watermark_ms=104)
    assert beginning.may_close(100, 5, POSITIONS), "the watermark had not reached 105"
    assert not beginning.may_close(99, 5, POSITIONS)
    behind = Takeover(1, BOTH, watermark_ms=104, ends={0: 10, 1: 21})
    assert not behind.may_close(99, 5, POSITIONS)
    assert behind.may_close(99, 5, {0: 10, 1: 21})


def test_what_people_had_let_go_before_it_waits_as_well() -> None:
    beginning = Takeover(1, BOTH, approved_until_ms=100)
    assert not beginning.may_close(100, 5, POSITIONS)
    assert beginning.may_close(101, 5, POSITIONS)


def test_a_partition_that_was_not_reported_holds_everything() -> None:
    alone = Takeover(1, frozenset({0}), ends={0: 0, 1: 0})
    assert not alone.may_close(100, 0, POSITIONS)
    assert not alone.caught_up(POSITIONS)


def test_a_log_end_that_is_not_known_is_not_reached() -> None:
    assert not Takeover(1, BOTH, watermark_ms=100, ends={0: 0}).may_close(99, 0, POSITIONS)
