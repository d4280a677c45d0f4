"""Where a commit may lay files."""

from __future__ import annotations

import pytest

from relive.errors import ObjectCorrupt
from relive.model.commit import LayerKind
from relive.sandbox.mount_points import check_point

HOMES = ["/var/lib/relive"]


@pytest.mark.parametrize(
    ("point", "kind"),
    [
        ("/", LayerKind.OVERLAY),
        ("/srv/data", LayerKind.OVERLAY),
        ("/run", LayerKind.TMPFS),
        ("/dev/shm", LayerKind.TMPFS),
    ],
)
def test_where_the_files_of_a_service_lie_they_may(point: str, kind: LayerKind) -> None:
    check_point(point, kind, HOMES)


@pytest.mark.parametrize(
    "point", ["", "srv", "/srv/", "/srv/../etc", "//srv", "/s\0", "/proc/1", "/sys", "/dev", "/run/x"]
)
@pytest.mark.parametrize("kind", [LayerKind.OVERLAY, LayerKind.TMPFS])
def test_elsewhere_they_may_not(point: str, kind: LayerKind) -> None:
    with pytest.raises(ObjectCorrupt):
        check_point(point, kind, HOMES)


def test_nor_over_relive_s_own() -> None:
    with pytest.raises(ObjectCorrupt, match="has files at"):
        check_point("/var/lib/relive/store", LayerKind.OVERLAY, HOMES)
