"""Views of stored tables, loads and loaders.

routes    the routes of these views
loads     tables, their partitions and tablets, storage nodes, transactions
loaders   loaders, and dead letters of one
messages  their answers, as JSON
"""
