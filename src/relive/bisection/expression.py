"""A probe that asks the service's own Python: a commit in which an expression is true is bad."""

from __future__ import annotations

from dataclasses import dataclass

from relive.bisection.judgement import Judged, Judgement
from relive.config import Settings
from relive.incidents.report.masking import Mask
from relive.inspection.evaluated import EvalOutcome, Evaluated
from relive.inspection.python.branches import asked_branch
from relive.model.commit import CommitId
from relive.store import Store

__all__ = ["ExpressionProbe", "judged_value"]


@dataclass(frozen=True, slots=True)
class ExpressionProbe:
    """An expression, evaluated as ``relive eval`` does.

    Args:
        process: number of the process inside that is asked; None: see ``asked_branch``. limit: seconds that it has.
    """

    settings: Settings
    store: Store
    expression: str
    process: int | None
    limit: float

    def __call__(self, commit: CommitId) -> Judged:
        """Raises ReliveError where there is no branch, or no Python in it."""
        mask = Mask.configured(self.settings)
        with asked_branch(self.settings, self.store, commit, self.process, mask) as asked:
            # A line of its own: the expression may end with a comment.
            whole = f"bool(\n{self.expression}\n)"
            return judged_value(asked.evaluate(whole, module=None, depth=0, most=1, limit=self.limit))


def judged_value(found: Evaluated) -> Judged:
    """What came of it says: true is bad, false is good; an exception, a hang or a death says nothing of the commit."""
    match found.outcome:
        case EvalOutcome.VALUE:
            is_bad = found.text == "True"
            return Judged(
                judgement=Judgement.BAD if is_bad else Judgement.GOOD, seen="true" if is_bad else "false"
            )
        case EvalOutcome.RAISED:
            said = f"{found.type}: {found.text}" if found.text else found.type
            return Judged(judgement=Judgement.FAILED, seen=f"the expression raised {said}")
    return Judged(judgement=Judgement.FAILED, seen=found.text)
