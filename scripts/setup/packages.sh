#!/usr/bin/env bash
# Debian packages: `packages.sh` for those that Relive needs, `packages.sh test` for those its tests observe.
# apt is not called at all when everything is there.
. "$(dirname "$0")/prelude.sh"

# To build CRIU and the programs in native/ ...
runtime=(build-essential pkg-config libprotobuf-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler
    libcap-dev libnl-3-dev libnet1-dev uuid-dev libbsd-dev libnftables-dev xz-utils
    # ... and to run.
    ca-certificates iproute2 iptables util-linux procps python3 python3-venv python3-dev)
# Services, supervisors and debuggers that the tests bring to life.
tests=(redis-server postgresql mariadb-server-core nginx podman runc skopeo gdb chromium systemd)
# Where any package that gives the command will do (a machine may have them from elsewhere): command=package.
tests_any=(node=nodejs java=default-jdk-headless javac=default-jdk-headless)

wanted=("${runtime[@]}")
any=()
case ${1:-} in
'') ;;
test) wanted=("${tests[@]}") any=("${tests_any[@]}") ;;
*) fail "packages.sh knows no list \"$1\"" "Its only argument is \"test\"." "Run: scripts/setup/packages.sh [test]" ;;
esac

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    lacking=()
    for tool in gcc make pkg-config protoc protoc-c ip iptables unshare nsenter flock python3; do
        command -v "$tool" >/dev/null || lacking+=("$tool")
    done
    ((${#lacking[@]} == 0)) || fail "this machine is not a Debian with apt, so nothing can be installed here" \
        "Missing commands: ${lacking[*]}." \
        "Install by hand what stands for these Debian packages: ${wanted[*]} ${any[*]#*=}; and CRIU 4 or newer."
    say "not a Debian with apt: the commands are there, the libraries are taken on trust"
    exit 0
fi

missing=()
installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' | sed -n 's/^.i. *//p')
for package in "${wanted[@]}"; do
    grep -qxF "$package" <<<"$installed" || missing+=("$package")
done
for pair in "${any[@]}"; do
    command -v "${pair%%=*}" >/dev/null || [[ " ${missing[*]} " == *" ${pair#*=} "* ]] || missing+=("${pair#*=}")
done
if ((${#missing[@]} == 0)); then
    say "all Debian packages are installed${1:+ ($1)}"
    exit 0
fi
[[ $EUID == 0 ]] || fail "Debian packages are missing" "${missing[*]}" "Run this as root."

# Packages of servers start them as they are installed. Ours are only ever started by a test, as its own child,
# so the machine is asked not to, for as long as this process lives (a file left behind then says yes again).
policy=/usr/sbin/policy-rc.d
make_scratch
if [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"; rm -rf --one-file-system "$SCRATCH"' EXIT
    trap 'exit 130' INT TERM HUP
    printf '#!/bin/sh\n# Of a Relive set-up; without process %s it forbids nothing and may be deleted.\n' $$ >"$policy"
    printf '[ -e /proc/%s ] && exit 101\nexit 0\n' $$ >>"$policy"
    chmod 755 "$policy"
fi

export DEBIAN_FRONTEND=noninteractive
apt=(apt-get -q -y -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3)
say "installing ${#missing[@]} Debian packages: ${missing[*]}"
# A repository that does not answer need not matter for these packages: only the installation decides.
run_logged "$SCRATCH/update" "${apt[@]}" update || say "apt-get update failed; trying with the lists there are"
run_logged "$SCRATCH/install" "${apt[@]}" install --no-install-recommends "${missing[@]}" || {
    grep -hE '^(E|Err|W):' "$SCRATCH/update" "$SCRATCH/install" | sort -u >"$SCRATCH/errors" || true
    [[ -s $SCRATCH/errors ]] || cp "$SCRATCH/install" "$SCRATCH/errors"
    fail "the Debian packages could not be installed: ${missing[*]}" "$(tail_of "$SCRATCH/errors" 12)" \
        "Try it by hand: apt-get update && apt-get install ${missing[*]}; then run make setup again."
}
say "installed"
