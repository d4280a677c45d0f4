"""How soon a large service answers in a branch: restored lazily and whole, in pairs.

    python benchmarks/lazy.py [--rounds 7] [--megabytes 450] [--json]

The service holds that much memory, every page different, and listens on a port. In each round both ways of restoring it run
once, in processes of their own that have everything loaded, as the agent or a replay has. ``answers`` is the time from the
call until the service has answered one connection inside the branch; ``returned`` until the call has come back; ``all there``
until no page is missing any more (then the branch is told to add its memory up, and the sums must be equal).
``command`` is the whole command ``relive restore``, from the start of Python until the service has answered.
"""

from __future__ import annotations

import argparse
from typing import Any

from _lab import Lab, add_options, lab, load_average, median, print_json, print_table, quartiles
from _sized_service import command, one, service

from relive.model.commit import CommitId


def measure(place: Lab, megabytes: int, rounds: int) -> dict[str, Any]:
    """All rounds."""
    with service(place, megabytes) as (running, port):
        commit = CommitId(running.commit()["id"])
        pairs = [
            (one(place, commit, port, lazily=False), one(place, commit, port, lazily=True))
            for _ in range(rounds + 1)
        ][1:]  # the first warms up
        commands = [
            (command(place, commit, port), command(place, commit, port, "--lazy"))
            for _ in range(max(3, rounds // 2))
        ]
    if len({times.sum for pair in pairs for times in pair}) != 1:
        raise SystemExit("error: the memory differs")
    rows = [_row(name, [(getattr(a, key), getattr(b, key)) for a, b in pairs]) for name, key in _COLUMNS]
    return {"megabytes": megabytes, "rows": [*rows, _row("command", commands)]}


_COLUMNS = (("answers", "answers"), ("returned", "returned"), ("all there", "complete"))


def _row(name: str, pairs: list[tuple[float, float]]) -> dict[str, Any]:
    whole, lazy = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return {
        "until it": name,
        "whole ms": median(whole),
        "whole iqr": quartiles(whole),
        "lazy ms": median(lazy),
        "lazy iqr": quartiles(lazy),
        "lazy/whole": median(b / a for a, b in pairs),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, 7)
    parser.add_argument("--megabytes", type=int, default=450, help="memory of the service (default 450)")
    options = parser.parse_args()
    with lab(options) as place:
        result = measure(place, options.megabytes, options.rounds)
    result |= {"rounds": options.rounds, "load": load_average()}
    if options.json:
        print_json(result)
    else:
        title = (
            f"A service of {options.megabytes} MB, medians of {options.rounds} pairs (load {result['load']})"
        )
        print_table(title, result["rows"])


if __name__ == "__main__":
    main()
