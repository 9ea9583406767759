"""The quick look at numbers with a point finds what the walk through the text finds."""

from __future__ import annotations

import random

import numpy as np
import pytest
from rtolap.events.lossy import ANY_SCALE, LossScreen, Strict, _digits_before, _digits_behind

COLUMNS = (Strict("i", None), Strict("d", 2), Strict("a_long_name", 2), Strict("rounded", ANY_SCALE))


class _Walking(LossScreen):
    """Takes no number for a short one."""

    def _short(self, chars, words, at, *, escapes):  # type: ignore[no-untyped-def]
        return [np.zeros(0, np.int64)], at


@pytest.mark.parametrize("seed", range(40))
def test_it_reports_what_the_walk_reports(seed: int) -> None:
    dice = random.Random(seed)
    keys = ("i", "d", "a_long_name", "rounded", "other", "x_long_name", "", "\\u0064", "\\n", "d\\\\")
    members = []
    for _ in range(200):
        number = "".join(dice.choices("0123456789", k=dice.randrange(10))) or "0"
        number += dice.choice((".", ".", ".", ""))
        number += "".join(dice.choices("0003456789", k=dice.choice((0, 1, 2, 2, 3, 7, 8, 9))))
        number += dice.choice(("", "", "", "e2", "E-1", "5.1"))
        before, behind = dice.choice((("", ""), ("", ""), ("-", ""), ('"', '"'), (" ", ""), ("  ", " ")))
        members.append(f'"{dice.choice(keys)}"{dice.choice(("", "", " "))}:{before}{number}{behind}')
    text = (" " * 16 + "{" + ",".join(members) + "}").encode()
    found, walked = LossScreen(COLUMNS).suspects(text), _Walking(COLUMNS).suspects(text)
    assert len(walked) > 5
    assert found.tolist() == walked.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_digits_of_a_word_are_counted_from_either_end(seed: int) -> None:
    dice = random.Random(seed)
    texts = [bytes(dice.choice(b"0123456789./:9\x80\xff\0 a") for _ in range(8)) for _ in range(200)]
    texts += [b"12345678", b"0" * 8, b"9" * 8, b"\xff" * 8]
    words = np.frombuffer(b"".join(texts), "<u8")
    ahead = [len(text) - len(text.lstrip(b"0123456789")) for text in texts]
    back = [len(text) - len(text.rstrip(b"0123456789")) for text in texts]
    assert _digits_behind(words).tolist() == ahead
    assert _digits_before(words).tolist() == back
