"""The HTTP server answers in JSON or an Arrow stream. It takes Basic (users file) or Bearer (cluster token)
authentication.

    POST /api/v1/query   {sql, parameters?, timeout_ms?, database?, engine?}  →  {columns, rows, positions,
                         stats, warnings}; the statements of `query.statements`, each in a session of its own
                         Header Rtolap-Session-Token, in both directions: see `query.session_token`
    GET  /api/v1/history-cache[?versions=N]   what of history is on the service's disk
    GET  /metrics        for Prometheus
    GET  /health         without credentials

In JSON decimals with a scale, dates and timestamps are strings, whole numbers are numbers of any length, and
NaN and infinities are strings. `Accept: application/vnd.apache.arrow.stream` gives an Arrow IPC stream whose
schema carries positions as JSON under `rtolap.positions`, and warnings under `rtolap.warnings`.

Bodies are decoded beside the event loop, after their size as objects was reserved. Both kinds of answers are
sent as they are made.

`server` has the routes, `request_body` reads a request, `running` runs its statement, `answers` makes what is
sent.
"""
