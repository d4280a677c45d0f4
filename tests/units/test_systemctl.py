"""Names of units; what systemd itself is asked is in tests/real/test_systemd.py."""

from __future__ import annotations

import pytest

from relive.errors import UsageError
from relive.units.systemctl import Loaded, unit_name


def test_a_services_name_may_lack_its_end():
    assert unit_name("shop") == "shop.service"
    assert unit_name("shop@1.service") == "shop@1.service"


@pytest.mark.parametrize("text", ["shop@", "a/b", "../x", "--now", "a\nb"])
def test_what_is_no_service_is_refused(text):
    with pytest.raises(UsageError):
        unit_name(text)


def test_files_are_the_units_and_its_drop_ins():
    loaded = Loaded(FragmentPath="/a/x.service", DropInPaths="/a/x.service.d/1.conf /b/2.conf")
    assert [str(path) for path in loaded.files] == ["/a/x.service", "/a/x.service.d/1.conf", "/b/2.conf"]
