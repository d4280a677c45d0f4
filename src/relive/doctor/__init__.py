"""What this host can do, found out by doing it: ``relive doctor``.

- ``checklist``: the probes, in the order in which they run and are shown
- ``probe``: how one is run: in a process of its own, with a time limit, leaving nothing behind
- ``probes``: one file per thing that is tried
"""

from relive.doctor.checklist import CHECKLIST, examine
from relive.doctor.finding import Finding, ProbeOutcome, is_ready

__all__ = ["CHECKLIST", "Finding", "ProbeOutcome", "examine", "is_ready"]
