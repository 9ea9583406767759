"""`rtolap watermark` shows how far applications are and which hosts and units hold them back, and lets a
person act on it."""
