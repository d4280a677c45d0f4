"""Relive's recorder: lives in the observed Python process, writes what crosses its border to a ring of shared memory.

Standard library only, CPython 3.8 to 3.14, nothing of Relive itself. Three promises to the service:

1. No call into this package raises into it. Whatever goes wrong in here switches the recorder off, with one line in the
   service's standard error, and the service goes on as if it had never been there.
2. It never waits: no lock is waited for, no disk, no socket. The one exception is asked for by policy: after a failure
   the failing thread stands still for a moment while it is committed (``failure/waiting.py``). In a replay threads do wait
   for each other, while the answers are read and one is looked for.
3. What it changes keeps its name, signature, type and attributes.

Modules, from the bottom: ``ring`` (the shared file), ``values`` (values as JSON and back), ``scrub`` (secrets), ``context``
(which request, which lane), ``lanes`` (of threads and tasks that are started), ``recorder`` (the one per process: mode,
events), ``calls`` (what goes out: recorded, or answered from a recording), ``imports`` (changing modules as they are imported),
``kinds/`` (one file for each thing that is recorded), ``servers/`` (requests that come in), ``failure/`` (the moment of
failure), ``playing/`` (answers from a recording), ``bootstrap`` (brings them together).
"""
