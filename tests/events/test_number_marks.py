"""Every point and exponent of a number is found, wherever a block of the text ends."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from rtolap.events import lossy

_OF_NUMBERS = re.compile(rb"\.(?=[0-9])|(?<=[0-9.])[eE]")


@pytest.mark.parametrize("seed", range(30))
def test_marks_are_those_of_the_plain_pattern(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr(lossy, "_BLOCK_BYTES", dice.choice((1, 2, 7, 64)))
    text = (
        b" " * 16
        + bytes(dice.choice(b'0189.eE/:-+"ade \xff') for _ in range(dice.choice((1, 50, 500))))
        + b" "
    )
    found = lossy._marks(np.frombuffer(text, np.uint8))
    assert sorted(found.tolist()) == [match.start() for match in _OF_NUMBERS.finditer(text)]
