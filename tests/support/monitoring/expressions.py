"""Names and labels in PromQL, for rules and dashboards that are held against the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.support.monitoring.catalogued import sample_labels

# Of scraping, and of the targets that the leader names (`Members.metrics_targets`).
TARGET_LABELS = frozenset({"job", "instance", "service", "receiver", "replica_set"})
OF_SCRAPING = {"up": frozenset[str]()}
_AGGREGATIONS = {"sum", "max", "min", "avg", "count", "topk", "bottomk", "by", "without", "offset", "bool"}
_FUNCTIONS = {
    "time",
    "rate",
    "increase",
    "deriv",
    "changes",
    "predict_linear",
    "histogram_quantile",
    "clamp_min",
}
_SET_OPERATOR = re.compile(r"\b(?:and|or|unless)\b(?:\s+(?:on|ignoring)\s*\([^()]*\))?")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTED = re.compile(r"([a-zA-Z_:][\w:]*)?\{([^{}]*)\}")
_GROUPED = re.compile(r"\b(?:by|without)\s*\(([^()]*)\)")
_NAME = re.compile(r"(?<![\w.$])[a-zA-Z_:][\w:]*")


def misfits(expression: str) -> list[str]:
    """Return what the catalogue does not have: names of metrics, labels that are selected or grouped by."""
    text = _TEXT.sub('""', expression)
    return [wrong for operand in _SET_OPERATOR.split(text) for wrong in _misfits(operand)]


def _misfits(text: str) -> Iterator[str]:
    known = {**sample_labels(), **OF_SCRAPING}
    text = re.sub(r"\[[^\]]*\]", "", text)
    text = re.sub(r"\boffset\s+\w+", "offset", text)
    labels: set[str] = set()
    for name, matchers in _SELECTED.findall(text):
        selected = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        if not name:
            yield f"a selector without a name: {{{matchers}}}"
        elif name in known:
            yield from (f"{name} has no label {label}" for label in selected - known[name] - TARGET_LABELS)
    for group in _GROUPED.findall(text):
        labels |= {each.strip() for each in group.split(",")} - {""}
    bare = _GROUPED.sub("", _SELECTED.sub(lambda match: f"{match[1] or ''} ", text))
    names = {
        name
        for name in _NAME.findall(bare)
        if name not in _AGGREGATIONS | _FUNCTIONS and not re.fullmatch(r"e\d+", name)
    }
    yield from (f"{name} is not in the catalogue" for name in sorted(names - set(known)))
    for name in sorted(names & set(known)):
        having = known[name] | TARGET_LABELS
        yield from (f"{name} has no label {label} to group by" for label in sorted(labels - having))
    if not names:
        yield "no metric is named"
