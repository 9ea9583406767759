"""`rtolap watermark`: how far applications are, who holds them back, and what can be done about it."""
