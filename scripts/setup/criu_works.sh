#!/usr/bin/env bash
# criu_works.sh CRIU FOLDER: does this CRIU dump and restore a tiny process here? Version numbers do not tell.
#
# 1. A process that listens on a TCP port and waits for a file named "go" is dumped and left running.
# 2. It is restored in a PID namespace of its own, beside the original.
# 3. "go" appears; each of the two lives then writes one line to "answers".
# Ends 0 if there are two lines. Otherwise ends 1; the reasons are in FOLDER/*.log, in CRIU's own words.
set -euo pipefail
criu=$(readlink -f "$1")
mkdir -p "$2/images" "$2/branch"
cd "$2"
rm -f go answers

# A session of its own, no terminal, and no descriptor of the caller: one that was opened in another mount namespace
# (a build service's, say) could not be dumped and would prove nothing. It ends by itself in any case.
setsid --fork python3 -S -c '
import os, socket, time
os.closerange(3, 1024)
listener = socket.create_server(("127.0.0.1", 0))  # older CRIUs fail at any TCP socket on newer kernels
with open("pid.new", "w") as file:
    file.write(str(os.getpid()))
os.rename("pid.new", "pid")
for _ in range(600):
    if os.path.exists("go"):
        answers = os.open("answers", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(answers, f"{listener.getsockname()[0]}\n".encode())
        break
    time.sleep(0.05)
' </dev/null >/dev/null 2>&1
for ((i = 0; i < 100; i++)); do [[ -e pid ]] && break; sleep 0.02; done
original=$(<pid)
trap 'kill -KILL "$original" 2>/dev/null || true' EXIT

# The options are those that Relive itself dumps with: a CRIU that does not know them is of no use.
options=(--network-lock skip --manage-cgroups=ignore --tcp-established --file-locks -v2)
timeout -k 2 20 "$criu" dump -t "$original" --leave-running -D "$PWD/images" -o "$PWD/dump.log" "${options[@]}" \
    >dump.out 2>&1 </dev/null || exit 1
# Without -d, CRIU stays as the first process of the namespace; with it gone, the kernel would end the branch.
timeout -k 2 20 unshare --pid --net --fork --mount --mount-proc --kill-child \
    sh -c 'ip link set lo up; exec "$@"' sh "$criu" restore -D "$PWD/images" -W "$PWD/branch" -o "$PWD/restore.log" "${options[@]}" \
    >restore.out 2>&1 </dev/null &
branch=$!
sleep 0.3 # not needed for the answer; lets both lives wait side by side for a moment
touch go
wait "$branch" || true
for ((i = 0; i < 100; i++)); do
    [[ -e answers && $(wc -l <answers) == 2 ]] && exit 0
    sleep 0.02
done
exit 1
