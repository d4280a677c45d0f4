"""Kill Relive, CRIU and their helpers at random moments, and see what that does to the observed services and the store.

    python benchmarks/chaos.py [--rounds 300] [--seed N] [--slower 1] [--json]   the whole of Relive, under traffic
    python benchmarks/chaos.py --kills 1000                         the same until so many kills have hit
    python benchmarks/chaos.py --raw 2000                           CRIU alone, killed at a random moment of a dump

One service runs in a capsule behind the recording proxy, one as a plain process that ``relive commit pid:`` commits, both
without micro-commits, of which CRIU is no part. Both count requests in memory and in SQLite. A client in a process of its
own sends requests with unique ids: directly to both, and through the proxy. A round begins a commit, kills its victim in
some phase of it, and then asks: does the service (the same process) answer, is none of its threads stopped, has it lost or
doubled anything it acknowledged, does the store open, is every commit that it lists complete (each object hashed), does the
next commit succeed. Some commits are restored.

Phases, as seen in /proc at the moment of the kill: *before* CRIU holds the service, *frozen* while it does, *after* it has
let go, *idle* when no commit was under way any more. Exit status 1 when a service died, stayed stopped, or lost or doubled
a request it had acknowledged, or when a listed commit was not complete. One harm is counted and no failure: CRIU executes
code of its own in the process it holds, and a process whose CRIU is killed with SIGKILL in the midst of that may die with it
(SIGTRAP, SIGSEGV), or close a connection that it used in the midst of it ("cut off"). ``--raw`` measures how often. At the end
nothing may be left on the host: no process, mount, control group, branch or half commit.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from _chaos_harness import NAME, RECOVERY_BOUND, VICTIMS, Harness, Round
from _chaos_leaks import leaks
from _chaos_processes import until
from _chaos_raw import kill_raw


def table(rounds: list[Round]) -> Iterator[str]:
    """A line per victim and phase."""
    groups: dict[tuple[str, str], list[Round]] = defaultdict(list)
    for one in rounds:
        groups[one.victim, one.phase].append(one)
    heads = ("harmed", 8), ("with CRIU", 11), ("cut off", 9), ("longest wait", 14), ("durable", 9)
    titles = "".join(f"{title:>{width}}" for title, width in heads)
    yield f"{'killed':22}{'phase':8}{'rounds':>7}{titles}  otherwise"
    order = {name: number for number, name in enumerate(VICTIMS)}
    for (victim, phase), group in sorted(groups.items(), key=lambda item: (order[item[0][0]], item[0][1])):
        along = sum(one.died_with_criu for one in group)
        harmed = sum(one.service != "unharmed" for one in group) - along
        cut = sum(one.direct_failed for one in group)
        wait = max(one.longest_wait for one in group) * 1000
        durable = sum(one.commit == "durable" for one in group)
        others = Counter(one.commit for one in group if one.commit != "durable")
        text = ", ".join(f"{code} {number}" for code, number in others.most_common())
        yield f"{victim:22}{phase:8}{len(group):7}{harmed:8}{along:11}{cut:9}{wait:11.0f} ms{durable:9}  {text}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument(
        "--kills", type=int, default=0, help="go on until so many victims were there to be killed"
    )
    parser.add_argument("--raw", type=int, help="kill CRIU alone so often instead, without and with help")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--slower", type=float, default=1.0, help="how many times slower the clients send")
    parser.add_argument("--json", action="store_true", help="tell the outcome as one JSON object")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="relive-chaos-", dir="/var/tmp"))
    print(f"seed {options.seed}, {directory}", file=sys.stderr)
    if options.raw:
        for mends in (False, True):
            print("with the watchdog's help:" if mends else "nobody helps:")
            print("\n".join(kill_raw(options.raw, directory, options.seed, mends=mends)), flush=True)
        shutil.rmtree(directory)
        return 0
    harness = Harness(directory, options.seed, options.slower)
    began = time.monotonic()
    try:
        harness.run(options.rounds, lambda line: print(line, file=sys.stderr, flush=True), options.kills)
    finally:
        harness.close()
    # An agent whose service has ended takes a moment more for its last words.
    until(lambda: not leaks(harness.settings, NAME), RECOVERY_BOUND, 0.2)
    left = leaks(harness.settings, NAME)
    harness.problems += [f"left behind: {one}" for one in left]
    if options.json:
        rounds = [vars(one) for one in harness.rounds]
        print(
            json.dumps(
                {
                    "problems": harness.problems,
                    "restored": harness.restored,
                    "sums": dict(harness.sums(len(left))),
                    "rounds": rounds,
                },
                indent=1,
            )
        )
    else:
        print("\n".join(table(harness.rounds)))
        failed = sum(one.proxied_failed for one in harness.rounds)
        print(
            f"{len(harness.rounds)} rounds in {time.monotonic() - began:.0f} s; {len(harness.store.verified)} commits verified, "
            f"{harness.restored} restored; {failed} requests failed at clients of the proxy."
        )
        print("\n".join(f"{what:42}{number:8}" for what, number in harness.sums(len(left))))
        print("\n".join(f"PROBLEM: {problem}" for problem in harness.problems) or "No problems.")
    if not harness.problems:
        shutil.rmtree(directory)
    return 1 if harness.problems else 0


if __name__ == "__main__":
    sys.exit(main())
