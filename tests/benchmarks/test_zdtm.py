"""``benchmarks/zdtm.py``: which of CRIU's programs it takes, and one of them in each way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
_SAYS = """
import json, sys
from pathlib import Path
sys.path.insert(0, {benchmarks!r})
import zdtm
print(json.dumps(sorted(zdtm.programs(Path({tree!r})))))
"""


def _program(tree: Path, name: str, about: str = "") -> None:
    place = tree / name
    place.parent.mkdir(exist_ok=True)
    place.with_suffix(".c").touch()
    place.touch()
    place.chmod(0o755)
    if about:
        place.with_suffix(".desc").write_text(about)


def test_programs_of_namespaces_of_other_processors_and_of_the_hosts_administration_are_left_out(
    tmp_path: Path,
) -> None:
    _program(tmp_path, "static/env00")
    _program(tmp_path, "static/pipe00", "{'flavor': 'h ns', 'opts': '--x' if 1 else ''}")
    _program(tmp_path, "transition/fork", "{'flags': 'suid'}")
    _program(tmp_path, "static/netns00", "{'flavor': 'ns uns'}")
    _program(tmp_path, "static/fails", "{'flags': 'crfail'}")
    _program(tmp_path, "static/high", "{'arch': 's390x'}")
    _program(tmp_path, "static/cgroup00")
    (tmp_path / "static" / "unbuilt.c").touch()
    says = _SAYS.format(benchmarks=str(BENCHMARKS), tree=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", says], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["static/env00", "static/pipe00", "transition/fork"]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_program_comes_back_in_each_way_and_what_is_kept_is_not_run_again(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    options = ["--only", "static/env00,static/pty00", "--keep", str(kept), "--json"]
    command = [sys.executable, str(BENCHMARKS / "zdtm.py"), *options]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert [row["passed"] for row in told["rows"]] == [2, 2, 2], told
    assert len(kept.read_text().splitlines()) == 6
