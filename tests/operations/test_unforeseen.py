"""What nobody expected is an error with a code and a place; what the exception says is told only where it may be."""

from __future__ import annotations

from relive.errors import PermissionMissing, ReliveError
from relive.operations.unforeseen import unforeseen


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_a_defect_has_no_status_of_a_verdict_and_says_where_it_is():
    error = unforeseen(raised(KeyError("two\nlines")))
    assert type(error) is ReliveError and (error.code, error.exit_status) == ("error", 70)
    assert error.message == "KeyError: 'two\\nlines'"
    assert error.cause is not None and error.cause.startswith("a defect of Relive, at test_unforeseen.py:")


def test_what_it_says_is_left_out_where_others_read_it():
    error = unforeseen(raised(ValueError("hunter2")), has_text=False)
    assert error.message == "ValueError" and "hunter2" not in str(error.as_json())


def test_a_right_that_is_missing_is_no_defect_but_for_root(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    error = unforeseen(raised(PermissionError(13, "Permission denied", "/var/x")))
    assert isinstance(error, PermissionMissing)
    assert (error.message, error.cause) == ("/var/x may not be used", "Permission denied")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert unforeseen(raised(PermissionError(13, "Permission denied", "/var/x"))).code == "error"
