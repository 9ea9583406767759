"""How large the cuboids of a cube will be, and which further ones would pay.

    sample     events of a file or a topic, decoded as receivers decode them
    estimate   rows and bytes of cuboids, out of a sample
    advice     cuboids that would save the most rows of a workload: a pure function

Nothing here is exact, and nothing that answers a statement uses it.
"""
