"""Macros of the embedded engine: functions of MySQL that it lacks or reads otherwise, in its own SQL.

    registry   all of them, by name, and the statements that make them; calls are those of `sql/rules`
    calendar   weeks, and dates out of parts
    texts      texts, and values within them
    values     numbers, bytes and moments

Never: read a file or the network. The engine's boundary lists every function that a macro may call.
"""
