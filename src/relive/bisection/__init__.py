"""Between which two commits of a service something began: what is asked in branches of them, and which commit is asked next.

Terms: a *probe* asks one commit, in a branch of its own that is removed. Its *judgement* is good, bad, skipped or failed. A *jump*
is a pair of commits between which the judgement, or its rate, changes. ``search`` decides for probes that always say the same,
``posterior`` for those that say so sometimes only; both are pure.
"""
