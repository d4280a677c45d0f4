"""Whom a service trusts besides the authority of its capsule: whom it trusted before."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.agent.capsule import ca_bundles as tested
from relive.agent.capsule.ca_bundles import TRUST_DIRECTORY, Bundle, lay_bundles, plan_bundles, trusted_paths


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bundle of this system's roots, at the second of the places that are looked at."""
    made = tmp_path / "roots.crt"
    made.write_bytes(b"roots of the system")
    monkeypatch.setattr(tested, "_SYSTEM", (tmp_path / "none.crt", made))
    return made


def test_each_variable_that_programs_know_names_a_bundle(system: Path) -> None:
    bundles, variables = plan_bundles({})
    whole, further = TRUST_DIRECTORY / "roots-0.pem", TRUST_DIRECTORY / "roots-1.pem"
    assert bundles == [Bundle(whole, system), Bundle(further, None)]
    assert variables["SSL_CERT_FILE"] == variables["REQUESTS_CA_BUNDLE"] == str(whole)
    assert variables["NODE_EXTRA_CA_CERTS"] == str(further)  # beside Node's own roots


def test_a_bundle_of_the_users_goes_on_to_be_trusted(system: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.pem"
    own.write_bytes(b"own roots")
    bundles, variables = plan_bundles({"CURL_CA_BUNDLE": str(own), "NODE_EXTRA_CA_CERTS": str(own)})
    by_path = {str(bundle.path): bundle.source for bundle in bundles}
    assert by_path[variables["CURL_CA_BUNDLE"]] == by_path[variables["NODE_EXTRA_CA_CERTS"]] == own
    assert by_path[variables["SSL_CERT_FILE"]] == system
    assert len(bundles) == 3


def test_what_names_no_file_is_left_to_the_user(system: Path, tmp_path: Path) -> None:
    _, variables = plan_bundles({"SSL_CERT_FILE": str(tmp_path)})
    assert "SSL_CERT_FILE" not in variables and "PIP_CERT" in variables


def test_without_roots_of_the_system_the_programs_own_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "_SYSTEM", ())
    _, variables = plan_bundles({})
    assert sorted(variables) == ["DENO_CERT", "NODE_EXTRA_CA_CERTS"]


def test_the_certificate_stands_on_a_line_of_its_own(
    system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below another root than the host's, where the system's bundle is written in its place."""
    root, laid = tmp_path / "root", tmp_path / "laid"
    inside = root / system.relative_to("/")
    inside.parent.mkdir(parents=True)
    mounted: list[tuple[Path, Path]] = []
    monkeypatch.setattr(tested, "bind", lambda source, target: mounted.append((source, target)))
    bundles, _ = plan_bundles({})
    lay_bundles(bundles, b"authority\n", laid, root)
    assert (laid / "roots-0.pem").read_bytes() == b"roots of the system\nauthority\n"
    assert (laid / "roots-1.pem").read_bytes() == b"authority\n"
    assert inside.read_bytes() == b"roots of the system\nauthority\n"
    assert system.read_bytes() == b"roots of the system"
    assert mounted == [(laid, root / TRUST_DIRECTORY.relative_to("/"))]
    assert trusted_paths(laid) == [
        str(TRUST_DIRECTORY / "roots-0.pem"),
        str(TRUST_DIRECTORY / "roots-1.pem"),
        str(system),
    ]
    assert trusted_paths(tmp_path / "none") == []
