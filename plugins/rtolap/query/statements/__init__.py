"""Statements classified and executed, the same for every server: MySQL protocol, HTTP and with it DB-API.

`classify` cleans a statement's text and returns a value of its kind, with `shows` for SHOW and DESCRIBE and
`query.stored.ddl` for definitions. `executor` executes each kind: `show_answers` for SHOW, the query service
for queries, its definitions for DDL, `sql_session` and `assignments` for SET.

Invariants: classifying is pure and linear in the text; the executor, and nothing else, checks the rights that
a statement needs; a server adds only the format of answers. Never: a statement that one server accepts and
another does not, except SET and USE, which need a persistent session.
"""
