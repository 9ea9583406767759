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


def state_of(explanation: Explanation) -> str:
    """Return a line that says if the window may close, and what is missing or awaited."""
    window = f"the window of {explanation.application} that ends at {iso(explanation.window_end_ms)}"
    missing = f" ({'; '.join(_shares(explanation))})" if explanation.expected_missing_ppm else ""
    if explanation.may_close:
        reasons = "; ".join(explanation.reasons) if explanation.approved else "its events are there"
        return f"{window} may close: {reasons}{missing}"
    return f"{window} waits: {'; '.join(explanation.reasons)}{missing}"


def question(explanation: Explanation) -> tuple[str, str]:
    """Return subject and Markdown text of the question about a waiting window."""
    end = iso(explanation.window_end_ms)
    lines = [f"The window of `{explanation.application}` that ends at {end} waits for:", ""]
    lines += [f"- {_plain(reason)}" for reason in explanation.reasons]
    shares = _shares(explanation)
    if shares:
        lines += ["", "Of its events:", ""] + [f"- {_plain(share)}" for share in shares]
    for source, info in explanation.hosts.items():
        if info.behind:
            lines += ["", f"Hosts of `{source}` that are behind, the furthest first:", ""]
            lines += ["| host | read up to | behind by | may owe |", "|---|---|---|---|"]
            lines += [_host(host) for host in info.behind[:HOSTS_SHOWN_MAX]]
    lines += [
        "",
        "**Approve** lets this window, and all that end before it, close as they are; your name and the "
        "reason are recorded. **Reject** keeps it waiting. If it becomes complete first, this question is "
        "withdrawn.",
    ]
    return f"Approve the window of {explanation.application} that ends at {end}?", "\n".join(lines)


def _shares(explanation: Explanation) -> list[str]:
    return [
        f"{source}: {expected} ppm expected to be missing, at most {explanation.bound_ppm[source]} ppm"
        for source, expected in explanation.expected_missing_ppm.items()
    ]


def _host(host: HostBehind) -> str:
    behind = "never seen" if host.behind_ms is None else _span(host.behind_ms)
    return f"| {_plain(host.host)} | {iso(host.latest_ms)} | {behind} | {host.share_ppm} ppm |"


def _span(duration_ms: int) -> str:
    return format_duration(max(duration_ms, 0) // 1000 * 1000)


def _plain(text: str) -> str:
    """Return a name as code. Names are anything printable; as code they are neither markup nor end a cell."""
    return "`" + text.replace("`", "'").replace("|", "¦") + "`"
