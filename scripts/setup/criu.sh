#!/usr/bin/env bash
# CRIU: the installed one if it really dumps and restores here, else one built from Debian's newer source package.
#
# Result, in $RELIVE_TOOLS:
#   criu         the program, or a link to the installed one
#   criu.origin  key=value lines: origin (installed or built), version, rundir (the folder that this CRIU
#                reads its kernel cache criu.kdat from; it is compiled in), sha256 of the program
# RELIVE_CRIU_SUITE names the Debian suites of the source, tried in this order until one works (default "sid trixie":
# the newest CRIU first, since older ones fail on newer kernels).
. "$(dirname "$0")/prelude.sh"
. "$(dirname "$0")/suite.sh"

suites=${RELIVE_CRIU_SUITE:-sid trixie}
built_rundir=/run/relive # not /run: an installed CRIU of another version would fight with ours over the cache
criu=$RELIVE_TOOLS/criu
origin=$RELIVE_TOOLS/criu.origin
log=$RELIVE_TOOLS/criu-build.log
installed=$(command -v criu || true)

# What the present result was made from, and what it is: a change of either makes this step run again.
key_now() {
    printf '%s %s %s %s' "$(uname -r)" "$suites" "$(sha256_of "$0" "$(dirname "$0")"/{criu_works,suite}.sh)" \
        "$(sha256sum "$criu" "$origin" ${installed:+"$installed"} 2>/dev/null | sha256sum | cut -d' ' -f1)"
}
if [[ -x $criu && -r $origin ]] && stamp_says criu "$(key_now)"; then
    say "$(sed -n 's/^origin=//p' "$origin") CRIU $(sed -n 's/^version=//p' "$origin") is in place"
    exit 0
fi

[[ $EUID == 0 ]] || fail "CRIU cannot be tried out" "Only root may dump and restore a process." "Run this as root."
mkdir -p "$RELIVE_TOOLS"
make_scratch

version_of() { "$1" --version 2>/dev/null | sed -n 's/^Version: *//p'; }
# Why the last try failed: CRIU's own errors.
why() { grep -hE 'Error|rror:|unrecognized|not found|timed out' "$1"/*.log "$1"/*.out 2>/dev/null | grep -v RLIMIT_NOFILE | tail -n 5 || true; }

# What to do next: one sentence for a full disk, which looks like many things; otherwise the given one.
next() {
    if grep -qE 'No space left|not enough free space' "$log"; then
        echo "Free some space in $(dirname "$SCRATCH"), or set TMPDIR to a folder with 200 MB to spare; then run make setup again."
    else
        echo "$1"
    fi
}

# Where this CRIU reads its cache from is compiled in; other distributions differ from Debian.
rundir_of() { grep -aoE '/[[:alnum:]/._-]+/criu\.kdat' "$(readlink -f "$1")" | head -n 1 | xargs -r dirname || true; }

# accept ORIGIN: the program in $criu was seen to work.
accept() {
    local rundir
    rundir=$(rundir_of "$criu")
    printf 'origin=%s\nversion=%s\nrundir=%s\nsha256=%s\n' "$1" "$(version_of "$criu")" "${rundir:-/run}" \
        "$(sha256sum <"$criu" | cut -d' ' -f1)" >"$origin.new"
    mv "$origin.new" "$origin"
    stamp criu "$(key_now)"
    say "$1 CRIU $(version_of "$criu") dumps and restores a process here"
}

if [[ -n $installed ]]; then
    say "trying the installed $installed on a small process"
    if bash "$(dirname "$0")/criu_works.sh" "$installed" "$SCRATCH/installed"; then
        ln -sfn "$(readlink -f "$installed")" "$criu.new" && mv -T "$criu.new" "$criu"
        accept installed
        exit 0
    fi
    say "the installed CRIU ($(version_of "$installed")) does not work here: $(why "$SCRATCH/installed" | head -n 1)"
fi

# One that was built before may only have to be tried again, for instance after a kernel upgrade.
if [[ -x $criu && ! -L $criu ]] && grep -qx 'origin=built' "$origin" 2>/dev/null &&
    [[ $(sed -n 's/^suites=//p' "$STAMPS/criu.source" 2>/dev/null) == "$suites" ]]; then
    say "trying the CRIU that was built before"
    if bash "$(dirname "$0")/criu_works.sh" "$criu" "$SCRATCH/before"; then
        accept built
        exit 0
    fi
    say "it does not work here (any more): $(why "$SCRATCH/before" | head -n 1)"
fi

command -v apt-get >/dev/null || fail "no CRIU works here, and without apt there is no source to build one from" \
    "${installed:-No criu command was found.}" "Install CRIU 4 or newer so that the command criu is found, then run make setup."

# The source comes from the archive that this machine gets its packages from.
find_mirror "$log" || fail "CRIU's source cannot be fetched" \
    "apt knows no Debian archive on this machine (apt-get indextargets lists none)." \
    "Run apt-get update with a Debian archive in /etc/apt/sources.list.d, or install CRIU 4 or newer by hand."

# build SUITE: fetch and build that suite's CRIU and see whether it works. Leaves $built, and $trouble if it returns 1.
build() {
    local suite=$1 folder=$SCRATCH/$1 tarballs trees
    mkdir -p "$folder/source"
    use_suite "$folder/apt" deb-src "$suite"

    say "fetching CRIU's source from Debian $suite"
    trouble=("CRIU's source could not be fetched from Debian $suite" \
        "Check that $mirror can be reached and has $suite (other suites: RELIVE_CRIU_SUITE=NAME make setup).")
    run_logged "$log" "${suite_apt[@]}" update || return 1
    (cd "$folder/source" && run_logged "$log" "${suite_apt[@]}" source --tar-only criu) || return 1
    tarballs=("$folder"/source/criu_*.orig.tar.*)
    trouble=("CRIU's source could not be unpacked" "Look at ${tarballs[*]}; then run make setup again.")
    tar -xf "${tarballs[0]}" -C "$folder/source" 2>>"$log" || return 1
    trees=("$folder"/source/criu-*/)

    say "building $(basename "${trees[0]}") (half a minute)"
    trouble=("CRIU could not be built" "The whole log is $log.")
    # make's variables of the outer `make setup` would give this one another's job server.
    run_logged "$log" env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u CFLAGS -u LDFLAGS \
        make -C "${trees[0]}" -j"$(nproc)" criu RUNDIR="$built_rundir" || return 1
    built=$folder/criu
    strip -o "$built" "${trees[0]}criu/criu" || return 1 # 6 MB to 1.4: it is started for every commit
    trouble=("CRIU was built but cannot dump and restore a small process on this machine" \
        "Relive needs root with CAP_SYS_ADMIN and CAP_SYS_PTRACE, and a kernel with CONFIG_CHECKPOINT_RESTORE. Details: $log")
    bash "$(dirname "$0")/criu_works.sh" "$built" "$folder/works" && return 0
    cat "$folder"/works/*.log "$folder"/works/*.out >>"$log" 2>/dev/null || true
    return 1
}

done_with=
for suite in $suites; do
    if build "$suite"; then
        done_with=$suite
        break
    fi
    say "Debian $suite: ${trouble[0]}"
done
[[ -n $done_with ]] || fail "${trouble[0]}" \
    "$({ grep -E '^(E|W):|error|Error|No space|\*\*\*' "$log" || tail_of "$log"; } | grep -v RLIMIT_NOFILE | tail -n 8)
$(df -h "$SCRATCH" | tail -n 1)" "$(next "${trouble[1]}")"
cp "$built" "$criu.new"
mv -T "$criu.new" "$criu"
stamp criu.source "suites=$suites"
accept built
