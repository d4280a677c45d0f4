"""Taking commits of a target.

There are two engines. CRIU can dump whatever it knows, and stops the target for milliseconds. A *micro-commit* takes only what has
changed since the commit before, its *base*, and makes of both the images that CRIU would have written; in doubt it is refused, and
CRIU takes a full commit. The modules, in the order of a commit:

- what is committed: ``target`` finds and checks it before anything is stopped
- the order of all steps: ``dump``, until the target runs on; ``dumped`` then makes it durable; ``dump_errors`` says why it failed
- what must not happen meanwhile: ``request_gate`` (a request's bytes move), ``watchdog`` (the target stays stopped)
- files, by ``target_files``: of an overlay (``file_layers``), by the journal of process 1 (``tracked_files``, ``journal``), of a
  process that Relive did not start (``open_files``, ``watched_files``)
- memory copied before the pause: ``copied_ahead``, with ``page_runs`` and ``page_files``
- CRIU: ``criu`` talks with it, ``criu_errors`` explains what it says
- micro-commits: ``micro_commits`` has the protocol, ``micro_tracker`` runs ``native/micro.c``, ``micro_record`` reads what that
  writes, ``micro_fingerprint`` decides, ``micro_images`` makes images, with a module for each kind of object (``micro_process``,
  ``micro_connections``, ``micro_timers``, ``micro_shared``, ``micro_ghosts``)
- whether the kernel's own objects are believed in them: ``kernel_trust``, ``uncompared``, ``suspect_captures``

For branches there are ``criu_template``, ``empty_parents`` and ``host_files``.
"""
