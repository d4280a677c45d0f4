import pytest

from relive.images import criu_images_pb2 as pb
from relive.inspection.system_calls import call_number, call_text

MINUS_ONE, INTERRUPTED, AGAIN = (1 << 64) - 1, (1 << 64) - 4, (1 << 64) - 11


@pytest.mark.parametrize(
    ("number", "ax", "text"),
    [
        (232, 232, "epoll_wait(5)"),  # set back, so that it is made again
        (202, INTERRUPTED, "futex(0x5)"),
        (999, 999, "system call 999()"),
        (MINUS_ONE, 0, None),
        (0, 17, None),  # a read that was done
        (0, AGAIN, None),
    ],
)
def test_the_call_that_a_thread_was_in(number, ax, text):
    registers = pb.UserX86RegsEntry(ip=1, sp=2, orig_ax=number, ax=ax, di=5, si=6)
    assert call_text(registers) == text
    assert (call_number(registers) is None) == (text is None)
