"""`bitmap_hash` of the header `columns`: the 32-bit MurmurHash3 that Doris keeps of a value's text."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap64
from rtolap.columnar.hll import string_parts
from rtolap.columnar.murmur3 import DORIS_SEED, hash_strings_32
from rtolap.stored.bodies.target import sketches

from tests.support.stored.body_tables import decoded, sketch_schema

TEXTS = ["a", None, "", "user-17"]


def plain_hash(text: bytes, seed: int) -> int:
    """Byte by byte, as it is published."""
    mask = 0xFFFFFFFF

    def rotated(word: int, bits: int) -> int:
        return (word << bits | word >> (32 - bits)) & mask

    def mixed(word: int) -> int:
        return rotated(word * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask

    found = seed
    whole = len(text) // 4 * 4
    for at in range(0, whole, 4):
        found = rotated(found ^ mixed(int.from_bytes(text[at : at + 4], "little")), 13)
        found = (found * 5 + 0xE6546B64) & mask
    if text[whole:]:
        found ^= mixed(int.from_bytes(text[whole:], "little"))
    found ^= len(text)
    found = (found ^ found >> 16) * 0x85EBCA6B & mask
    found = (found ^ found >> 13) * 0xC2B2AE35 & mask
    return found ^ found >> 16


def hashes(texts: list[str], seed: int) -> list[int]:
    starts, lengths, data = string_parts(pa.array(texts, pa.string()))
    return [int(each) for each in hash_strings_32(data, starts, lengths, seed)]


@pytest.mark.parametrize(
    ("text", "seed", "published"),
    [
        ("", 0, 0),
        ("", 1, 0x514E28B7),
        ("aaaa", 0x9747B28C, 0x5A97808A),
        ("aaa", 0x9747B28C, 0x283E0130),
        ("Hello, world!", 0x9747B28C, 0x24884CBA),
        ("The quick brown fox jumps over the lazy dog", 0x9747B28C, 0x2FA826CD),
    ],
)
def test_the_hash_is_the_published_one(text: str, seed: int, published: int) -> None:
    assert hashes([text], seed) == [published] == [plain_hash(text.encode(), seed)]


def test_columns_of_texts_of_any_length_are_hashed_at_once() -> None:
    drawn = random.Random(15)
    texts = ["".join(drawn.choices("aé0\U0001f600", k=drawn.randrange(40))) for _ in range(500)]
    assert hashes(texts, DORIS_SEED) == [plain_hash(text.encode(), DORIS_SEED) for text in texts]
    assert hashes([], DORIS_SEED) == []


def test_a_bitmap_has_the_hash_of_the_text_and_null_has_none() -> None:
    found = sketches("bitmap_hash", pa.array(TEXTS))
    members = [None if image is None else list(BitMap64.deserialize(image)) for image in found.to_pylist()]
    assert members == [None if each is None else [plain_hash(each.encode(), DORIS_SEED)] for each in TEXTS]


def test_a_load_may_ask_for_it_over_any_column() -> None:
    found = decoded(
        b"1,a,7\n2,b,8\n",
        sketch_schema(),
        column_separator=",",
        columns="k, u, i, users=hll_hash(u), ids=bitmap_hash(i)",
    )
    members = [list(BitMap64.deserialize(row["ids"])) for row in found.rows]
    assert members == [[plain_hash(b"7", DORIS_SEED)], [plain_hash(b"8", DORIS_SEED)]]
    assert np.all(np.diff(np.concatenate(members)) != 0)
