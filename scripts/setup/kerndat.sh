#!/usr/bin/env bash
# CRIU's kernel cache: what CRIU finds out about this kernel, found out once instead of at every call (35 ms each).
#
# CRIU writes criu.kdat only where its run folder is on a tmpfs, which is not so on every machine; so it is
# given one here, in a mount namespace of its own. It reads the file from any file system.
# Result: $RELIVE_TOOLS/criu.kdat, and criu.kdat.key beside it: "KERNEL-RELEASE SHA256-OF-CRIU". With another
# kernel or another CRIU the file must not be used.
. "$(dirname "$0")/prelude.sh"

criu=$RELIVE_TOOLS/criu
kdat=$RELIVE_TOOLS/criu.kdat
[[ -x $criu ]] || fail "there is no $criu" "The step before this one makes it." "Run make setup."
key="$(uname -r) $(sha256sum <"$criu" | cut -d' ' -f1)"
if [[ -s $kdat && -r $kdat.key && $(<"$kdat.key") == "$key" ]]; then
    say "CRIU's kernel cache is in place"
    exit 0
fi

make_scratch
rundir=$(sed -n 's/^rundir=//p' "$RELIVE_TOOLS/criu.origin")
# The exit status of `criu check` tells whether every feature is there; the cache is written either way.
# shellcheck disable=SC2016
run_logged "$SCRATCH/log" timeout -k 2 60 unshare --mount --propagation private bash -euc '
    mkdir -p "$2"
    mount -t tmpfs relive-kdat "$2"
    "$1" check -v2 || true
    cp "$2/criu.kdat" "$3/"' kerndat "$(readlink -f "$criu")" "$rundir" "$SCRATCH" || true
[[ -s $SCRATCH/criu.kdat ]] || fail "CRIU wrote no kernel cache" "$(tail_of "$SCRATCH/log" 6)" \
    "Setting it up needs root and the right to mount; relive doctor shows what this machine allows."
# The key goes last: a cache without its key is not used.
rm -f "$kdat.key"
cp "$SCRATCH/criu.kdat" "$kdat.new" && mv "$kdat.new" "$kdat"
# Where /run outlives a boot (it is no tmpfs), the one that was put there for the last kernel must go.
rm -f "$rundir/criu.kdat"
printf '%s\n' "$key" >"$kdat.key.new" && mv "$kdat.key.new" "$kdat.key"
say "CRIU's kernel cache was made for $(uname -r)"
