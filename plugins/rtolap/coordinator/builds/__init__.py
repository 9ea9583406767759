"""The way of a segment into history: `queue` (what waits, attempts, promotion in order), `check` (a manifest
beside the record), `batches` (segments whose events another source than the topic says),
`replaceable` (the segments that a batch may be of)."""
