"""Files without a name in which nothing is, in commits on top of another: their times are written anew.

A worker of gunicorn says by them that it lives.
"""

from __future__ import annotations

from collections.abc import Mapping

from relive.checkpoint.micro_record import FullCommitNeeded, GhostFacts
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import decode, image_like, messages

__all__ = ["BaseGhosts"]

_REMAPPED, _PREFIX = "remap-fpath.img", "ghost-file-"
_GHOST = 1  # of CRIU's remap_type: it is saved as a whole


class BaseGhosts:
    """Those that CRIU has saved.

    Args:
        small: all images of the base, by name.
        nameless: those that are open, by the id of the file.

    Raises:
        FullCommitNeeded: CRIU has saved others.
    """

    def __init__(self, small: Mapping[str, bytes], nameless: Mapping[int, GhostFacts]) -> None:
        self._small = small
        rows = [
            decode(_REMAPPED, body, pb.RemapFilePathEntry)
            for body in (messages(_REMAPPED, small[_REMAPPED]) if _REMAPPED in small else ())
        ]
        self._names = {row.orig_id: f"{_PREFIX}{row.remap_id:x}.img" for row in rows}
        saved = {name for name in small if name.startswith(_PREFIX)}
        if (
            any(row.remap_type != _GHOST for row in rows)
            or self._names.keys() != nameless.keys()
            or set(self._names.values()) != saved
        ):
            raise FullCommitNeeded("it has files without a name that are not followed")

    def follow(self, nameless: Mapping[int, GhostFacts]) -> dict[str, bytes]:
        """Their images, by name."""
        if nameless.keys() != self._names.keys():
            raise FullCommitNeeded("its files without a name have changed")
        return {self._names[number]: self._image(number, facts) for number, facts in nameless.items()}

    def _image(self, number: int, facts: GhostFacts) -> bytes:
        name = self._names[number]
        head, *rest = messages(name, self._small[name])
        entry = decode(name, head, pb.GhostFileEntry)
        if rest or not entry.HasField("mtim"):
            raise FullCommitNeeded(f"CRIU has saved {name}")
        entry.uid, entry.gid = facts.uid, facts.gid
        for time, (seconds, ns) in ((entry.atim, facts.accessed), (entry.mtim, facts.modified)):
            time.tv_sec, time.tv_usec = seconds, ns // 1000
        return image_like(self._small[name], [entry])
