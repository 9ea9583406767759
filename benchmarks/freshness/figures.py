"""The figures of a run, printed beside what is wanted and what a peer was measured at."""

from __future__ import annotations

WATCHED = ("receiver", "query", "kafka", "producer", "asker")  # processes that share the machine
P50_MS_MAX, P99_MS_MAX = 30.0, 90.0
# Apache Pinot 1.5.1 with aggregation on ingest, measured once on a machine of two such cores: events of the
# same 198 bytes out of four partitions of Kafka 4.3.1 at 106 k events/s, nothing held.
PEER = "Pinot 1.5.1, aggregated on ingest, 106 k/s, nothing held"
PEER_P50_MS, PEER_P99_MS = 30.0, 72.0
# The same with 11 M events held, at 100 k events/s.
PEER_HELD = "Pinot 1.5.1, aggregated on ingest, 100 k/s, 11 M held"
PEER_HELD_P50_MS, PEER_HELD_P99_MS = 91.0, 358.0


def report(figures: dict[str, float], rate: int) -> None:
    lines: tuple[tuple[str, float, float], ...] = (
        ("create time → visible in SQL", figures["p50_ms"], figures["p99_ms"]),
        ("  wanted at most", P50_MS_MAX, P99_MS_MAX),
        (f"  {PEER}", PEER_P50_MS, PEER_P99_MS),
        (f"  {PEER_HELD}", PEER_HELD_P50_MS, PEER_HELD_P99_MS),
        ("query meanwhile", figures["query_p50_ms"], figures["query_p99_ms"]),
        ("query on the idle cube", figures["idle_query_p50_ms"], figures["idle_query_p99_ms"]),
    )
    print(f"{figures['events']:.0f} events, {figures['events_per_s'] / 1e3:.1f} k/s of {rate / 1e3:g} k/s")
    if "bare_p50_ms" in figures:
        lines += (("a bare consumer of a partition", figures["bare_p50_ms"], figures["bare_p99_ms"]),)
    if "duckdb_p50_ms" in figures:
        lines += (("a loader into DuckDB, alone", figures["duckdb_p50_ms"], figures["duckdb_p99_ms"]),)
    for name, p50_ms, p99_ms in lines:
        print(f"  {name:58} p50 {p50_ms:6.1f} ms   p99 {p99_ms:6.1f} ms")
    print(f"  ratio {figures['ratio']:.2f} of the idle round trip (1.5 is the least that can be seen)")
    print(
        f"  {figures['queries']:.0f} queries; CPU a second of events: "
        + ", ".join(f"{word} {figures[f'{word}_cpu_s']:.2f} s" for word in WATCHED)
    )
    print(
        f"  {figures['held_events']:.0f} events held before, receiver {figures['receiver_held_mb']:.0f} MB: "
        f"its own {figures['receiver_own_mb']:.0f}, mapped files {figures['receiver_mapped_mb']:.0f}; "
        f"peak in the end {figures['receiver_peak_mb']:.0f}"
    )
    print(
        f"  written meanwhile: {figures['fragments_written']:.0f} fragments, "
        f"{figures['files_uploaded']:.0f} files of uploaded segments"
    )
