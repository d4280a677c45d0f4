"""What a container must be created with so that its Python processes have the recorder: two mounts and two variables.

Options for the engine's own ``run`` or ``create`` rather than a command that wraps it: the user's own words (``--name``, compose
files, units of systemd) stay the user's, nothing of them needs to be understood, and Docker takes the same. The variables come by a
file, so that the options are words without blanks and quotes, which ``$(...)`` hands on unharmed.
"""

from __future__ import annotations

from pathlib import Path

from relive.agent.capsule.injection import with_recorder
from relive.config import Settings
from relive.errors import HostIncapable, ReliveError, UsageError
from relive.sandbox.rootfs import INPROCESS_DIRECTORY, INPROCESS_FILES, RINGS_DIRECTORY
from relive.watching.engine import Engine
from relive.watching.rings import make_place, remove_place

__all__ = ["creation_options"]

_OURS = ("PYTHONPATH", "RELIVE_RECORDER")


def creation_options(settings: Settings, engine: Engine, image: str) -> list[str]:
    """The options, for one container of the image.

    Raises:
        TargetUnknown: the engine does not have the image; its own PYTHONPATH has to be kept.
        HostIncapable: there is no place for the rings.
        UsageError: a path holds what no option of an engine can.
    """
    environment = with_recorder(engine.image_environment(image), settings)
    place = make_place(settings)
    try:
        variables = _variables(place, environment)
        mounts = [(place, RINGS_DIRECTORY, ""), (INPROCESS_FILES, INPROCESS_DIRECTORY, ":ro")]
        for source in (*(one for one, _, _ in mounts), variables):
            _refuse_odd(source)
        volumes = [f"--volume={source}:{target}{mode}" for source, target, mode in mounts]
        return [*volumes, f"--env-file={variables}"]
    except ReliveError:
        remove_place(settings, place)
        raise


def _variables(place: Path, environment: dict[str, str]) -> Path:
    """A file for ``--env-file``, beside the place: the container is not to read or change it."""
    path = place.with_suffix(".env")
    lines = [f"{name}={environment[name]}" for name in _OURS]
    if any("\n" in line for line in lines):
        raise UsageError("PYTHONPATH of the image holds a line break", remedy="build the image without")
    try:
        path.write_text("".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise HostIncapable(f"{path} cannot be written", cause=error.strerror) from error
    return path


def _refuse_odd(path: Path) -> None:
    text = str(path)
    if any(character in text for character in ":, \t\n'\"*?[$\\"):
        raise UsageError(
            f"the path {text!r} cannot be an option of podman",
            cause="it holds a blank, a quote, a colon, a comma or a character that a shell reads as a pattern",
            remedy="set RELIVE_HOME to a plain path; and install Relive at one",
        )
