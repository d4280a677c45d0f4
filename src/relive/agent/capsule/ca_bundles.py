"""What makes a service trust the authority of its capsule, beside those whom its environment or the system names.

A copy of each bundle of roots that the service would read, with the authority's certificate at its end, is laid into a
directory that appears in the capsule, and the variables that programs know are set to it. A bundle that a variable of the user's
names is copied too, so the service trusts whom it trusted, and the authority. Over the system's bundles, extended copies are
mounted, in the capsule alone; where its root is an overlay, they are written in place. All of it belongs to commits as other
files do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from relive.kernel.mounts import bind
from relive.model.capsule import RUN_DIRECTORY

__all__ = ["TRUST_DIRECTORY", "Bundle", "lay_bundles", "plan_bundles", "trusted_paths"]

TRUST_DIRECTORY = RUN_DIRECTORY / "trust"
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
            bundles[source] = Bundle(TRUST_DIRECTORY / f"roots-{len(bundles)}.pem", source)
        variables[name] = str(bundles[source].path)
    return list(bundles.values()), variables


def lay_bundles(bundles: list[Bundle], certificate: bytes, directory: Path, root: Path) -> None:
    """Write the files, and mount them. Called in the capsule's own mount namespace.

    Args:
        directory: where they are written; it appears at ``TRUST_DIRECTORY``.
        root: what will be the root; "/" where it is the host's, whose own files must not be written to.

    Raises:
        OSError: they cannot be written or mounted.
    """
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)  # whatever the umask is
    for bundle in bundles:
        roots = bundle.source.read_bytes() if bundle.source is not None else b""
        _write(directory / bundle.path.name, _joined(roots, certificate))
    for number, path in enumerate(_system_bundles()):
        extended = _joined(path.read_bytes(), certificate)
        if root != Path("/"):
            (root / path.relative_to("/")).write_bytes(extended)
            continue
        _write(directory / f"system-{number}.pem", extended)
        bind(directory / f"system-{number}.pem", path)
    seen = root / TRUST_DIRECTORY.relative_to("/")
    seen.mkdir(parents=True, exist_ok=True)
    bind(directory, seen)


def trusted_paths(directory: Path) -> list[str]:
    """What ``lay_bundles`` made appear, by the paths at which the service sees it; ``directory`` as there."""
    laid = [str(TRUST_DIRECTORY / path.name) for path in sorted(directory.glob("*.pem"))]
    return laid + [str(path) for path in _system_bundles()] if laid else []


def _system_bundles() -> list[Path]:
    """Without links: what is mounted over is what they lead to."""
    return sorted({path.resolve() for path in _SYSTEM if path.is_file()})


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o644)


def _joined(roots: bytes, certificate: bytes) -> bytes:
    if roots and not roots.endswith(b"\n"):
        roots += b"\n"
    return roots + certificate
