"""Two versions read each other: every message and record, found by its place, as a release has written it.

docs/operations/upgrades.md states the rules that these tests hold.
"""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from rtolap.base.complete import complete

from tests.support.versions.drawn import REFUSED, drawn, fields_of, read
from tests.support.versions.golden import golden, whole
from tests.support.versions.wire_types import (
    find_type,
    is_array,
    is_strict,
    leaves_defaults_out,
    wire_types,
)

LATER = "added_by_a_later_version"
TYPES = wire_types()
RELEASED: dict[str, Any] = golden()["messages"]
LIMIT = (
    "a member of golden.json that no service reads any more is taken out when its release is no longer run"
)


def test_the_types_are_found() -> None:
    assert len(TYPES) > 300
    for room in ("protocols.coordinator", "protocols.storage", "metadata.records", "model.cube", "sep."):
        assert any(name.startswith(room) for name in TYPES), room


@pytest.mark.parametrize("name", TYPES)
def test_a_field_that_a_later_version_adds_is_passed_over_or_refused_by_name(name: str) -> None:
    """What orders or declares something refuses a field that it does not know: another result would come of
    it. So it never writes a field that says nothing new."""
    kind = TYPES[name]
    for seed in range(3):
        value = drawn(kind, f"{name} {seed}", optional=0.5)
        if is_array(kind):
            assert whole(kind, [*value, "later"]) == whole(kind, value)
            continue
        later = {**value, LATER: {"any": ["thing"]}}
        if not is_strict(kind):
            assert whole(kind, later) == whole(kind, value)
            continue
        assert leaves_defaults_out(kind), f"{name} refuses unknown fields: it needs omit_defaults=True"
        with pytest.raises(REFUSED, match=LATER):
            read(kind, later)


@pytest.mark.parametrize("name", [name for name, kind in TYPES.items() if is_strict(kind)])
def test_what_refuses_unknown_fields_writes_just_what_is_declared(name: str) -> None:
    kind = TYPES[name]
    message = read(kind, drawn(kind, name, optional=0.0))
    required = {field.name for field in fields_of(kind) if field.required}
    assert set(msgspec.to_builtins(message)) == required
    assert set(complete(message)) == {field.name for field in fields_of(kind)}, "who looks is shown all of it"


@pytest.mark.parametrize("name", TYPES)
def test_any_field_with_a_default_may_be_left_out(name: str) -> None:
    kind = TYPES[name]
    value = drawn(kind, name, optional=1.0)
    if is_array(kind):
        return
    optional = [field.name for field in fields_of(kind) if not field.required and field.name in value]
    refusals = []
    for seed in range(5):
        left_out = set(random.Random(seed).sample(optional, len(optional) // 2))
        try:
            read(kind, {key: each for key, each in value.items() if key not in left_out})
        except REFUSED as error:
            refusals.append(str(error))  # of two fields that go together, say
    assert not [each for each in refusals if "missing" in each], "a field with a default is required"


@pytest.mark.parametrize("name", RELEASED)
def test_a_release_is_read_as_it_read_itself(name: str) -> None:
    said = RELEASED[name]
    try:
        kind = find_type(name)
    except KeyError:
        pytest.fail(f"{name} is gone, and services of the release before send it; {LIMIT}")
    found = whole(kind, said["least"])
    assert _without_new(found, said["read"]) == said["read"], "a default has changed, or a field is gone"
    assert _has(json.loads(json.dumps(whole(kind, said["most"]))), said["most"])


def _without_new(found: Any, before: Any) -> Any:
    """Return what is found without the fields that the release had not."""
    if isinstance(found, dict) and isinstance(before, dict):
        return {key: _without_new(each, before[key]) for key, each in found.items() if key in before}
    if isinstance(found, list) and isinstance(before, list) and len(found) >= len(before):
        return [_without_new(each, old) for each, old in zip(found, before, strict=False)]
    return found


def _has(found: Any, said: Any) -> bool:
    """Return True if every field that was said is read."""
    if isinstance(said, dict) and isinstance(found, dict):
        return all(key in found and _has(found[key], each) for key, each in said.items() if key != "type")
    return True
