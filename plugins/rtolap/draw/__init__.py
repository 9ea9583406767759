"""Pictures of watermarks.

`timeline` makes lines and holders of a history, `timeline_figure` draws them, `figure` is what figures have
in common. matplotlib is the optional extra `plot`; it is loaded when something is drawn, and only here.
Equal input gives an equal SVG: no dates, no random ids.

Never: ask a service, read a clock.
"""
