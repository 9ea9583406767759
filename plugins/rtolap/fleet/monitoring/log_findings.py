"""Lines of broker logs that a rule stands for, counted by broker and rule, and storms of them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from rtolap.fleet.monitoring.log_rules import ANCHORS, BY_NAME, LogRule

TEXT_CHARACTERS_MAX = 300
_ANY = re.compile("|".join(re.escape(anchor) for anchor, _, _ in ANCHORS).encode())
_TIME = re.compile(r"\[?(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)[,.](\d{3})")
_LOG_DIRS_MAX = 20


@dataclass(frozen=True)
class LogHit:
    """A line of a log that matches a rule.

    Attributes:
        at_ms: Time of the line in this host's time zone. None for a line without a time.
        text: The message, shortened.
    """

    broker: int
    rule: str
    at_ms: int | None
    text: str
    log_dir: str | None = None
    partition: str | None = None


@dataclass
class RuleCount:
    """The findings of one rule at one broker.

    Attributes:
        storm_ms: Time of the last storm. None without one.
    """

    broker: int
    rule: str
    count: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    storm_ms: int | None = None
    last_text: str = ""
    log_dirs: list[str] = field(default_factory=list)
    recent_ms: deque[int] = field(default_factory=deque, repr=False)

    @property
    def serious(self) -> bool:
        return BY_NAME[self.rule].serious or self.storm_ms is not None


def find_hits(broker: int, lines: bytes) -> Iterator[LogHit]:
    """Yield hits in the order of the lines. The first rule whose text is in a line takes it."""
    end_of_last = -1
    for match in _ANY.finditer(lines):
        if match.start() < end_of_last:
            continue  # the same line
        start = lines.rfind(b"\n", 0, match.start()) + 1
        end = lines.find(b"\n", match.end())
        end_of_last = len(lines) if end < 0 else end
        hit = _hit(broker, lines[start:end_of_last].decode("utf-8", errors="replace").rstrip("\r"))
        if hit is not None:
            yield hit


def _hit(broker: int, line: str) -> LogHit | None:
    for anchor, rule, text in ANCHORS:
        if anchor not in line:
            continue
        found = text.pattern.search(line)
        if found is not None:
            fields = found.groupdict()
            return LogHit(
                broker,
                rule.name,
                _at_ms(line),
                line[found.start() :][:TEXT_CHARACTERS_MAX],
                _log_dir(fields.get("log_dir")),
                fields.get("partition"),
            )
    return None


def _log_dir(text: str | None) -> str | None:
    """Return the path without the logger's name in parentheses, which log4j's layout appends to the
    message.
    """
    return None if text is None else re.sub(r" \([\w.$]+\)$", "", text)


def _at_ms(line: str) -> int | None:
    match = _TIME.match(line)
    if match is None:
        return None
    try:
        second = datetime.fromisoformat(f"{match[1]} {match[2]}").timestamp()
    except ValueError:
        return None
    return int(second) * 1000 + int(match[3])


class LogCounts:
    """Counts since it was made; bounded by rules and brokers."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, str], RuleCount] = {}

    def add_hits(self, hits: Iterable[LogHit]) -> None:
        for hit in hits:
            key = (hit.broker, hit.rule)
            count = self._counts.setdefault(key, RuleCount(*key))
            count.count += 1
            count.last_text = hit.text
            if hit.log_dir is not None and hit.log_dir not in count.log_dirs[:_LOG_DIRS_MAX]:
                count.log_dirs.append(hit.log_dir)
            if hit.at_ms is not None:
                count.first_ms = hit.at_ms if count.first_ms is None else min(count.first_ms, hit.at_ms)
                count.last_ms = hit.at_ms if count.last_ms is None else max(count.last_ms, hit.at_ms)
                _notice_storm(count, BY_NAME[hit.rule], hit.at_ms)

    def rows(self) -> list[RuleCount]:
        """Return the findings: serious ones first, then by broker and rule."""
        return sorted(self._counts.values(), key=lambda it: (not it.serious, it.broker, it.rule))


def _notice_storm(count: RuleCount, rule: LogRule, at_ms: int) -> None:
    if rule.storm is None:
        return
    recent = count.recent_ms
    recent.append(at_ms)
    while recent[0] < at_ms - rule.storm_window_ms or len(recent) > rule.storm:
        recent.popleft()
    if len(recent) == rule.storm:
        count.storm_ms = at_ms
