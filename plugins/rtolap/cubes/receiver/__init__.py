"""The receiver consumes a cube's partitions, answers for events that history does not hold, and uploads
closed segments.

Nouns
    local table   aggregated events of one segment, in memory or in a fragment, with the offset range per
                  partition out of which it was made and the history version it belongs to
    local state   positions and the local tables of all segments: immutable, swapped whole, so that a query
                  sees either all of a batch, a flush, a merge or a realignment, or nothing of it
    vectors       what a segment's record says about offsets: `covered` and `target` (`model.offsets`)
    settled       said of segments to which nothing is added now: their records are looked up when needed
    cube receiver the single-threaded core of one cube: `CubeReceiver.step`

Invariants
    - Per partition, the ranges of a segment's local tables never overlap, and together with history they
      hold every event below the position exactly once.
    - A table that straddles a vector is never merged and never uploaded; it is re-read and split.
    - A stored result is of immutable tables, and holds exactly their events.
    - What a checkpoint names is on disk; what it does not name is deleted at recovery.
    - A vector is persisted before anything is uploaded for it.

What it never does: decide alone which events are in history (the record does), skip offsets silently
(a gap is state FAILED), or answer from two states at once.

Modules
    pure        `local.align`, `local.batch`, `local.tables`, `local.cut_logs`, `closing_rules`, `states`,
                `pace` (how often threads look)
    `core`      `ingest` steps; `assignment`, `intake` (a batch into the state), `limits` (when to wait),
                `partition_progress` (counters and clocks), `topic_watch` (ends, identity, lost offsets),
                `promises`, `closing_candidates`, `closing_commits`, `dead_letters`, `checkpointing`,
                `freed_memory` (what goes back to the system while it is behind)
    `hosts`     progress of the hosts that log, and which of them are missing
    beside it   `background_work` calls `local.fragments`, `local.realign` and `upload` and brings results to
                the core, `views` what the cluster says, `settled` what it says of history;
                `local.checkpoint` is the file
    the server  `flight`; `answers.query_service` answers, out of rows and, where a statement comes again, of
                results that `answers.result_cache` keeps
    process     `process`: `assembly` of each cube, `reports` and `host_reports` of it; threads in `runner`
                (three a cube, and one that writes checkpoints out) too
"""
