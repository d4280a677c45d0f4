"""Rights of restored processes: what of them a commit says, and a branch does not give.

- Capabilities with which root leaves a sandbox or harms its host (``kernel.capabilities``).
- Priority over processes of the host: real-time scheduling, a negative nice value, a place behind them when memory runs out.
  A branch is a copy; the services of this host come first.
- Control groups, by path: processes are born in those of the branch.
- Labels and policies of security modules (AppArmor, SELinux), which CRIU would load into the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence
from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries, read_inventory, write_entries, write_inventory
from relive.images.validation import threads_of, untrusted
from relive.kernel.capabilities import WITHHELD

__all__ = ["forget_security_modules", "limit_rights"]

_SETS = ("cap_inh", "cap_prm", "cap_eff", "cap_bnd", "cap_amb")
_WORD_BITS = 32
_DEAD = 2  # TASK_DEAD of CRIU: a process that nobody has waited for
_SCHED_OTHER, _SCHED_BATCH, _SCHED_IDLE = 0, 3, 5
_NO_MODULE = 0  # LSMTYPE__NO_LSM of CRIU


def limit_rights(images: Path, processes: Iterable[pb.PstreeEntry]) -> None:
    """Take them from every thread of a commit laid out in ``images``.

    Raises:
        ObjectCorrupt: an image is damaged, or does not say which rights a thread has: CRIU would leave it its own.
    """
    for process in processes:
        for thread in threads_of(process):
            path = images / f"core-{thread}.img"
            if path.exists():
                entries = read_entries(path, pb.CoreEntry)
                # All of them, not only up to the first.
                limited = [_limit(path.name, entry) for entry in entries]
                if any(limited):
                    write_entries(path, entries)


def _limit(name: str, entry: pb.CoreEntry) -> bool:
    if entry.HasField("tc") and entry.tc.task_state == _DEAD:
        return _limit_task(entry.tc)
    if not entry.HasField("thread_core") or not entry.thread_core.HasField("creds"):
        raise untrusted(f"does not say which rights a thread has ({name})", "every dump does")
    changed = [_limit_thread(entry.thread_core), _limit_credentials(entry.thread_core.creds)]
    if entry.HasField("tc"):
        changed.append(_limit_task(entry.tc))
    return any(changed)


def _limit_credentials(creds: pb.CredsEntry) -> bool:
    changed = False
    for name in _SETS:
        words: MutableSequence[int] = getattr(creds, name)
        for bit in WITHHELD.values():
            index, mask = bit // _WORD_BITS, 1 << bit % _WORD_BITS
            if index < len(words) and words[index] & mask:
                words[index] &= ~mask
                changed = True
    for label in ("lsm_profile", "lsm_sockcreate"):
        if creds.HasField(label):
            creds.ClearField(label)
            changed = True
    return changed


def _limit_thread(thread: pb.ThreadCoreEntry) -> bool:
    changed = False
    if thread.sched_policy not in (_SCHED_OTHER, _SCHED_BATCH, _SCHED_IDLE):
        thread.sched_policy = _SCHED_OTHER
        thread.ClearField("sched_prio")
        changed = True
    if thread.sched_nice < 0:
        thread.sched_nice = 0
        changed = True
    if thread.HasField("cg_set"):
        thread.ClearField("cg_set")
        changed = True
    return changed


def _limit_task(task: pb.TaskCoreEntry) -> bool:
    changed = task.HasField("cg_set")
    task.ClearField("cg_set")
    if task.oom_score_adj < 0:
        task.oom_score_adj = 0
        changed = True
    return changed


def forget_security_modules(images: Path) -> None:
    """Have CRIU set no labels and load no policies; raises ObjectCorrupt where the inventory is damaged."""
    (images / "apparmor.img").unlink(missing_ok=True)
    inventory = read_inventory(images)
    if inventory.lsmtype != _NO_MODULE:
        inventory.lsmtype = _NO_MODULE
        write_inventory(images, inventory)
