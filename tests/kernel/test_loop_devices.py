"""A file as a block device, which is given back."""

from __future__ import annotations

import os
import time
from pathlib import Path

from relive.kernel.loop_devices import read_only_device

from .helpers import needs_root

LIMIT = 60.0  # [s]


@needs_root
def test_a_device_has_the_bytes_of_the_file_and_is_given_back() -> None:
    name = f"loop-{os.getpid()}"
    file = os.memfd_create(name)
    os.write(file, b"x" * 512 + b"y" * 512)
    with read_only_device(file) as device:
        assert device.read_bytes() == b"x" * 512 + b"y" * 512
        assert Path(f"/sys/block/{device.name}/ro").read_text() == "1\n"
        backing = Path(f"/sys/block/{device.name}/loop/backing_file")
        assert name in backing.read_text()
    os.close(file)
    deadline = time.monotonic() + LIMIT
    while name in _read(backing):  # whoever looks at new devices, such as udev, has it open for a moment
        assert time.monotonic() < deadline, "it was not given back"
        time.sleep(0.01)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
