"""Tests of what a batch states, held against a loop over its records."""

from __future__ import annotations

import random

import numpy as np
from rtolap.watermark.chain import Chain
from rtolap.watermark.records.columns import UNKNOWN_MS, Stated, Statements, stated
from rtolap.watermark.records.statement import Statement, decode

PARTITIONS = 4
Row = tuple[int, str, int, int, bool]


def slow(texts: list[bytes | None], partitions: list[int]) -> list[Row]:
    found: dict[tuple[int, str], tuple[int, int, bool]] = {}
    for text, partition in zip(texts, partitions, strict=True):
        if text is None or text.startswith(b"?"):
            continue
        one = decode(text)
        new = (
            one.generation,
            UNKNOWN_MS if one.watermark_ms is None else one.watermark_ms,
            one.kind == "end",
        )
        found[partition, one.producer] = max(found.get((partition, one.producer), new), new)
    return sorted((partition, producer, *told) for (partition, producer), told in found.items())


def rows(statements: Statements) -> list[Row]:
    return sorted(
        zip(
            statements.partitions.tolist(),
            statements.producers,
            statements.generations.tolist(),
            statements.watermarks_ms.tolist(),
            statements.ended.tolist(),
            strict=True,
        )
    )


def columns(texts: list[bytes | None], partitions: list[int]) -> Stated:
    return stated(texts, np.array(partitions, np.int32))


def random_text(chance: random.Random) -> bytes | None:
    if chance.random() < 0.2:
        return chance.choice([None, None, b"? unreadable"])
    kind = chance.choices(["data", "control", "end"], [10, 3, 1])[0]
    watermark_ms = chance.choice([None, chance.randrange(5), chance.randrange(10**13)])
    generation = chance.choice([0, 1, chance.randrange(2**62)])
    return Statement(kind, generation, watermark_ms, chance.choice("abc")).encode()


def test_a_batch_is_reduced_to_the_latest_of_each_producer_in_each_partition() -> None:
    for seed in range(500):
        chance = random.Random(seed)
        count = chance.choice([0, 1, chance.randrange(60)])
        texts = [random_text(chance) for _ in range(count)]
        partitions = [chance.randrange(PARTITIONS) for _ in range(count)]
        found = columns(texts, partitions)
        assert rows(found.statements) == slow(texts, partitions), seed
        assert found.statements.unreadable == sum(text == b"? unreadable" for text in texts)
        assert found.control.tolist() == [
            text is not None and not text.startswith(b"?") and decode(text).kind != "data" for text in texts
        ]


def test_any_split_order_and_repetition_tell_a_chain_the_same() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        records = [(random_text(chance), chance.randrange(PARTITIONS)) for _ in range(40)]

        def told(parts: list[list[tuple[bytes | None, int]]]) -> list[object]:
            chain = Chain(range(PARTITIONS), ())
            for part in parts:
                statements = columns([text for text, _ in part], [at for _, at in part]).statements
                for partition, producer, generation, watermark_ms, ended in rows(statements):
                    chain.observe(producer, partition, watermark_ms, generation, ended=ended)
            return [chain.statement_of(producer, at) for producer in "abc" for at in range(PARTITIONS)]

        cuts = sorted(chance.sample(range(1, 40), 5))
        parts = [records[a:b] for a, b in zip([0, *cuts], [*cuts, 40], strict=True)]
        shuffled = [*chance.sample(parts, len(parts)), chance.choice(parts)]
        assert told([records]) == told(parts) == told(shuffled), seed
