"""The forms of SHOW and DESCRIBE, read into a value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from rtolap.base.errors import QueryError, UnsupportedSql

_CHARACTERS_MAX = 4096  # of a SHOW: the patterns below look at some of them more than once
_NAME = r"(?:`?(?P<db>\w+)`?\s*\.\s*)?`?(?P<name>[^`\s;.]+)`?"
_FROM_DATABASE = r"(?:\s+(?:from|in)\s+`?(?P<from_db>\w+)`?)?"
_SCOPE = r"(?:global\s+|session\s+|local\s+)?"
_COUNT = r"(?P<count>count\s*\(\s*\*\s*\)\s*)?"
_EXPLAINED_QUERY = re.compile(r"(?:explain|desc|describe)\s++(?:analyze\s++)?(?:select|with|\()", re.I)

ShowKind = Literal[
    "databases",
    "tables",
    "table status",
    "columns",
    "create",
    "keys",
    "partitions",
    "transaction",
    "variables",
    "status",
    "warnings",
    "errors",
    "processlist",
    "engines",
    "charsets",
    "collations",
    "nothing",
    "grants",
]


@dataclass(frozen=True)
class Show:
    """SHOW, DESCRIBE and the like.

    Attributes:
        name: name of the relation; None: the statement names none.
        database: database of the relation, or the database itself; None: the session's.
        label: label of a transaction.
        is_pattern: True if `label` is a pattern for LIKE.
        condition: LIKE, WHERE or LIMIT over the rows.
    """

    kind: ShowKind
    name: str | None = None
    database: str | None = None
    is_full: bool = False
    is_count: bool = False
    label: str = ""
    is_pattern: bool = False
    condition: str = ""


_FORMS: tuple[tuple[str, ShowKind], ...] = (
    (r"show\s+(?:databases|schemas)", "databases"),
    (rf"show\s+(?P<full>full\s+)?tables{_FROM_DATABASE}", "tables"),
    (rf"show\s+table\s+status{_FROM_DATABASE}", "table status"),
    (rf"show\s+(?P<full>full\s+)?(?:columns|fields)\s+(?:from|in)\s+{_NAME}{_FROM_DATABASE}", "columns"),
    (rf"(?:describe|desc|explain)\s+{_NAME}{_FROM_DATABASE}", "columns"),
    (rf"show\s+create\s+(?:table|view)\s+{_NAME}", "create"),
    (rf"show\s+(?:index|indexes|keys)\s+(?:from|in)\s+{_NAME}{_FROM_DATABASE}", "keys"),
    (rf"show\s+partitions\s+from\s+{_NAME}", "partitions"),
    (
        r"show\s+transaction(?:\s+(?:from|in)\s+`?(?P<from_db>\w+)`?)?\s+where\s+label\s*"
        r"(?P<operator>=|like\b)\s*(?:'(?P<label>[^']*)'|\"(?P<quoted>[^\"]*)\")",
        "transaction",
    ),
    (rf"show\s+{_SCOPE}variables", "variables"),
    (rf"show\s+{_SCOPE}status", "status"),
    (rf"show\s+{_COUNT}warnings\b", "warnings"),
    (rf"show\s+{_COUNT}errors\b", "errors"),
    (r"show\s+(?:full\s+)?processlist", "processlist"),
    (r"show\s+(?:storage\s+)?engines", "engines"),
    (r"show\s+(?:character\s+set|charset)", "charsets"),
    (r"show\s+collation", "collations"),
    (
        r"show\s+(?:triggers|events|plugins|privileges|profiles|procedure\s+status|function\s+status)\b.*",
        "nothing",
    ),
    (r"show\s+grants.*", "grants"),
)
_PATTERNS = tuple((re.compile(form, re.IGNORECASE | re.DOTALL), kind) for form, kind in _FORMS)


def show_of(text: str) -> Show | None:
    """Return None for a statement of another kind. Raises QueryError for a SHOW that is not supported."""
    text = text.strip().rstrip(";").strip()
    if not re.match(r"(show|describe|desc|explain)\b", text, re.IGNORECASE):
        return None
    if len(text) > _CHARACTERS_MAX:
        if _EXPLAINED_QUERY.match(text):
            return None
        raise QueryError("the statement is too long", expected=f"at most {_CHARACTERS_MAX} characters")
    for pattern, kind in _PATTERNS:
        match = pattern.match(text)
        if match is None:
            continue
        condition = text[match.end() :].strip()
        if not condition or re.match(r"(like|where|limit)\b", condition, re.IGNORECASE):
            return _show(kind, match.groupdict(), condition)
    if re.match(r"show\b", text, re.IGNORECASE):
        raise UnsupportedSql(f"unsupported SHOW: {text[:80]}", expected="TABLES, COLUMNS, VARIABLES, …")
    return None


def _show(kind: ShowKind, groups: dict[str, str | None], condition: str) -> Show:
    return Show(
        kind,
        name=groups.get("name"),
        database=groups.get("from_db") or groups.get("db"),
        is_full=bool(groups.get("full")),
        is_count=bool(groups.get("count")),
        label=groups.get("label") or groups.get("quoted") or "",
        is_pattern=groups.get("operator") not in (None, "="),
        condition=condition,
    )
