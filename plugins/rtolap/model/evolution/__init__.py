"""Changes of a running cube: settings in place (`cube_changes`), columns and the window by a revision that
follows (`revisions`), columns of its table (`table_changes`). Columns and filters of the newest revision, in
terms of an older one: `older_columns`, `older_filter`."""
