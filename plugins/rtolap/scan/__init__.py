"""Columns in dictionary codes → filter → groups → reduce: the one way to filter and group partial aggregates.

`keys` codes a column: small numbers stand for its values. `numbers` combines the codes of several columns to
one number and takes it apart again. `groups` makes these numbers dense.

A result depends on the columns alone. The room opens no file, asks no service and knows no cube's definition.
"""
