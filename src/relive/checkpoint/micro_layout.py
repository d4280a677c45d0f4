"""What the mappings of a process alone decide of a commit on top of another; mostly it is the same in the next one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self

from relive.checkpoint.micro_fingerprint import check_mappings, new_mappings
from relive.checkpoint.micro_record import RecordedMapping, Seen
from relive.checkpoint.page_files import lazy_spans
from relive.checkpoint.page_runs import Span
from relive.images import criu_images_pb2 as pb

__all__ = ["Layout"]

_PAGE = 4096


class Layout(NamedTuple):
    """Of one process at one commit. Nobody changes it.

    Attributes:
        mappings, flags: as they were seen.
        entries: CRIU's.
        special: pages of the kernel's own mappings. private: of private ones. lazy: that may come after a restore.
    """

    mappings: Sequence[RecordedMapping]
    flags: Mapping[int, frozenset[str]]
    entries: list[pb.VmaEntry]
    special: list[Span]
    private: list[Span]
    lazy: list[Span]

    @classmethod
    def of(cls, base: Seen, seen: Seen, saved: Sequence[pb.VmaEntry]) -> Self:
        """Those of a process as it is seen now.

        Args:
            base: as it was seen while CRIU held it. saved: what CRIU saved then.

        Raises:
            FullCommitNeeded: there is one that is not followed, or that has changed otherwise than is followed.
        """
        check_mappings(seen)
        entries = new_mappings(base, seen, saved)
        return cls(
            seen.mappings,
            seen.flags,
            entries,
            _spans(one for one in seen.mappings if one.name.startswith("[v")),
            _spans(one for one in seen.mappings if "p" in one.rights),
            lazy_spans(entries),
        )

    def is_of(self, seen: Seen) -> bool:
        """The process has the same mappings now."""
        return self.mappings == seen.mappings and self.flags == seen.flags


def _spans(mappings: Iterable[RecordedMapping]) -> list[Span]:
    return [(one.start // _PAGE, one.end // _PAGE) for one in mappings]
