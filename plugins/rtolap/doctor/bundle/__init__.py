"""The support bundle: one archive with what somebody needs who was not there when it happened.

    masking     secrets of this host, and how each text loses them
    log_tails   the ends of the logs of this machine, bounded
    sources     what is collected, each part by itself
    archive     the file: private, bounded, with a manifest of what is there and what could not be had

Every text passes one mask before it is written, and the archive looks once more for each secret that this
host knows. A part that cannot be had is an entry of the manifest, and hides no other.
"""
