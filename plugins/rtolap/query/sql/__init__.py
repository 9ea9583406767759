"""SQL: MySQL's grammar parsed, typed and rewritten into what runs over partial aggregates."""
