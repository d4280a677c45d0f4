"""PostgreSQL's frontend/backend protocol, 3.0 and 3.2.

``framing`` cuts messages, ``messages`` reads them; ``dialogue_steps`` gives each question its answer, ``calls`` makes calls of
them, ``answer_parts`` is how an answer is kept; ``session`` answers a restored service. What is matched and how: ``docs/stubs.md``.
"""

from relive.protocols.postgres.protocol import OnMiss, PostgreSQL

__all__ = ["OnMiss", "PostgreSQL"]
