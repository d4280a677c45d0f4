"""``relive verify``: whether commits can be given back."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.errors import StoreError
from relive.maintenance.problems import Problem
from relive.model.quantities import size
from relive.operations.storage import VerifyParams
from relive.operations.storage import verify as check

__all__ = ["problem_rows", "verify"]

_SHOWN = 4  # commits named in a line; --json names all


@from_params(VerifyParams, arguments=("refs",))
def verify(params: VerifyParams, as_json: AsJson = False) -> None:
    """Check signatures, hashes, and that all is there that commits need

    Names what is missing or damaged and the commits that cannot be given back because of it. The exit status is 0 when
    nothing is wrong, otherwise 7. Commits may be taken and dropped meanwhile. `relive repair` fetches what is named from
    another store.
    """
    terminal = Terminal(as_json=as_json)
    report = check(load_settings(), params, terminal)
    if as_json:
        terminal.answer(report)
    elif report.problems:
        terminal.table(
            report.problems, ["what", "name", "problem", "commits"], problem_rows(report.problems), ""
        )
    read = f", {size(report.bytes_read)} read" if params.data else ""
    terminal.status(
        f"Checked {report.commits} commits, {report.packs} packs, {report.objects} files{read}: "
        + (
            f"{len(report.problems)} problems, {len(report.spoiled)} commits spoiled."
            if report.problems
            else "all is well."
        )
    )
    if report.problems:
        terminal.hint(
            "relive repair --from STORE fetches what is damaged or missing from another store that has it"
        )
    raise typer.Exit(StoreError.exit_status if report.problems else 0)


def problem_rows(problems: Sequence[Problem]) -> list[list[str]]:
    """Lines of a table: what, name, problem, commits."""
    rows = []
    for one in problems:
        names = [commit[:10] for commit in one.commits[:_SHOWN]]
        if len(one.commits) > _SHOWN:
            names.append(f"and {len(one.commits) - _SHOWN} more")
        rows.append([one.kind.value, one.name[:12], f"{one.message} ({one.code})", ", ".join(names)])
    return rows
