"""Tests of the way from sources to the global low watermark; a slow recursion agrees, and nothing published
ever falls."""

from __future__ import annotations

import random

import pytest
from rtolap.model.application import Application, ApplicationSource, Operator, Sink
from rtolap.watermark.chain import Chain
from rtolap.watermark.topology import LevelMarks, Marks, Unit, combine

NOW_MS = 1_000_000
NO_MARKS = Marks({})
TWO = Application(
    name="a",
    sources=(ApplicationSource(name="s"), ApplicationSource(name="t")),
    operators=(Operator("o"),),
    sinks=(Sink("k"),),
    edges=(("s", "o"), ("t", "o"), ("o", "k")),
)
ONE = Application(name="a", sources=(ApplicationSource(name="s"),), sinks=(Sink("k"),), edges=(("s", "k"),))


def unit(oldest_ms: int | None, lease_until_ms: int = NOW_MS + 1) -> Unit:
    return Unit("p", 0, oldest_ms, lease_until_ms)


def test_watermarks_go_from_level_to_level_by_minimum() -> None:
    marks = combine(TWO, {"s": 100, "t": 80}, {"o": [unit(70), unit(None)]}, NO_MARKS, NOW_MS)
    assert marks.levels == {
        "s": LevelMarks(100, 100),
        "t": LevelMarks(80, 80),
        "o": LevelMarks(80, 70),
        "k": LevelMarks(70, 70),
    }
    assert (marks.global_ms, marks.raised) == (70, 0)


def test_all_units_idle_lets_the_input_through() -> None:
    marks = combine(ONE, {"s": 100}, {"s": [unit(None)], "k": [unit(None)]}, NO_MARKS, NOW_MS)
    assert marks.global_ms == 100


def test_a_unit_whose_lease_ended_holds_nothing() -> None:
    work = {"k": [unit(5, lease_until_ms=NOW_MS), unit(90)]}
    assert combine(ONE, {"s": 100}, work, NO_MARKS, NOW_MS).global_ms == 90
    assert combine(ONE, {"s": 100}, work, NO_MARKS, NOW_MS - 1).global_ms == 5


def test_an_unknown_source_holds_and_a_new_one_takes_nothing_back() -> None:
    before = combine(ONE, {"s": 100}, {}, NO_MARKS, NOW_MS)
    joined = combine(TWO, {"s": 120, "t": None}, {}, before, NOW_MS)
    assert joined.levels["o"] == LevelMarks(None, None)
    assert joined.levels["k"] == LevelMarks(100, 100)
    assert joined.global_ms == 100
    assert joined.raised > 0
    late = combine(TWO, {"s": 120, "t": 50}, {}, joined, NOW_MS)
    assert late.global_ms == 100
    assert combine(TWO, {"s": 120, "t": 110}, {}, late, NOW_MS).global_ms == 110


def test_removing_a_level_unblocks_the_others() -> None:
    before = combine(TWO, {"s": 100, "t": 10}, {}, NO_MARKS, NOW_MS)
    assert before.global_ms == 10
    after = combine(ONE, {"s": 100}, {}, before, NOW_MS)
    assert after.global_ms == 100
    assert set(after.levels) == {"s", "k"}


def test_a_rule_that_falls_back_is_held_where_it_was() -> None:
    before = combine(ONE, {"s": 100}, {}, NO_MARKS, NOW_MS)
    again = combine(ONE, {"s": 60}, {"k": [unit(20)]}, before, NOW_MS)
    assert again == Marks(before.levels, 100, 2)
    assert combine(ONE, {"s": None}, {}, before, NOW_MS).global_ms == 100


def slow_output(application: Application, name: str, inputs: dict[str, int | None], work: dict) -> float:
    """By recursion, with −∞ for unknown and no memory."""
    upstreams = [edge[0] for edge in application.edges if edge[1] == name]
    if upstreams:
        value = min(slow_output(application, above, inputs, work) for above in upstreams)
    else:
        known = inputs.get(name)
        value = float("-inf") if known is None else known
    for one in work.get(name, ()):
        if one.lease_until_ms > NOW_MS and one.oldest_work_ms is not None:
            value = min(value, one.oldest_work_ms)
    return value


def random_application(rng: random.Random) -> Application:
    sources = tuple(ApplicationSource(name=f"s{at}") for at in range(rng.randint(1, 3)))
    operators = tuple(Operator(f"o{at}") for at in range(rng.randint(0, 4)))
    sinks = tuple(Sink(f"k{at}") for at in range(rng.randint(1, 2)))
    names = [*(source.name for source in sources), *(operator.name for operator in operators)]
    edges = {(rng.choice(names[: len(sources) + at]), one.name) for at, one in enumerate(operators)}
    edges |= {(rng.choice(names), sink.name) for sink in sinks for _ in range(2)}
    order = list(operators)
    rng.shuffle(order)
    return Application(
        name="a", sources=sources, operators=tuple(order), sinks=sinks, edges=tuple(sorted(edges))
    )


@pytest.mark.parametrize("seed", range(4))
def test_any_story_of_levels_never_falls_and_is_never_early(seed: int) -> None:
    """500 stories a seed of five steps: without memory it equals the recursion; with it, the largest so
    far."""
    rng = random.Random(seed)
    for _ in range(500):
        application = random_application(rng)
        before, highest = NO_MARKS, float("-inf")
        for step in range(5):
            if step == 3 and rng.random() < 0.3:
                application = random_application(rng)
            names = [level.name for level in application.levels]
            inputs = {one.name: rng.choice([None, rng.randint(0, 99)]) for one in application.sources}
            work = {
                name: [
                    unit(rng.choice([None, rng.randint(0, 99)]), NOW_MS + rng.randint(0, 1))
                    for _ in range(rng.randint(0, 2))
                ]
                for name in rng.sample(names, rng.randint(0, len(names)))
            }
            slow = {name: slow_output(application, name, inputs, work) for name in names}
            fresh = combine(application, inputs, work, NO_MARKS, NOW_MS)
            assert {name: marks.output_ms for name, marks in fresh.levels.items()} == {
                name: None if value == float("-inf") else value for name, value in slow.items()
            }
            marks = combine(application, inputs, work, before, NOW_MS)
            for name, one in marks.levels.items():
                earlier = before.levels.get(name, LevelMarks())
                assert (one.input_ms or -1) >= (earlier.input_ms or -1)
                assert (one.output_ms or -1) >= (earlier.output_ms or -1)
                assert one.input_ms is None or one.output_ms is None or one.output_ms <= one.input_ms
            outputs = [one.output_ms for one in marks.levels.values()]
            least = float("-inf") if None in outputs else min(one for one in outputs if one is not None)
            highest = max(highest, least)
            assert (float("-inf") if marks.global_ms is None else marks.global_ms) == highest
            before = marks


def test_a_chain_waits_for_every_producer_in_every_partition() -> None:
    chain = Chain([0, 1], ["p", "q"])
    chain.observe("p", 0, 50)
    chain.observe("p", 1, 60)
    chain.observe("q", 0, 40)
    assert chain.watermark_ms() is None
    assert chain.missing_statements() == {"q": (1,)}
    chain.observe("q", 1, 70)
    assert chain.watermark_ms() == 40
    chain.observe("q", 0, 30)  # late, repeated or reordered: no effect
    assert chain.watermark_ms() == 40
    chain.leave("q")
    assert chain.watermark_ms() == 50


def test_a_chain_never_falls_when_producers_or_partitions_join() -> None:
    chain = Chain([0], ["p"])
    chain.observe("p", 0, 50)
    assert chain.watermark_ms() == 50
    chain.observe("new", 0, 10)
    chain.join("silent")
    assert chain.watermark_ms() == 50
    chain.leave("silent")
    assert chain.watermark_ms() == 50
    chain.assign([0, 1])
    chain.observe("p", 7, 99)
    assert chain.missing_statements() == {"p": (1,), "new": (1,)}
    chain.assign([1])
    chain.observe("p", 1, 80)
    chain.observe("new", 1, 90)
    assert chain.watermark_ms() == 80


def test_a_chain_without_producers_or_partitions_knows_nothing() -> None:
    assert Chain([0], []).watermark_ms() is None
    assert Chain([], ["p"]).watermark_ms() is None


def test_a_later_generation_replaces_what_its_predecessor_states() -> None:
    chain = Chain([0], ["p", "q"])
    chain.observe("p", 0, 50, 1)
    chain.observe("q", 0, 90, 1)
    assert chain.watermark_ms() == 50
    chain.observe("p", 0, None, 2)
    assert chain.missing_statements() == {"p": (0,)}
    chain.observe("p", 0, 200, 1)  # alive still, and not believed
    assert (chain.missing_statements(), chain.watermark_ms()) == ({"p": (0,)}, 50)
    chain.observe("p", 0, 40, 2)
    assert (chain.missing_statements(), chain.watermark_ms()) == ({}, 50), "it never falls"
    chain.observe("p", 0, 95, 2)
    assert chain.watermark_ms() == 90


def test_where_a_producer_has_ended_it_is_not_waited_for() -> None:
    chain = Chain([0, 1], ["p", "q"])
    for partition in (0, 1):
        chain.observe("p", partition, 50, 1)
        chain.observe("q", partition, 90, 1)
    chain.observe("p", 0, 60, 1, ended=True)
    assert chain.watermark_ms() == 50, "it goes on in 1"
    assert chain.ended() == {}
    chain.observe("p", 1, 60, 1, ended=True)
    assert chain.watermark_ms() == 90
    assert chain.ended() == {"p": 60}
    chain.observe("p", 1, 70, 2)
    assert chain.ended() == {}
    chain.observe("p", 1, None, 3, ended=True)
    chain.observe("p", 0, None, 3, ended=True)
    assert chain.ended() == {"p": None}
    chain.observe("q", 0, 99, 1, ended=True)
    chain.observe("q", 1, 99, 1, ended=True)
    assert chain.watermark_ms() == 90, "with nobody left it stays"
