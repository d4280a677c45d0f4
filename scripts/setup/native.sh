#!/usr/bin/env bash
# The C programs of native/, compiled into $RELIVE_TOOLS: NAME.c becomes relive-NAME, a static program that runs
# in any root file system; prlimit_shim.c becomes prlimit_shim.so, which CRIU is started with.
. "$(dirname "$0")/prelude.sh"

make_scratch
flags=(-std=gnu11 -O2 -g -Wall -Wextra -Werror)
# Headers count for every program that lies beside them.
headers=("$REPO"/native/*.h)
made=()
for source in "$REPO"/native/*.c; do
    name=$(basename "$source" .c)
    if [[ $name == *_shim ]]; then
        target=$name.so command=(gcc "${flags[@]}" -shared -fPIC "$source" -ldl)
    else
        target=relive-$name command=(gcc "${flags[@]}" -static "$source")
    fi
    key="$(sha256_of "$source" "${headers[@]}" "$0") $(gcc -dumpfullversion)"
    [[ -x $RELIVE_TOOLS/$target ]] && stamp_says "native-$name" "$key" && continue
    run_logged "$SCRATCH/log" "${command[@]}" -o "$SCRATCH/$target" || fail "native/$name.c could not be compiled" \
        "$(grep -E 'error|warning|undefined|cannot' "$SCRATCH/log" | head -n 8)" \
        "Compile it by hand to see everything: ${command[*]} -o /tmp/$target"
    mkdir -p "$RELIVE_TOOLS"
    # A new file under the old name: a capsule that runs the old program keeps it.
    cp "$SCRATCH/$target" "$RELIVE_TOOLS/.$target.new" && mv "$RELIVE_TOOLS/.$target.new" "$RELIVE_TOOLS/$target"
    stamp "native-$name" "$key"
    made+=("$target")
done
if ((${#made[@]})); then say "compiled ${made[*]}"; else say "all native programs are up to date"; fi
