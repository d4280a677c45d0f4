"""Replaying what was recorded against restored commits, and judging whether the same thing happened.

The way of a replay; what decides is pure, what acts is thin:

1. ``replay_input``: which commit, which requests, and all that was recorded between them and the failure
2. ``plan``: what is sent again, and when; ``answers`` and ``stubs``: what the service is answered (``precedence``: by which
   recorder)
3. ``replay``: as many runs as were asked for, each with a branch of ``branch_supply``
4. ``run``: one of them. ``branch_life`` has ``sender`` send, while ``ring_collector``, ``network`` and ``deaths`` see what the
   branch does
5. ``outcomes``: what came of it, and what had been recorded, in the same form
6. ``verdict``: both compared, with ``sequence`` (what happened inside), ``cause`` (whether the recorded reason is seen) and
   ``divergence`` (where and how they part)

``debug`` stops a replay in the failing frame; ``fresh`` does without a commit.
"""
