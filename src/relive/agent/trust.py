"""What makes a service trust the authority of its capsule, beside those whom its environment or the system names.

A copy of each bundle of roots that the service would read, with the authority's certificate at its end, is laid into the
capsule, and the variables that programs know are set to it. A bundle that a variable of the user's names is copied too, so the
service trusts whom it trusted, and the authority. The system's bundles are extended where they are: the capsule's file system
is its own. All of it belongs to commits as other files do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Bundle", "lay_bundles", "plan_bundles"]

_DIRECTORY = Path("/etc/relive/trust")
_SYSTEM = (  # Debian, Fedora, SUSE, Alpine
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
    Path("/etc/ssl/ca-bundle.pem"),
    Path("/etc/ssl/cert.pem"),
)
_WHOLE = (  # name a file that holds all roots
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "AWS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "HTTPLIB2_CA_CERTS",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
)
_FURTHER = ("NODE_EXTRA_CA_CERTS", "DENO_CERT")  # name a file that holds roots beside the program's own


@dataclass(frozen=True, slots=True)
class Bundle:
    """A file in the capsule: ``source``, if there is one, and the authority's certificate."""

    path: Path
    source: Path | None


def plan_bundles(environment: Mapping[str, str]) -> tuple[list[Bundle], dict[str, str]]:
    """Which files to lay down, and the variables that name them, for a service with this environment."""
    system = next((path for path in _SYSTEM if path.is_file()), None)
    bundles: dict[Path | None, Bundle] = {}
    variables: dict[str, str] = {}
    for name in (*_WHOLE, *_FURTHER):
        source = system if name in _WHOLE else None
        if environment.get(name):
            source = Path(environment[name])
            if not source.is_file():
                continue  # a directory, perhaps: the user's affair
        elif name in _WHOLE and source is None:
            continue  # the program's own roots are better than none
        if source not in bundles:
            bundles[source] = Bundle(_DIRECTORY / f"roots-{len(bundles)}.pem", source)
        variables[name] = str(bundles[source].path)
    return list(bundles.values()), variables


def lay_bundles(bundles: list[Bundle], certificate: bytes) -> None:
    """Write the files. Called in the capsule's own file system.

    Raises:
        OSError: they cannot be written.
    """
    for directory in (_DIRECTORY.parent, _DIRECTORY):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)  # whatever the umask is
    for bundle in bundles:
        roots = bundle.source.read_bytes() if bundle.source is not None else b""
        bundle.path.write_bytes(_joined(roots, certificate))
        bundle.path.chmod(0o644)
    for path in _SYSTEM:
        if path.is_file():
            path.write_bytes(_joined(path.read_bytes(), certificate))


def _joined(roots: bytes, certificate: bytes) -> bytes:
    if roots and not roots.endswith(b"\n"):
        roots += b"\n"
    return roots + certificate
