"""Namespaces that a commit's processes shared with others outside, as CRIU's images tell of them."""

from __future__ import annotations

import struct
from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.images.image_file import decode, read_entries, write_entries
from relive.kernel.atomic_write import Durability, replace_file

__all__ = ["forget_devices", "forget_network_lock", "networks_from_outside", "unsupported_namespace"]

_DEVICES = ("netdev", "ifaddr", "route", "route6", "rule", "iptables", "ip6tables", "nftables")
_OWN_KEY = "relive-network"
_INVENTORY_MAGIC = 0x58313116
_INVENTORY_HEAD = struct.Struct("<II")  # its only magic number, the length of its only message
_NETNS_HEAD = struct.pack("<II", 0x54564319, 0x55933752)  # of netns.img
_LOCK_SKIPPED = 2  # NETWORK_LOCK_SKIP of CRIU


def networks_from_outside(images: Path) -> list[str]:
    """Have CRIU take every network namespace of the images from outside; returns what it calls them, to be given to it.

    One that it had saved itself, with devices and addresses, is not made again: a branch's network is made for it. So is one
    that it was told to take for empty (as runc does where a container has no network), and of which there is no image.

    Raises:
        ObjectCorrupt: an image is damaged.
    """
    keys = set()
    known = set(images.glob("netns-*.img"))
    for number in _own_networks(images):
        path = images / f"netns-{number}.img"
        if path not in known:
            path.write_bytes(_NETNS_HEAD)
            known.add(path)
    for path in sorted(known):
        entries = read_entries(path, pb.NetnsEntry) or [pb.NetnsEntry()]
        for entry in entries:
            if not entry.ext_key:
                entry.ext_key = _OWN_KEY
            keys.add(entry.ext_key)
        write_entries(path, entries)
    return sorted(keys)


def forget_devices(images: Path) -> None:
    """Remove what CRIU had saved of network namespaces of the target's own: it would make them anew with the branch's programs."""
    for path in images.glob("netns-*.img"):
        for kind in _DEVICES:
            (images / path.name.replace("netns", kind, 1)).unlink(missing_ok=True)


def _own_networks(images: Path) -> set[int]:
    """Numbers of the network namespaces that are not the one in which CRIU was."""
    outer = _inventory(images).root_ids.net_ns_id
    inner = {
        entry.net_ns_id
        for path in images.glob("ids-*.img")
        for entry in read_entries(path, pb.TaskKobjIdsEntry)
    }
    return inner - {outer, 0}


def _inventory(images: Path) -> pb.InventoryEntry:
    path = images / "inventory.img"
    return decode(path.name, path.read_bytes()[_INVENTORY_HEAD.size :], pb.InventoryEntry)


def forget_network_lock(images: Path) -> None:
    """Have CRIU not look for the firewall rules by which it had locked the network at the dump: a branch never had any.

    Raises:
        ObjectCorrupt: an image is damaged.
    """
    path, entry = images / "inventory.img", _inventory(images)
    entry.network_lock_method = _LOCK_SKIPPED
    body = entry.SerializeToString()
    # A new file, since the old one may be shared with the store by a hard link.
    data = _INVENTORY_HEAD.pack(_INVENTORY_MAGIC, len(body)) + body
    replace_file(path, data, durability=Durability.NONE)


def unsupported_namespace(images: Path) -> str | None:
    """A namespace of the container that a branch cannot have, in words; None where there is none."""
    if any(images.glob("userns-*.img")):
        return "it has users of its own (a user namespace)"
    if any(images.glob("pidns-*.img")):
        return "it shared the processes of another container (a PID namespace)"
    return None
