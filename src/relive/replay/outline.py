"""What of a verdict's words may be shown to who may not see what a service said: which kind of thing differed, and where.

The words of verdicts quote bodies, headers, lines of logs, names of exceptions and addresses. Nothing of a text gets into its
outline but numbers, and these only where they count: so what is not known here is left out, and not by mistake shown.
"""

from __future__ import annotations

import re

__all__ = ["OTHER", "outline"]

OTHER = "something differed that this token may not see"

# The first that fits counts; {1} and {2} are its groups, which match digits only.
_OUTLINES = [
    (re.compile(pattern, re.DOTALL), words)
    for pattern, words in (
        (r"status (\d+) was recorded, (\d+) came\Z", "status {1} was recorded, {2} came"),
        (r"recorded: .*; replayed: ", "it ended in another way"),
        (r"before it: ", "the answer to an earlier request differed"),
        (r"body\b", "the body of the answer differed"),
        (r"header ", "a header of the answer differed"),
        (r"log line (\d+) differs: ", "line {1} of the log differed"),
        (r"event (\d+) of request (\d+): ", "event {1} of request {2} differed"),
        (r"event (\d+): ", "event {1} differed"),
        (r"the exception inside: ", "the exception inside differed"),
        (r"the same exception inside: ", "the same exception inside, from the same frames"),
        (r"frame (\d+) of the stack: ", "frame {1} of the stack differed"),
        (r"the same exception at the same place: ", "the same exception at the same place"),
        (r"the same stack in the log: ", "the same stack in the log"),
        (r"only the (?:recorded|replayed) side printed a stack: ", "only one side printed a stack"),
        (r"the same last line in the log: ", "the same last line in the log"),
        (r"the log's last line: ", "the log's last line differed"),
        (r"only the (?:recorded|replayed) side wrote to its log", "only one side wrote to its log"),
        (r"the same signal at the same instruction: ", "the same signal at the same instruction"),
        (r"signal \d+.* was recorded, ", "the fatal signal differed"),
        (r".* of the service died, in the branch ", "another process died"),
        (r"(\d+) threads stand where they stood", "{1} threads stand where they stood when it was recorded"),
        (r"(\d+) of (\d+) threads that did not answer stand elsewhere", "{1} of {2} threads stand elsewhere"),
        (r"(\d+) calls? .*, each with the recorded answer\Z", "{1} calls, each with the recorded answer"),
        (r"(\d+) calls? had no recorded answer", "{1} calls had no recorded answer"),
    )
]


def outline(words: str) -> str:
    """``OTHER`` where it is of no kind that is known here."""
    for pattern, form in _OUTLINES:
        found = pattern.match(words)
        if found is not None:
            return form.format(words, *found.groups()) if found.groups() else form
    return OTHER
