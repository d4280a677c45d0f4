#!/usr/bin/env bash
# checkpointctl, by which the tests see that others can read what Relive exports. Debian 12 does not have it, and the one of a newer
# suite needs a newer C library; so both are fetched and put side by side.
#
# Result: $RELIVE_TOOLS/checkpointctl, a script that starts the program with its own library in $RELIVE_TOOLS/checkpointctl.d.
# The tests do without it: where it cannot be had, this step says so and ends well.
. "$(dirname "$0")/prelude.sh"
. "$(dirname "$0")/suite.sh"

suite=trixie
goal=$RELIVE_TOOLS/checkpointctl
log=$RELIVE_TOOLS/checkpointctl.log
key="$suite $(sha256_of "$0" "$(dirname "$0")/suite.sh")"

# without WHY: the tests that need it will be skipped.
without() {
    say "there will be no checkpointctl: $1"
    exit 0
}

if command -v checkpointctl >/dev/null || { [[ -x $goal ]] && stamp_says checkpointctl "$key"; }; then
    say "checkpointctl is in place"
    exit 0
fi
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || without "this is not a Debian with apt"
mkdir -p "$RELIVE_TOOLS"
make_scratch
find_mirror "$log" || without "apt knows no Debian archive on this machine (apt-get indextargets lists none)"

say "fetching checkpointctl and its C library from Debian $suite"
use_suite "$SCRATCH/apt" deb "$suite"
mkdir "$SCRATCH/packages" "$SCRATCH/tree"
run_logged "$log" "${suite_apt[@]}" update &&
    (cd "$SCRATCH/packages" && run_logged "$log" "${suite_apt[@]}" download checkpointctl libc6) ||
    without "it could not be fetched from Debian $suite ($(grep -E '^(E|Err|W):' "$log" | head -n 1 | cut -c1-200))"
for package in "$SCRATCH"/packages/*.deb; do
    dpkg-deb -x "$package" "$SCRATCH/tree" 2>"$log" || without "$(basename "$package") could not be unpacked ($log)"
done
loaders=("$SCRATCH"/tree/usr/lib/*/ld-linux*.so.*)
[[ -x $SCRATCH/tree/usr/bin/checkpointctl && ${#loaders[@]} == 1 ]] ||
    without "the packages of Debian $suite hold something else than was expected"

rm -rf "$goal" "$goal.d"
mkdir "$goal.d"
cp "$SCRATCH/tree/usr/bin/checkpointctl" "${loaders[0]}" "$(dirname "${loaders[0]}")"/libc.so.* "$goal.d"
printf '#!/bin/sh\nd=$0.d\nexec "$d/%s" --library-path "$d" "$d/checkpointctl" "$@"\n' "$(basename "${loaders[0]}")" >"$goal.new"
chmod 755 "$goal.new"
mv "$goal.new" "$goal"
run_logged "$log" "$goal" --help || { rm "$goal"; without "that of Debian $suite does not run here ($log)"; }
stamp checkpointctl "$key"
say "checkpointctl of Debian $suite is in place"
