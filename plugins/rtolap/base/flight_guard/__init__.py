"""The guard before every Flight server: see `relay`.

limits → frames → message_bounds → calls, answers → connection → relay
"""
