"""Decisions about signals, on made-up siginfo bytes and status texts."""

from __future__ import annotations

import signal
import struct

import pytest

from relive.signals.signals import (
    CRASH_SIGNALS,
    Dispositions,
    SignalInfo,
    code_name,
    comes_back,
    is_crash,
    signal_name,
)

SEGV = SignalInfo(signal.SIGSEGV, 1, 0, None)
SENT = SignalInfo(signal.SIGSEGV, 0, None, 4711)
ABORT = SignalInfo(signal.SIGABRT, -6, None, 4711)
PROTECTION = SignalInfo(signal.SIGSEGV, 0x80, None, None)


def status(*, blocked: int = 0, ignored: int = 0, caught: int = 0, numbers: str = "4711\t12") -> str:
    def mask(number: int) -> str:
        return f"{1 << (number - 1) if number else 0:016x}"

    return (
        f"Name:\ta:b\nTgid:\t4711\nNgid:\t0\nPid:\t4712\nNStgid:\t{numbers}\nNSpid:\t{numbers}\n"
        f"SigPnd:\t{mask(0)}\nShdPnd:\t{mask(0)}\n"
        f"SigBlk:\t{mask(blocked)}\nSigIgn:\t{mask(ignored)}\nSigCgt:\t{mask(caught)}\n"
    )


def siginfo(number: int, code: int, rest: bytes) -> bytes:
    return struct.pack("=iii4x", number, 0, code) + rest.ljust(112, b"\0")


def test_a_fault_has_an_address_and_no_sender() -> None:
    info = SignalInfo.decode(siginfo(11, 2, struct.pack("=Q", 0xDEAD0000BEEF)))
    assert info == SignalInfo(11, 2, 0xDEAD0000BEEF, None)
    assert (info.name, info.code_name) == ("SIGSEGV", "SEGV_ACCERR")


def test_a_sent_signal_has_a_sender_and_no_address() -> None:
    info = SignalInfo.decode(siginfo(6, -6, struct.pack("=ii", 4711, 1000)))
    assert info == SignalInfo(6, -6, None, 4711)
    assert (info.name, info.code_name) == ("SIGABRT", "SI_TKILL")


def test_a_protection_fault_has_neither() -> None:
    """The kernel leaves both fields empty, and 0 would read as a null pointer."""
    assert SignalInfo.decode(siginfo(11, 0x80, b"")) == PROTECTION


@pytest.mark.parametrize("length", [0, 1, 15, 23])
def test_cut_bytes_are_refused(length: int) -> None:
    with pytest.raises(ValueError, match=str(length)):
        SignalInfo.decode(bytes(length))


def test_names() -> None:
    assert signal_name(34) == "SIGRTMIN"
    assert signal_name(36) == "SIGRTMIN+2"
    assert signal_name(99) == "signal 99"
    assert code_name(11, 0) == "SI_USER"
    assert code_name(7, 4) == "BUS_MCEERR_AR"
    assert code_name(11, 77) == "code 77"
    assert code_name(11, -77) == "code -77"


def test_dispositions() -> None:
    task = Dispositions.parse(status(blocked=2, ignored=13, caught=11))
    assert task.process == 4711
    assert [number for number in range(1, 65) if task.blocks(number)] == [2]
    assert [number for number in range(1, 65) if task.ignores(number)] == [13]
    assert [number for number in range(1, 65) if task.catches(number)] == [11]
    assert not task.namespace_init
    assert Dispositions.parse(status(numbers="4711\t1")).namespace_init


def test_a_cut_status_is_refused() -> None:
    with pytest.raises(ValueError, match="SigCgt"):
        Dispositions.parse(status().partition("SigCgt")[0])


@pytest.mark.parametrize("number", sorted(CRASH_SIGNALS))
def test_a_handler_or_ignoring_makes_it_no_crash(number: int) -> None:
    info = SignalInfo(number, 0, None, 1)
    assert is_crash(info, Dispositions.parse(status()))
    assert not is_crash(info, Dispositions.parse(status(caught=number)))
    assert not is_crash(info, Dispositions.parse(status(ignored=number)))


@pytest.mark.parametrize(
    "name", ["TERM", "INT", "HUP", "QUIT", "KILL", "PIPE", "ALRM", "USR1", "STOP", "CHLD"]
)
def test_what_somebody_asked_for_is_no_crash(name: str) -> None:
    assert not is_crash(SignalInfo(signal.Signals[f"SIG{name}"], 0, None, 1), Dispositions.parse(status()))


def test_process_1_of_a_namespace_dies_only_of_what_the_kernel_raised() -> None:
    init = Dispositions.parse(status(numbers="4711\t1"))
    assert is_crash(SEGV, init)
    assert is_crash(PROTECTION, init)
    assert not is_crash(SENT, init)
    assert not is_crash(ABORT, init)
    assert not is_crash(SignalInfo(signal.SIGXCPU, 0x80, None, None), init)


@pytest.mark.parametrize(
    ("number", "code", "expected"),
    [
        (signal.SIGSEGV, 1, True),
        (signal.SIGSEGV, 2, True),
        (signal.SIGBUS, 2, True),
        (signal.SIGBUS, 4, True),
        (signal.SIGFPE, 1, True),
        (signal.SIGILL, 2, True),
        (signal.SIGSEGV, 0x80, False),
        (signal.SIGSEGV, 0, False),
        (signal.SIGSEGV, -6, False),
        (signal.SIGBUS, 5, False),
        (signal.SIGTRAP, 0x80, False),
        (signal.SIGTRAP, 1, False),
        (signal.SIGSYS, 1, False),
        (signal.SIGABRT, -6, False),
        (signal.SIGXCPU, 0x80, False),
        (signal.SIGXFSZ, 0, False),
    ],
)
def test_what_comes_back_by_itself(number: int, code: int, expected: bool) -> None:
    """All else has to be sent again."""
    assert comes_back(SignalInfo(number, code, None, None)) is expected


def test_a_protection_fault_of_process_1_must_come_back() -> None:
    """The kernel would drop it if it were sent."""
    assert comes_back(PROTECTION, namespace_init=True)
