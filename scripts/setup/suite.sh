# Sourced by steps that fetch from a Debian suite that need not be this machine's: from the archive that it gets its packages from,
# checked against Debian's signature. What apt writes goes to a folder of the step: the machine's lists and sources stay as they are.
# shellcheck shell=bash disable=SC2034

# Sets `mirror`; false where apt knows no Debian archive. It knows whose archive it is only once it has its lists, which images are
# often shipped without.
find_mirror() {
    local log=$1
    _mirror_in_lists || { run_logged "$log" apt-get -q update && _mirror_in_lists; }
}
_mirror_in_lists() {
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 2>/dev/null |
        awk '$1 == "Debian" && $2 == "Debian" && !found { print $3; found = 1 }')
    [[ -n $mirror ]]
}

# use_suite FOLDER TYPE SUITE: sets `suite_apt`, the command of an apt-get that knows this suite of the mirror alone and writes below
# FOLDER. TYPE is deb for packages, deb-src for sources.
use_suite() {
    local folder=$1 type=$2 suite=$3 keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    mkdir -p "$folder"/{lists,cache,sources}
    printf '%s %s%s %s main\n' "$type" "$([[ -r $keyring ]] && echo "[signed-by=$keyring] ")" "$mirror" "$suite" \
        >"$folder/sources.list"
    suite_apt=(apt-get -q -o Dir::Etc::SourceList="$folder/sources.list" -o Dir::Etc::SourceParts="$folder/sources"
        -o Dir::State::Lists="$folder/lists" -o Dir::Cache="$folder/cache" -o Acquire::Retries=3
        -o Acquire::Languages=none -o APT::Update::Error-Mode=any)
}
