"""Statements classified and executed, the same for every server: MySQL protocol, HTTP and with it DB-API.

`classify` cleans a statement's text and returns a value that says of which kind it is, with `shows` for SHOW
and DESCRIBE and `query.stored.ddl` for definitions. `executor` carries each kind out: `show_answers` for
SHOW, the query service for queries, its definitions for DDL, `session` and `assignments` for SET.

Invariants: classifying is pure and linear in the text; the rights that a statement needs are checked in the
executor and nowhere else; a server adds only how it writes answers down. Never: a statement that one server
takes and another does not, but for SET and USE, which want a session that is kept.
"""
