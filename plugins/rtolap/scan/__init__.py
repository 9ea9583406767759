"""Columns in dictionary codes → filter → groups → reduce: the one way to filter and group partial aggregates.

columns   `keys` codes a column of a table by itself; `columns` by a dictionary that many tables share
filter    `filter` judges a condition once a value, and finds rows or ranges of rows
groups    `numbers` combines codes to one number and takes it apart again; `groups` makes the numbers dense
reduce    `folds` adds rows to groups again and again; `merge` merges the rows of one table

`group_scan` is all four over the columns of many files. Receivers merge their tables by `merge`, queries what
came from several sources. A result depends on the columns alone: the room opens no file, asks no service and
knows no cube's definition. Sums never wrap: they are refused, or left to another way by `NotCoded`.
"""
