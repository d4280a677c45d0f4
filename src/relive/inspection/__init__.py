"""Looking into commits and comparing them: what processes had open, mapped, held and waited for; what is in their memory.

Everything here is read from a commit's images and pages; nothing is restored. What only the living process can tell (values of
Python expressions) is in ``inspection.python``, which asks a branch that it throws away.
"""
