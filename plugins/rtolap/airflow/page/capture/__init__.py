"""Change capture on the page.

messages  what the route answers
looks     looks at the clusters, definitions and processes → the answer (pure)
routes    the route, which asks every cluster that this host knows
"""
