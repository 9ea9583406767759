"""Computed columns and filtered measures under another name: a statement may write their expressions out."""
