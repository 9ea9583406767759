"""Broker logs: read on over renames and cuts, each line once; rules, in the words of the real Kafka."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest
from rtolap.base.errors import Corrupted, NotFound
from rtolap.fleet.monitoring.log_findings import LogCounts, LogHit, find_hits
from rtolap.fleet.monitoring.log_rules import BY_NAME, RULES, LogText
from rtolap.fleet.monitoring.log_watch import LINE_BYTES_MAX, LogPosition, LogWatch, read_on
from rtolap.stack.artifacts import java_artifacts

from tests.support.class_constants import class_texts

TEXTS = [text for rule in RULES for text in rule.texts]
LAYOUTS = {
    "Kafka's": "[{time}] ERROR {text} (kafka.log.LogManager)",
    "the stack's": "{time} ERROR LogManager: {text}",
}


@cache
def texts_of(class_name: str) -> set[str]:
    return class_texts(java_artifacts().kafka, class_name)


@pytest.mark.parametrize(
    "text", TEXTS, ids=[f"{rule.name}-{text.anchor}" for rule in RULES for text in rule.texts]
)
def test_each_text_is_in_the_class_of_the_real_jar_that_is_named_for_it(text: LogText) -> None:
    assert [found for found in texts_of(text.of_class) if text.text in found]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_line_of_each_text_is_found_in_either_layout_with_its_time_and_directory(layout: str) -> None:
    for rule in RULES:
        for text in rule.texts:
            filled = text.text
            for number in range(text.text.count("{}")):
                filled = filled.replace("{}", f"/data/d {number}", 1)
            line = layout.format(time="2026-11-23 10:00:00,250", text=filled) + "\n"
            (hit,) = find_hits(3, b"unrelated\n" + line.encode() + b"java.io.IOException: No space left\n")
            assert (hit.broker, hit.rule) == (3, rule.name)
            assert hit.at_ms is not None
            assert hit.at_ms % 60_000 == 250
            if "log_dir" in text.fields:
                assert hit.log_dir == f"/data/d {text.fields.index('log_dir')}"


def test_lines_that_tell_of_nothing_and_torn_bytes_are_no_finding() -> None:
    rng = random.Random(5)
    noise = bytes(rng.randrange(256) for _ in range(20_000))
    assert list(find_hits(1, noise)) == []
    assert list(find_hits(1, b"INFO Expanding ISR from 1 to 1,2\nStopping serving logs in dir")) == []


def written(rule: str, at_ms: list[int]) -> LogCounts:
    counts = LogCounts()
    counts.add_hits(LogHit(1, rule, at, "text") for at in at_ms)
    return counts


def test_many_lines_within_a_minute_are_a_storm_and_as_many_in_an_hour_are_none() -> None:
    assert BY_NAME["isr_shrink"].storm == 20
    (calm,) = written("isr_shrink", [number * 4000 for number in range(100)]).rows()
    assert (calm.count, calm.storm_ms, calm.serious) == (100, None, False)
    (storm,) = written("isr_shrink", [number * 3000 for number in range(20)]).rows()
    assert (storm.storm_ms, storm.serious) == (57_000, True)
    (short,) = written("isr_shrink", list(range(19))).rows()
    assert not short.serious
    assert (short.first_ms, short.last_ms) == (0, 18)


def test_serious_findings_come_first() -> None:
    counts = written("controller_change", [1])
    counts.add_hits([LogHit(2, "disk_error", 5, "text", "/d0"), LogHit(2, "disk_error", None, "text", "/d0")])
    assert [(row.rule, row.count, row.log_dirs) for row in counts.rows()] == [
        ("disk_error", 2, ["/d0"]),
        ("controller_change", 1, []),
    ]


def test_each_line_is_read_once_over_growth_renames_and_cut_short_reads(tmp_path: Path) -> None:
    rng = random.Random(11)
    path, position = tmp_path / "server.log", LogPosition()
    path.touch()
    position = read_on(path, position).position
    written_lines: list[bytes] = []
    read = b""
    renames = 0
    for step in range(300):
        with path.open("ab") as file:
            for _ in range(rng.randrange(4)):
                line = b"line %d %s" % (len(written_lines), b"x" * rng.randrange(90))
                written_lines.append(line)
                half = rng.randrange(len(line))
                file.write(line[:half])
                file.flush()
                if rng.random() < 0.2:
                    piece = read_on(path, position, bytes_max=100_000)
                    read, position = read + piece.lines, piece.position
                file.write(line[half:] + b"\n")
        if rng.random() < 0.1:
            renames += 1
            path.rename(tmp_path / f"server.log.2026-{step}")
            path.touch()
            if rng.random() < 0.5:
                continue
        more = True
        while more:
            piece = read_on(path, position, bytes_max=rng.choice([150, 1000]))
            assert not piece.lost
            read, position, more = read + piece.lines, piece.position, piece.more
        if renames and rng.random() < 0.1:
            for old in tmp_path.glob("server.log.*"):
                old.unlink()
    assert renames > 5
    while (piece := read_on(path, position)).more or piece.lines:
        read, position = read + piece.lines, piece.position
    assert read == b"".join(line + b"\n" for line in written_lines)


def test_a_renamed_file_that_is_gone_and_a_log_that_was_cut_are_told(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"one\ntwo\n")
    position = read_on(path, LogPosition()).position
    path.write_bytes(b"new\n")
    cut = read_on(path, position)
    assert (cut.lines, cut.lost) == (b"new\n", True)
    kept = path.open("rb")  # else the new file might get the old one's inode
    path.unlink()
    path.write_bytes(b"newer\n")
    gone = read_on(path, cut.position)
    kept.close()
    assert (gone.lines, gone.lost) == (b"newer\n", True)


def test_the_first_reading_takes_the_end_of_a_log_by_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"".join(b"line %03d\n" % number for number in range(100)))
    assert read_on(path, LogPosition(), bytes_max=25).lines == b"line 098\nline 099\n"
    assert read_on(path, LogPosition(), bytes_max=18).lines == b"line 098\nline 099\n"
    with pytest.raises(NotFound, match="cannot be read"):
        read_on(tmp_path / "none", LogPosition())


def test_a_line_without_end_holds_up_nothing(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.touch()
    position = read_on(path, LogPosition()).position
    path.write_bytes(b"x" * (3 * LINE_BYTES_MAX) + b"\nafter\n")
    lines = b""
    for _ in range(10):
        piece = read_on(path, position, bytes_max=LINE_BYTES_MAX + 1)
        lines, position = lines + piece.lines, piece.position
    assert lines.endswith(b"\nafter\n")
    assert len(lines) < 2 * LINE_BYTES_MAX


def test_a_watch_goes_on_where_the_one_before_it_stopped(tmp_path: Path) -> None:
    path, positions = tmp_path / "server.log", tmp_path / "positions.json"
    path.write_text("Encountered fatal fault: one\n")
    logs = {1: [path], 2: [tmp_path / "none"]}
    first = LogWatch(logs, positions)
    assert [hit.text for hit in first.hits()] == ["Encountered fatal fault: one"]
    assert [missing.broker for missing in first.missing] == [2]
    first.keep()
    with path.open("a") as file:
        file.write("Encountered fatal fault: two\n")
    unkept = LogWatch(logs, positions)
    assert [hit.text for hit in unkept.hits()] == ["Encountered fatal fault: two"]
    again = LogWatch(logs, positions)
    assert [hit.text for hit in again.hits()] == ["Encountered fatal fault: two"]
    again.keep()
    assert list(LogWatch(logs, positions).hits()) == []
    positions.write_text("[")
    with pytest.raises(Corrupted, match="positions"):
        LogWatch(logs, positions)
