"""Joined texts within a bound: the smallest values, however they merge, and a warning if there are more."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rtolap.aggregates.group_concat import SmallestTexts
from rtolap.base.errors import Corrupted, DefinitionError, QueryError
from rtolap.columnar.joined_texts import shown_texts, texts_of_values, united_texts
from rtolap.columnar.schema import EVENT_MS
from rtolap.model.cube import Measure
from rtolap.model.validation.definition import validate_schema
from rtolap.query.statement_service import QueryService

from tests.support.aggregates.joined import joined, smallest_texts
from tests.support.aggregates.measured import made_schema, measured_events, with_computed
from tests.support.query.query_world import QueryWorld
from tests.support.seeds import so_many

SEED = 9200
BOUND = 120
SCHEMA = made_schema(
    (
        Measure("count"),
        Measure("max", "whole"),
        Measure("group_concat", "text", bytes_max=BOUND),
        Measure("group_concat", "text", bytes_max=BOUND, where="region > 0", name="text_r"),
    )
)


def drawn_texts(rng: random.Random, count: int) -> list[str | None]:
    letters = ["", "a", "ab", "b", "ä", "日本", "z" * rng.choice([1, 5, 30, 200])]
    return [
        None if rng.random() < 0.1 else "".join(rng.choices(letters, k=rng.randrange(4)))
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(so_many(40)))
def test_any_merge_of_any_parts_is_that_of_the_whole_the_bound_included(seed: int) -> None:
    rng = random.Random(SEED + seed)
    bound, groups = rng.choice([1, 2, 5, 20, 100, 1000]), 3
    values = drawn_texts(rng, rng.choice([1, 10, 60]))
    ids = np.array([rng.randrange(groups) for _ in values], np.int64)
    whole = texts_of_values(pa.array(values, pa.string()), ids, groups, bound)
    by_group: list[list[str | None]] = [[] for _ in range(groups)]
    for value, group in zip(values, ids.tolist(), strict=True):
        by_group[group].append(value)
    assert whole.to_pylist() == [smallest_texts(each, bound) for each in by_group]
    parts = []
    for _ in range(rng.randint(1, 5)):  # they overlap: an event that comes twice changes nothing
        chosen = np.array(sorted(rng.sample(range(len(values)), rng.randint(1, len(values)))))
        column = pa.array(values, pa.string()).take(pa.array(chosen))
        parts.append(texts_of_values(column.dictionary_encode(), ids[chosen], groups, bound))
    parts.append(whole)
    while len(parts) > 1:  # any two at a time
        rng.shuffle(parts)
        both = pa.concat_arrays([parts.pop(), parts.pop()])
        parts.append(united_texts(both, np.arange(2 * groups) % groups, groups, bound))
    assert parts[0].equals(whole)
    for image, those in zip(whole.to_pylist(), by_group, strict=True):
        shown = shown_texts([image])
        text, is_cut = joined(those, bound)
        if text is None:
            assert shown is None
            continue
        assert shown is not None
        assert (b",".join(shown.texts).decode(), shown.is_cut) == (text, is_cut)
        assert image is not None
        assert len(image) <= SmallestTexts(bound).sketch_bytes


def test_keeping_only_what_is_shown_would_depend_on_the_parts() -> None:
    """The planted fault: without the first text beyond the bound, a later one of another part slips in."""
    parts = [["a", "m" * 6], ["n"]]
    images = [smallest_texts(part, 5) for part in parts]
    assert shown_texts(images) == ([b"a"], True)
    cut = [
        image if image is None else image[: image.index(b"m")] if b"m" in image else image for image in images
    ]
    assert shown_texts(cut) == ([b"a", b"n"], False)


@pytest.mark.parametrize("image", [b"", b"\0\0\0", b"\0\0\0\x78", b"\0\0\0\x78abc", b"\0\0\0\x79abc\xff"])
def test_other_bytes_are_refused(image: bytes) -> None:
    both = pa.array([image, smallest_texts(["a"], BOUND)], pa.binary())
    with pytest.raises(Corrupted):
        united_texts(both, np.zeros(2, np.int64), 1, BOUND)


@pytest.fixture(
    scope="module",
    params=[(0, False), (2, False), (1, False), (2, True)],
    ids=["live", "half built", "built", "half built, in workers"],
)
def asked(request: pytest.FixtureRequest) -> Iterator[tuple[QueryService, list[dict[str, Any]]]]:
    step, in_workers = request.param
    rng = random.Random(SEED)
    events = with_computed(measured_events(rng, 300, limits=False), SCHEMA).drop_columns([EVENT_MS])
    with contextlib.closing(QueryWorld(SCHEMA, events, {})) as world:
        for segment in world.segments()[::step] if step else ():
            world.build(segment, rng)
        with contextlib.closing(world.service(in_workers=in_workers)) as service:
            yield service, world.visible().to_pylist()


def warned(service: QueryService, sql: str) -> tuple[list[dict[str, Any]], list[str]]:
    outcome = service.execute(sql)
    codes = [str(warning.code) for warning in outcome.warnings]
    return outcome.table().to_pylist(), codes


@pytest.mark.parametrize("key", ["shop", "region", "hour_start", "region + 1", "'x'"])
@pytest.mark.parametrize("condition", ["1 = 1", "region = 1", "hour_start < '2013-01-01 02:00'", "1 = 0"])
def test_answers_are_those_of_the_events_and_say_whether_they_are_cut(
    key: str, condition: str, asked: tuple[QueryService, list[dict[str, Any]]]
) -> None:
    service, events = asked
    holds = {
        "1 = 1": lambda event: True,
        "region = 1": lambda event: event["region"] == 1,
        "hour_start < '2013-01-01 02:00'": lambda event: event["hour_start"].hour < 2,
        "1 = 0": lambda event: False,
    }[condition]
    key_of = {
        "region + 1": lambda event: None if event["region"] is None else event["region"] + 1,
        "'x'": lambda event: "x",
    }.get(key, lambda event: event[key])
    sql = (
        f"SELECT {key} k, GROUP_CONCAT(DISTINCT text) t, "
        "GROUP_CONCAT(DISTINCT text ORDER BY text SEPARATOR ' | ') s, "
        f"GROUP_CONCAT(DISTINCT CASE WHEN region > 0 THEN text END) r, GROUP_CONCAT(DISTINCT text_r) f "
        f"FROM measured WHERE {condition} GROUP BY {key}"
    )
    rows, codes = warned(service, sql)
    mine = [event for event in events if holds(event)]
    assert {row["k"] for row in rows} == {key_of(event) for event in mine}
    any_cut = False
    for row in rows:
        values = [event["text"] for event in mine if key_of(event) == row["k"]]
        text, is_cut = joined(values, BOUND)
        assert row["t"] == text
        assert row["s"] == joined(values, BOUND, " | ")[0]
        of_region = [e["text"] for e in mine if key_of(e) == row["k"] and (e["region"] or 0) > 0]
        assert row["r"] == row["f"] == joined(of_region, BOUND)[0]
        any_cut |= is_cut
    assert codes == (["text_cut"] if any_cut else [])


@pytest.mark.parametrize(
    ("sql", "is_cut"),
    [
        ("SELECT t FROM (SELECT shop, GROUP_CONCAT(DISTINCT text) t FROM measured GROUP BY shop) q", True),
        ("WITH c AS (SELECT GROUP_CONCAT(DISTINCT text) t FROM measured) SELECT t FROM c", True),
        (
            "WITH c AS (SELECT GROUP_CONCAT(DISTINCT text) t FROM measured WHERE region > 5) SELECT t FROM c "
            "UNION ALL SELECT GROUP_CONCAT(DISTINCT text) FROM measured WHERE shop = 'nowhere'",
            False,
        ),
        ("SELECT shop, text FROM measured", True),
        ("SELECT hour_start, text FROM measured ORDER BY hour_start DESC LIMIT 1", True),
        ("SELECT COUNT(*) n FROM measured HAVING GROUP_CONCAT(DISTINCT text) <> ''", True),
        (
            "SELECT shop FROM measured GROUP BY shop "
            "HAVING MAX(region) > 5 AND GROUP_CONCAT(DISTINCT text) > ''",
            True,
        ),
        (
            "SELECT shop, GROUP_CONCAT(DISTINCT text) FROM measured GROUP BY shop HAVING MAX(region) > 5",
            False,
        ),
    ],
)
def test_every_place_of_a_statement_says_so(
    sql: str, is_cut: bool, asked: tuple[QueryService, list[dict[str, Any]]]
) -> None:
    _, codes = warned(asked[0], sql)
    assert codes == (["text_cut"] if is_cut else [])


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT GROUP_CONCAT(text) FROM measured",
        "SELECT GROUP_CONCAT(DISTINCT text ORDER BY text DESC) FROM measured",
        "SELECT GROUP_CONCAT(DISTINCT text ORDER BY region) FROM measured",
        "SELECT GROUP_CONCAT(DISTINCT text, shop) FROM measured",
        "SELECT GROUP_CONCAT(DISTINCT whole) FROM measured",
    ],
)
def test_what_the_measure_does_not_hold_is_refused(
    sql: str, asked: tuple[QueryService, list[dict[str, Any]]]
) -> None:
    with pytest.raises(QueryError, match=r"cannot answer|single events|not declared"):
        asked[0].execute(sql)


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        (Measure("group_concat", "whole"), "a column of texts"),
        (Measure("group_concat", "text", bytes_max=0), "bytes_max"),
        (Measure("group_concat", "text", bytes_max=(1 << 20) + 1), "bytes_max"),
    ],
)
def test_declarations_are_checked(measure: Measure, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        validate_schema(made_schema((measure,)))


def test_dimensions_stand_as_often_as_they_have_events(
    asked: tuple[QueryService, list[dict[str, Any]]],
) -> None:
    service, events = asked
    sql = "SELECT region, GROUP_CONCAT(shop ORDER BY shop SEPARATOR '+') t FROM measured GROUP BY region"
    for row in service.execute(sql).table().to_pylist():
        shops = sorted(e["shop"] for e in events if e["region"] == row["region"] and e["shop"] is not None)
        assert row["t"] == ("+".join(shops) if shops else None)
