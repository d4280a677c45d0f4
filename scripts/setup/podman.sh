#!/usr/bin/env bash
# A configuration for podman with which containers start, can be committed and be restored on a machine where root may not raise limits
# (no CAP_SYS_RESOURCE): soft limits are hard ones, control groups without systemd, events in a file, runc as the runtime.
# Result: $RELIVE_TOOLS/containers.conf. It is used by who says so (CONTAINERS_CONF); nobody's own configuration is touched.
. "$(dirname "$0")/prelude.sh"

goal=$RELIVE_TOOLS/containers.conf
files=$(ulimit -Hn) processes=$(ulimit -Hu)
most() { if [[ $1 == unlimited ]] || (($1 > $2)); then echo "$2"; else echo "$1"; fi; }
files=$(most "$files" 1048576) processes=$(most "$processes" 32768)
wanted="# Written by Relive's set-up. Use it: export CONTAINERS_CONF=$goal
[engine]
runtime = \"runc\"
cgroup_manager = \"cgroupfs\"
events_logger = \"file\"
[containers]
default_ulimits = [\"nofile=$files:$files\", \"nproc=$processes:$processes\"]"
if [[ -r $goal && $(<"$goal") == "$wanted" ]]; then
    say "podman's configuration is in place"
    exit 0
fi
printf '%s\n' "$wanted" >"$goal.new" && mv "$goal.new" "$goal"
say "wrote a configuration for podman"
