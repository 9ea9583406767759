"""How a running cube changes: its settings in place (`cube_changes`), its columns and its window by a
revision beside it (`revisions`), and the columns that its table gets (`table_changes`). What an older
revision has of the columns that statements name: `older_columns`, `older_filter`."""
