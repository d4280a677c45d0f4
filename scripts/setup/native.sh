#!/usr/bin/env bash
# The C programs of native/, compiled into $RELIVE_TOOLS: NAME.c, with what lies in NAME/, becomes relive-NAME, a static program
# that runs in any root file system; prlimit_shim.c becomes prlimit_shim.so, which CRIU is started with; quick_abi3.c becomes the recorder's
# _quick.abi3.so, which lies beside its Python modules, since it goes with them into capsules;
# what ends in _library is loaded by Relive's own Python processes; page_tree.c becomes page_tree.library.so, beside the store's modules, which are
# used without tools, too;
# what ends in _plugin is one of CRIU's, in a directory of their own.
. "$(dirname "$0")/prelude.sh"

make_scratch
flags=(-std=gnu11 -O2 -g -Wall -Wextra -Werror)
# Headers and parts count for every program: front.c takes one of init.c's.
headers=("$REPO"/native/*.h "$REPO"/native/*/*.h)
made=()
python_headers=
for candidate in /usr/bin/python3 python3; do
    python_headers=$("$candidate" -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null) || continue
    [[ ! -r $python_headers/Python.h ]] || break
done
for source in "$REPO"/native/*.c; do
    name=$(basename "$source" .c)
    place=$RELIVE_TOOLS
    parts=("$source" "$REPO/native/$name"/*.c)
    # All three make a process hand out a userfaultfd; two look at all of it.
    [[ $name != micro ]] || parts+=("$REPO"/native/tracker/*.c)
    [[ $name != rewind ]] || parts+=("$REPO"/native/{tracker,micro}/*.c)
    if [[ $name == *_abi3 ]]; then
        # Without the C library: its symbols are then asked for without their versions, so that older and other libraries have them.
        # Optimised as one file (-flto): the parts call each other for every few bytes. It loads in
        # every CPython from 3.8 on, whichever this interpreter is, whose headers are asked for the stable ABI only.
        place=$REPO/src/relive_inprocess/relive_recorder target=_${name%_abi3}.abi3.so
        command=(gcc "${flags[@]}" -flto -shared -fPIC -nostdlib -fvisibility=hidden -fno-stack-protector -s "-I$python_headers" "${parts[@]}")
    elif [[ $name == page_tree ]]; then
        place=$REPO/src/relive/store/pages target=page_tree.library.so
        command=(gcc "${flags[@]}" -O3 -shared -fPIC -fvisibility=hidden "$source")
    elif [[ $name == *_plugin ]]; then
        place=$RELIVE_TOOLS/plugins target=$name.so command=(gcc "${flags[@]}" -shared -fPIC "$source")
    elif [[ $name == *_shim ]]; then
        target=$name.so command=(gcc "${flags[@]}" -shared -fPIC "$source" -ldl)
    elif [[ $name == *_library ]]; then
        target=$name.so
        command=(gcc "${flags[@]}" -shared -fPIC -fvisibility=hidden -pthread "${parts[@]}")
    else
        target=relive-$name command=(gcc "${flags[@]}" -static -pthread "${parts[@]}")
    fi
    key="$(sha256_of "$source" "$REPO"/native/*/*.c "${headers[@]}" "$0") $(gcc -dumpfullversion)"
    # Of what lies in this checkout, and not with the tools, another checkout with the same tools knows nothing.
    stamp=native-$name
    [[ $place == "$RELIVE_TOOLS"* ]] || stamp+=-$(cksum <<<"$REPO" | cut -d' ' -f1)
    [[ -x $place/$target ]] && stamp_says "$stamp" "$key" && continue
    run_logged "$SCRATCH/log" "${command[@]}" -o "$SCRATCH/$target" || fail "native/$name.c could not be compiled" \
        "$(grep -E 'error|warning|undefined|cannot' "$SCRATCH/log" | head -n 8)" \
        "Compile it by hand to see everything: ${command[*]} -o /tmp/$target"
    mkdir -p "$place"
    # A new file under the old name: a capsule that runs the old program keeps it.
    cp "$SCRATCH/$target" "$place/.$target.new"
    # Process 1 of a branch must be closed to debuggers from its first instruction on: the kernel sees to that where a program's file
    # cannot be read by who executes it (execve(2)), and it has no capabilities by then.
    [[ $target != relive-init ]] || chmod 111 "$place/.$target.new"
    mv "$place/.$target.new" "$place/$target"
    stamp "$stamp" "$key"
    made+=("$target")
done
if ((${#made[@]})); then say "compiled ${made[*]}"; else say "all native programs are up to date"; fi
