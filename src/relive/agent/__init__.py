"""The agent: the process beside one service that commits it, sees it fail, and takes commands for it.

``agent`` brings these together, in one event loop:

- ``capsule``: starting a service, what it is given, and its end
- ``commits``: when commits are taken (``policy``, ``pace``), taking them (``committer``), and making them durable in a thread of
  its own (``commit_writer``)
- ``failures``: ``watch`` sees them, ``sightings`` decides what they are, ``exceptions`` hears of those inside Python
- ``control``: the control socket (``server``, ``client``), and the processes that the agent keeps running

What differs for a service that Relive did not start is in ``relive.watching``.
"""
