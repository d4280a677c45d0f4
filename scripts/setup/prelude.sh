# Sourced by every set-up step: where things lie, how a step speaks, how it fails.
#
# A step is a program of its own that may be run alone and again at any time. It writes nothing to standard
# output; its progress goes to standard error. It ends 0, or says what failed, why, and what to do next.
# shellcheck shell=bash disable=SC2034
set -Eeuo pipefail
shopt -s inherit_errexit nullglob
umask 022
export LC_ALL=C.UTF-8

STEP=$(basename "$0" .sh)
REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
RELIVE_HOME=${RELIVE_HOME:-/var/lib/relive}
RELIVE_TOOLS=${RELIVE_TOOLS:-$RELIVE_HOME/tools}
STAMPS=$RELIVE_TOOLS/stamps

say() { printf '[setup] %-8s %s\n' "$STEP" "$*" >&2; }

# fail WHAT WHY NEXT: the three things a reader needs; WHY may be many lines.
fail() {
    trap - ERR
    {
        printf '\nError: %s.\n' "$1"
        printf '%s\n' "$2" | sed 's/^/  /'
        printf 'Hint: %s\n' "$3"
    } >&2
    exit 1
}

# A command that nobody foresaw failing still names itself.
trap '((BASH_SUBSHELL)) || fail "set-up step \"$STEP\" stopped at: $BASH_COMMAND" "It ended with status $? ($0, line $LINENO)." \
    "Read what it printed above, mend that, and run make setup again; steps that are done are not repeated."' ERR

# run_logged LOG COMMAND...: quiet while it goes well; false, with everything in LOG, when it does not.
run_logged() {
    local log=$1
    shift
    "$@" >"$log" 2>&1 </dev/null
}

# The last lines of LOG, for fail's WHY.
tail_of() { tail -n "${2:-15}" "$1" | cut -c1-300; }

sha256_of() { sha256sum "$@" | sha256sum | cut -d' ' -f1; }

# A stamp holds the key (a line of text) of the inputs that a result was made from.
stamp_says() { [[ -r $STAMPS/$1 && $(<"$STAMPS/$1") == "$2" ]]; }
stamp() {
    mkdir -p "$STAMPS"
    printf '%s\n' "$2" >"$STAMPS/.$1.new"
    mv "$STAMPS/.$1.new" "$STAMPS/$1"
}

# make_scratch: sets SCRATCH to a temporary folder that is gone when the step ends.
make_scratch() {
    SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/relive-setup.XXXXXX") || fail "no temporary folder could be made" \
        "$(df -h "${TMPDIR:-/tmp}" 2>&1)" "Free some space there, or set TMPDIR to a folder with 500 MB to spare."
    chmod 755 "$SCRATCH" # apt downloads as its own user
    trap 'rm -rf --one-file-system "$SCRATCH"' EXIT
}
