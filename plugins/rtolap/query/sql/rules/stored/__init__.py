"""SELECTs that read stored tables: what their nodes compute, and what the engine gets."""
