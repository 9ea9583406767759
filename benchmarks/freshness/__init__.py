"""Time from a record's create time to the arrival of the first SQL answer that holds it: see `__main__`.

`stream` sends the events and notes when they were made, `asking` asks and says when each was visible, `run`
starts the services and puts both together, `figures` prints what was found.
"""
