"""Incidents: what is kept of a failure, and the index that finds it.

``incidents`` keeps what was seen and which commits belong to it, ``evidence`` what lies beside it, ``runs`` what replays showed.
``index`` is derived from the files, and can be made anew. ``report`` makes of all this what a reader is shown.
"""
