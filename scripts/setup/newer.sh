#!/usr/bin/env bash
# Programs of a newer Debian that the tests drive: checkpointctl, by which they see that others can read what Relive exports, and a crun
# that was built with CRIU. Debian 12 has neither, and theirs need a newer C library; so that is fetched with them. Nothing is installed.
#
# Result: $RELIVE_TOOLS/newer/NAME, a script that starts the program with its own libraries, which are in $RELIVE_TOOLS/newer/lib.
# The tests do without: where they cannot be had, this step says so and ends well.
. "$(dirname "$0")/prelude.sh"
. "$(dirname "$0")/suite.sh"

suite=trixie
programs=(checkpointctl crun)
libraries=(libc6 libcriu2 libyajl2) # what else crun links to comes with podman
goal=$RELIVE_TOOLS/newer
log=$RELIVE_TOOLS/newer.log
key="$suite $(sha256_of "$0" "$(dirname "$0")/suite.sh")"

# without WHY: the tests that need them will be skipped.
without() {
    say "there will be no ${programs[*]}: $1"
    exit 0
}

if [[ -d $goal ]] && stamp_says newer "$key"; then
    say "${programs[*]} of Debian $suite are in place"
    exit 0
fi
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || without "this is not a Debian with apt"
mkdir -p "$RELIVE_TOOLS"
make_scratch
find_mirror "$log" || without "apt knows no Debian archive on this machine (apt-get indextargets lists none)"

say "fetching ${programs[*]} with their libraries from Debian $suite"
use_suite "$SCRATCH/apt" deb "$suite"
tree=$SCRATCH/tree made=$SCRATCH/newer
mkdir -p "$SCRATCH/packages" "$tree" "$made/lib"
run_logged "$log" "${suite_apt[@]}" update &&
    (cd "$SCRATCH/packages" && run_logged "$log" "${suite_apt[@]}" download "${programs[@]}" "${libraries[@]}") ||
    without "they could not be fetched from Debian $suite ($(grep -E '^(E|Err|W):' "$log" | head -n 1 | cut -c1-200))"
for package in "$SCRATCH"/packages/*.deb; do
    dpkg-deb -x "$package" "$tree" 2>"$log" || without "$(basename "$package") could not be unpacked ($log)"
done
loaders=("$tree"/usr/lib/*/ld-linux*.so.*)
((${#loaders[@]} == 1)) || without "the packages of Debian $suite hold something else than was expected"
cp -a "$(dirname "${loaders[0]}")"/*.so* "$made/lib"
for program in "${programs[@]}"; do
    cp "$tree/usr/bin/$program" "$made/lib" 2>"$log" || without "$program is not where it was expected ($log)"
    printf '#!/bin/sh\nlib=${0%%/*}/lib\nexec "$lib/%s" --library-path "$lib" "$lib/%s" "$@"\n' \
        "$(basename "${loaders[0]}")" "$program" >"$made/$program"
    chmod 755 "$made/$program"
    run_logged "$log" "$made/$program" --help || without "$program of Debian $suite does not run here ($log)"
done
rm -rf "$goal"
cp -a "$made" "$goal"
stamp newer "$key"
say "${programs[*]} of Debian $suite are in place"
