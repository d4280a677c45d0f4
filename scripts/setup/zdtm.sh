#!/usr/bin/env bash
# CRIU's own regression programs (test/zdtm), built from the source of the CRIU that `make setup` builds. Only benchmarks/zdtm.py wants
# them, which runs this step.
#
# Result: $RELIVE_TOOLS/zdtm with static/, transition/ and lib/ as in CRIU's tree.
. "$(dirname "$0")/prelude.sh"
. "$(dirname "$0")/suite.sh"

suites=${RELIVE_CRIU_SUITE:-sid trixie}
goal=$RELIVE_TOOLS/zdtm
log=$RELIVE_TOOLS/zdtm-build.log
key="$suites $(sha256_of "$0" "$(dirname "$0")/suite.sh")"
if [[ -x $goal/static/env00 ]] && stamp_says zdtm "$key"; then
    say "CRIU's regression programs are in place"
    exit 0
fi
mkdir -p "$RELIVE_TOOLS"
make_scratch
find_mirror "$log" || fail "CRIU's source cannot be fetched" "apt knows no Debian archive on this machine." \
    "Run apt-get update with a Debian archive in /etc/apt/sources.list.d."
for suite in $suites; do
    say "fetching CRIU's source from Debian $suite"
    folder=$SCRATCH/$suite
    mkdir -p "$folder/source"
    use_suite "$folder/apt" deb-src "$suite"
    if run_logged "$log" "${suite_apt[@]}" update &&
        (cd "$folder/source" && run_logged "$log" "${suite_apt[@]}" source --tar-only criu); then
        break
    fi
done
tarballs=("$folder"/source/criu_*.orig.tar.*)
((${#tarballs[@]} == 1)) || fail "CRIU's source could not be fetched" "$(tail_of "$log")" "Look at $log."
tar -xf "${tarballs[0]}" -C "$folder/source"
trees=("$folder"/source/criu-*/)
say "building the regression programs (two minutes)"
# Some need headers that set-up does not install; they are left out.
run_logged "$log" env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u CFLAGS -u LDFLAGS make -k -C "${trees[0]}test/zdtm" || true
[[ -x ${trees[0]}test/zdtm/static/env00 ]] || fail "the regression programs could not be built" "$(tail_of "$log")" "Look at $log."
rm -rf "$goal"
mv "${trees[0]}test/zdtm" "$goal"
stamp zdtm "$key"
say "CRIU's regression programs are in $goal"
