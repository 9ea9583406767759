"""The plan of consumers: everybody gets a share, and all agree in the end."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from rtolap.sep.shares.plan import SharePlan, plan, quotas

from tests.support.seeds import so_many


def test_quotas_differ_by_one_at_most_and_consumers_beyond_the_shares_stand_by() -> None:
    assert quotas(["a", "b", "c"], 4) == {"a": 2, "b": 1, "c": 1}
    assert quotas(["a", "b", "c"], 2) == {"a": 1, "b": 1, "c": 0}
    assert quotas([], 3) == {}


def test_whoever_joins_gets_what_others_have_beyond_their_quota() -> None:
    holders = {0: "a", 1: "a", 2: "a"}
    assert plan("a", ["a", "b"], holders, 3) == SharePlan(release=(2,))
    assert plan("b", ["a", "b"], holders, 3) == SharePlan()
    assert plan("b", ["a", "b"], {0: "a", 1: "a"}, 3) == SharePlan(claim=(2,))


def test_shares_of_a_holder_that_is_not_listed_yet_are_not_claimed() -> None:
    assert plan("b", ["b"], {0: "x", 1: "x"}, 2) == SharePlan()


@pytest.mark.seeded
def test_whatever_joins_and_dies_all_shares_are_held_in_the_end_and_then_nothing_moves() -> None:
    for seed in range(so_many(200)):
        random = Random(seed)
        count = random.randint(1, 9)
        members = [f"m{number}" for number in range(random.randint(1, 5))]
        holders: dict[int, str] = {}
        for round_number in range(6):
            kept = sum(quotas(members, count).values())
            assert kept == count
            for _ in range(len(members) * 3):
                own = random.choice(members)
                wanted = plan(own, members, dict(holders), count)
                for share in wanted.claim:
                    holders.setdefault(share, own)
                for share in wanted.release:
                    assert holders.pop(share) == own
            for _ in range(3):
                for own in members:
                    wanted = plan(own, members, dict(holders), count)
                    for share in wanted.claim:
                        holders.setdefault(share, own)
                    for share in wanted.release:
                        del holders[share]
            held = Counter(holders.values())
            assert sorted(holders) == list(range(count)), seed
            assert max(held.values()) - min(held[member] for member in members) <= 1, seed
            assert all(plan(own, members, holders, count) == SharePlan() for own in members), seed
            if len(members) > 1 and random.random() < 0.5:
                gone = members.pop(random.randrange(len(members)))
                holders = {share: holder for share, holder in holders.items() if holder != gone}
            else:
                members.append(f"n{round_number}")
