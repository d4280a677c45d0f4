#!/usr/bin/env bash
# Regenerates the *_pb2 modules and their types from the .proto files beside them, with the compiler of the lock.
# With --check nothing is written; the exit status is 1 if one of them would change.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mapfile -t protos < <(find src/relive -name '*.proto' | sort)
((${#protos[@]})) || exit 0
# mypy-protobuf writes the types: unlike the compiler's own, they carry the comments of the .proto file.
.venv/bin/python -m grpc_tools.protoc -Isrc --plugin=protoc-gen-mypy=.venv/bin/protoc-gen-mypy \
    --python_out="$scratch" --mypy_out=quiet:"$scratch" "${protos[@]}"
stale=0
while read -r made; do
    target=src/${made#"$scratch"/}
    cmp -s "$made" "$target" && continue
    stale=1
    if [[ ${1:-} == --check ]]; then
        printf 'Error: %s does not follow from its .proto file.\nHint: run make proto.\n' "$target" >&2
    else
        cp "$made" "$target"
        printf '[proto] wrote %s\n' "$target" >&2
    fi
done < <(find "$scratch" -name '*_pb2.py*' | sort)
[[ ${1:-} != --check ]] || exit "$stale"
