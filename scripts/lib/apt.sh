# shellcheck shell=bash
# Sourced after scripts/lib.sh: a private apt configuration for downloading packages without
# installing them. It is derived from that of the machine, changes nothing outside of its directory
# and needs no root.

# private_apt DIR TYPES [SUITE...]: makes the configuration below DIR and exports APT_CONFIG. TYPES:
# "deb", "deb-src" or both. Without a SUITE, the configuration has the sources and the installed
# packages of the machine. With suites, it has these suites of the machine's Debian archive and no
# installed packages, so that downloads include all dependencies.
private_apt() {
    local dir=$1 types=$2 status sources_list sources_parts trusted trusted_parts netrc netrc_parts
    shift 2
    mkdir -p "$dir/etc/sources.list.d" "$dir/etc/apt.conf.d" "$dir/etc/preferences.d" \
        "$dir/state/lists/partial" "$dir/cache/archives/partial"
    rm -f "$dir"/etc/sources.list.d/*
    unset APT_CONFIG
    eval "$(apt-config shell sources_list Dir::Etc::sourcelist/f sources_parts Dir::Etc::sourceparts/d \
        trusted Dir::Etc::trusted/f trusted_parts Dir::Etc::trustedparts/d \
        netrc Dir::Etc::netrc/f netrc_parts Dir::Etc::netrcparts/d status Dir::State::status/f)"
    if [ $# -gt 0 ]; then
        debian_sources "$types" "$@" >"$dir/etc/sources.list.d/debian.sources"
        status=$dir/status
        : >"$status"
    else
        copy_sources "$types" "$dir/etc/sources.list.d" "$sources_list" "$sources_parts"
    fi
    # The machine's options (proxies, checks) without its hooks.
    {
        apt-config dump | grep -Ev '^(Dir|DPkg|APT::Update|RPM|CommandLine|Binary)(::| )'
        cat <<CONF
Dir::Etc "$dir/etc";
Dir::Etc::trusted "$trusted";
Dir::Etc::trustedparts "$trusted_parts";
Dir::Etc::netrc "$netrc";
Dir::Etc::netrcparts "$netrc_parts";
Dir::State "$dir/state";
Dir::State::status "$status";
Dir::Cache "$dir/cache";
Acquire::Languages "none";
APT::Install-Recommends "false";
CONF
        # apt's download user may not be able to enter the directory.
        [ "$(id -u)" != 0 ] || say 'APT::Sandbox::User "root";'
    } >"$dir/apt.conf"
    export APT_CONFIG=$dir/apt.conf LC_ALL=C
}

# Prints the machine's own sources, with these types.
copy_sources() {
    local types=$1 to=$2 list=$3 parts=$4 file type
    for file in "$list" "$parts"/*.list; do
        [ -f "$file" ] || continue
        for type in $types; do sed -nE "s/^deb /$type /p" "$file"; done >"$to/$(basename "$file" .list).list"
    done
    for file in "$parts"/*.sources; do
        [ -f "$file" ] || continue
        sed -E "s/^Types:.*/Types: $types/" "$file" >"$to/$(basename "$file")"
    done
}

# Prints a sources file for suites of the machine's Debian archive.
debian_sources() {
    local types=$1 uri signed_by release
    shift
    # shellcheck disable=SC1091
    release=$(. /etc/os-release && say "${ID:-} ${VERSION_CODENAME:-}")
    [ "${release% *}" = debian ] ||
        die "this machine runs no Debian, so that it has no Debian archive to take packages from"
    # shellcheck disable=SC2016 # apt's own placeholders
    read -r uri signed_by < <(apt-get indextargets --format '$(RELEASE) $(REPO_URI) $(SIGNED_BY)' \
        'Created-By: Packages' 'Component: main' |
        awk -v release="${release#* }" '$1 == release || $1 ~ /^(stable|testing|sid|unstable)$/ { print $2, $3; exit }') ||
        die "the package sources of this machine name no Debian archive (apt-get indextargets)"
    # apt prints a missing field as its placeholder.
    case "$signed_by" in /*) ;; *) signed_by=/usr/share/keyrings/debian-archive-keyring.gpg ;; esac
    printf 'Types: %s\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' "$types" "$uri" "$*" "$signed_by"
}
