"""Windows and who holds them, in words: for logs, time-outs and questions. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from rtolap.model.durations import format_duration
from rtolap.protocols.watermark.messages import Explanation, HostBehind

HOSTS_SHOWN_MAX = 20


def iso(at_ms: int | None) -> str:
    if at_ms is None:
        return "unknown"
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


def state_of(said: Explanation) -> str:
    """One line: may the window close, and what is missing or waited for."""
    window = f"the window of {said.application} that ends at {iso(said.window_end_ms)}"
    missing = f" ({'; '.join(_shares(said))})" if said.expected_missing_ppm else ""
    if said.may_close:
        why = "; ".join(said.reasons) if said.approved else "its events are there"
        return f"{window} may close: {why}{missing}"
    return f"{window} waits: {'; '.join(said.reasons)}{missing}"


def question(said: Explanation) -> tuple[str, str]:
    """Subject and Markdown text of what a person is asked about a window that waits."""
    end = iso(said.window_end_ms)
    lines = [f"The window of `{said.application}` that ends at {end} waits for:", ""]
    lines += [f"- {_plain(reason)}" for reason in said.reasons]
    shares = _shares(said)
    if shares:
        lines += ["", "Of its events:", ""] + [f"- {_plain(share)}" for share in shares]
    for source, info in said.hosts.items():
        if info.behind:
            lines += ["", f"Hosts of `{source}` that are behind, the furthest first:", ""]
            lines += ["| host | read up to | behind by | may owe |", "|---|---|---|---|"]
            lines += [_host(one) for one in info.behind[:HOSTS_SHOWN_MAX]]
    lines += [
        "",
        "**Approve** lets this window, and all that end before it, close as they are; your name and the "
        "reason are recorded. **Reject** keeps it waiting. If it becomes complete first, this question is "
        "withdrawn.",
    ]
    return f"Let the window of {said.application} that ends at {end} go?", "\n".join(lines)


def _shares(said: Explanation) -> list[str]:
    return [
        f"{source}: {expected} ppm expected to be missing, at most {said.bound_ppm[source]} ppm"
        for source, expected in said.expected_missing_ppm.items()
    ]


def _host(one: HostBehind) -> str:
    behind = "never seen" if one.behind_ms is None else _span(one.behind_ms)
    return f"| {_plain(one.host)} | {iso(one.latest_ms)} | {behind} | {one.share_ppm} ppm |"


def _span(duration_ms: int) -> str:
    return format_duration(max(duration_ms, 0) // 1000 * 1000)


def _plain(text: str) -> str:
    """Names are anything printable: as code they can be neither markup nor the end of a table's cell."""
    return "`" + text.replace("`", "'").replace("|", "¦") + "`"
