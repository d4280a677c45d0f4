import pytest

from relive.kernel.wait_status import shell_status, signal_name


@pytest.mark.parametrize(("status", "shown"), [(0, 0), (3 << 8, 3), (11, 139), (6 | 0x80, 134), (9, 137)])
def test_a_wait_status_is_shown_as_a_shell_does(status, shown):
    assert shell_status(status) == shown


def test_a_signal_has_a_name_or_a_number():
    assert signal_name(11) == "SIGSEGV"
    assert signal_name(40) == "signal 40"
