"""What a commit keeps is compressed against which dictionary, and when that grows or a new one is begun. Pure decisions; full pages
and changed words have dictionaries each.

What one commit keeps becomes a dictionary, and the commits that follow, a *generation*, are counted from that, its root. The
farther the service goes on from a dictionary, the less it helps. So every fourth commit adds *a node*: what it keeps, itself
compressed against the dictionary of an earlier node (``nodes``), continues that one. So a page needs the dictionaries of three
packs at most, and most commits have one that is one to three commits old. A dictionary that does not help is given up, and
another is tried after one commit, then after two, four and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from relive.store.pages.dictionary import Dictionary
from relive.store.pages.nodes import NODE_EVERY, is_node, leans_on

__all__ = ["Generation", "Node", "begun", "may_begin", "may_use"]

_LEAST = 64  # [pages] for which a dictionary is begun
_MOST = 8192  # [pages] more are kept for themselves: they are read into memory at once
_TELLING = 1 << 16  # [bytes] of which the rate tells something
_WORTH = 0.8  # of what it takes without; a dictionary that saves less is given up
_PATIENCE_MOST = 32  # [commits]
_LONGEST = NODE_EVERY**3  # [commits] of a generation


@dataclass(frozen=True, slots=True)
class Node:
    """A dictionary: what one commit left, behind what that itself was compressed against.

    Attributes:
        number: of the commit, counted from the root.
        pack: position of its pack.
    """

    number: int
    pack: int
    dictionary: Dictionary


@dataclass(frozen=True, slots=True)
class Generation:
    """Dictionaries in use, or what was given up.

    Attributes:
        nodes: the root, and those that each continue the one before.
        number: of the next commit.
        is_useless: it did not help, so it is given up; patience: commits to wait then; idle: those waited.
    """

    nodes: Sequence[Node]
    number: int = 1
    is_useless: bool = False
    patience: int = 1
    idle: int = 0

    @property
    def adds_node(self) -> bool:
        """What the next commit keeps is to become a node."""
        return is_node(self.number)

    @property
    def against(self) -> Node:
        """What the next commit is to be compressed against."""
        most = leans_on(self.number)
        return [node for node in self.nodes if node.number <= most][-1]

    def after(self, raw: int, sample: Callable[[], tuple[int, int]]) -> Generation:
        """The same when a commit was compressed against it, and added no node.

        Args:
            raw: bytes of what was compressed, before.
            sample: finds out, where that is to be known, bytes of some of it and what they would be without the dictionary.
        """
        if raw < _TELLING:
            return self  # a service at rest keeps its dictionary
        onward = replace(self, number=self.number + 1)
        if not is_node(self.number - 1):
            return onward  # the one that follows a node lies nearest to it, and tells most
        against, alone = sample()
        if against > _WORTH * alone:
            return replace(onward, is_useless=True)
        return replace(onward, patience=1)

    def with_node(self, pack: int, part: bytes) -> Generation:
        """The same when a commit has left ``part``, compressed against ``against``, as a node."""
        parent = self.against
        # Only the newest is likely to be used soon; made ready, each takes much memory.
        path = [
            replace(node, dictionary=Dictionary(node.dictionary.data, node.dictionary.level))
            for node in self.nodes
            if node.number <= parent.number
        ]
        whole = Dictionary(parent.dictionary.data + part, parent.dictionary.level)
        node = Node(self.number, pack, whole)
        return replace(self, nodes=[*path, node], number=self.number + 1)

    def unused(self) -> Generation:
        """The same when a commit made no use of it."""
        return replace(self, idle=self.idle + 1)

    @property
    def is_spent(self) -> bool:
        """It is time for a new one."""
        return self.number >= _LONGEST or (self.is_useless and self.idle >= self.patience)


def may_use(generation: Generation | None, pages: int) -> bool:
    """What so many pages have is to be compressed against a generation's dictionary."""
    return (
        generation is not None and not (generation.is_useless or generation.is_spent) and 0 < pages <= _MOST
    )


def may_begin(generation: Generation | None, pages: int) -> bool:
    """What so many pages have is to begin a new one."""
    return (generation is None or generation.is_spent) and _LEAST <= pages <= _MOST


def begun(pack: int, dictionary: Dictionary, *, after: Generation | None) -> Generation:
    """A new one, which takes the place of ``after``."""
    failed = after is not None and after.is_useless
    patience = min(_PATIENCE_MOST, 2 * after.patience) if after is not None and failed else 1
    return Generation([Node(0, pack, dictionary)], patience=patience)
