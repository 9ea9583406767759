"""Dead letters of a loader: listed with what became of each, loaded after all, or given up.

A letter is loaded by a load of its own (`rtolap.stored.metastore.dead_letters` has the steps and what a crash
after each leaves behind). It comes out of the topic of dead letters, which has the whole record, and is
decoded by the loader's present definition.

    reading   letters → a batch of records, as it was read from the topic
    replay    loads open letters, each once
    listing   letters with their states
    access    the use cases, for commands and for the loader's endpoint
"""
