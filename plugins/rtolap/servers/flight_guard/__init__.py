"""The guard before every Flight server: see `relay`.

frames → calls → connection → relay
"""
