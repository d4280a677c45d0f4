#!/usr/bin/env bash
# Sets up everything Relive needs on this machine; safe to run again, then it only checks.
#
#   RELIVE_HOME   where Relive keeps its state (default /var/lib/relive)
#   RELIVE_TOOLS  where set-up puts the programs Relive drives (default $RELIVE_HOME/tools)
#   PYTHON        the interpreter that .venv is made from (default: the newest rule in setup/python.sh)
. "$(dirname "$0")/setup/prelude.sh"

[[ $EUID == 0 ]] || fail "make setup was not run as root" \
    "It installs packages, and CRIU can only be tried out by root." "Run it as root, for instance with sudo -E."

mkdir -p "$RELIVE_TOOLS" || fail "$RELIVE_TOOLS cannot be made" "See the line above." \
    "Set RELIVE_HOME to a folder on a disk that can be written."
# Two set-ups at once (two checkouts, one RELIVE_TOOLS) would build over each other's feet.
exec 9>"$RELIVE_TOOLS/.setup.lock"
flock --nonblock 9 || { say "another set-up is running; waiting for it"; flock 9; }

started=$SECONDS
for step in packages criu kerndat native podman python; do
    # Descriptor 9 is closed for the step, so that nothing it leaves behind can hold the lock.
    bash "$REPO/scripts/setup/$step.sh" 9>&- || exit 1
done
say "ready after $((SECONDS - started)) s; tools in $RELIVE_TOOLS, Python in $REPO/.venv"
