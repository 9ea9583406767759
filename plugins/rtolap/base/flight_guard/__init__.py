"""The guard before every Flight server: see `relay`.

limits → frames → calls, answers → connection → relay
"""
