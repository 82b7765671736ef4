# shellcheck shell=bash
# For deb.sh and extensions.sh, after lib.sh: makes a clean root of a suite of Debian with
# debootstrap, from the archive that apt uses here, and runs commands in it. Needs root.

# Prints the suite of the Debian on this machine.
# shellcheck disable=SC1091
host_suite() { (. /etc/os-release && say "$VERSION_CODENAME"); }

# debian_mirror SUITE: prints the address of the archive that apt uses here, for this suite if it
# has one of its own.
debian_mirror() {
    local suite mirror
    for suite in "$1" "$(host_suite)"; do
        mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $suite" 2>/dev/null | head -n 1)
        if [ -n "$mirror" ]; then break; fi
    done
    say "$mirror"
}

# suite_sources SUITE: prints lines of sources.list for this suite and its security updates, from
# the archives that apt uses here.
suite_sources() {
    local suite=$1 mirror security
    mirror=$(debian_mirror "$suite")
    [ -n "$mirror" ] || die "the package sources of this machine name no Debian archive (apt-get indextargets)"
    security=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $(host_suite)-security" 2>/dev/null | head -n 1)
    sources_lines "$suite" "$mirror" "$security"
}

# sources_lines SUITE ARCHIVE [SECURITY-ARCHIVE]
sources_lines() {
    local signed="deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    say "$signed $2 $1 main"
    [ -z "${3:-}" ] || say "$signed $3 $1-security main"
}

# make_root DIR SUITE LOG: makes a clean root in DIR, with this machine's configuration of apt.
make_root() {
    local dir=$1 suite=$2 log=$3 mirror script=
    mirror=$(debian_mirror "$suite")
    # This machine's debootstrap may be older than the suite. All suites since bullseye are made
    # alike.
    [ -e "/usr/share/debootstrap/scripts/$suite" ] || script=/usr/share/debootstrap/scripts/sid
    # The directory becomes "/", which every user must be able to enter.
    chmod 755 "$dir"
    debootstrap --variant=minbase "$suite" "$dir" ${mirror:+"$mirror"} $script >"$log" 2>&1 || die "debootstrap failed; see $log"
    # Copy this machine's configuration of apt: proxies, sources. That of the suite stays beside it.
    cp -a "$dir/etc/apt" "$dir/etc/apt.suite"
    rm -f "$dir/etc/apt/sources.list"
    cp -rL /etc/apt/. "$dir/etc/apt/"
    if [ "$suite" != "$(host_suite)" ]; then
        rm -rf "$dir/etc/apt/sources.list.d"
        suite_sources "$suite" >"$dir/etc/apt/sources.list"
    fi
    # Packages must not start services.
    printf '#!/bin/sh\nexit 101\n' >"$dir/usr/sbin/policy-rc.d"
    chmod 755 "$dir/usr/sbin/policy-rc.d"
}

# enter_root DIR: mounts what programs in the root need of the running system.
enter_root() {
    cp /etc/resolv.conf /etc/hosts "$1/etc/"
    mount -t proc proc "$1/proc"
    mkdir -p "$1/dev/shm" "$1/dev/pts"
    mount -t tmpfs tmpfs "$1/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/dev/pts"
    ln -sfn pts/ptmx "$1/dev/ptmx"
}

# leave_root DIR
leave_root() {
    local place
    for place in proc dev/shm dev/pts; do umount "$1/$place" 2>/dev/null || true; done
}

# temporary_root NAME: makes a directory for a root, in the variable "root", which is removed when
# the script ends, with the files beside it whose names begin with its name.
temporary_root() {
    root=$(mktemp -d "${TMPDIR:-/tmp}/pgseal-$1.XXXXXX")
    trap remove_root EXIT
    trap 'exit 130' INT TERM
}

remove_root() {
    local status=$?
    trap - EXIT
    leave_root "$root"
    rm -rf --one-file-system "$root" "$root".*
    exit "$status"
}

# in_root DIR COMMAND [ARGUMENT...]: runs a command in the root with a clean environment, and
# without descriptor 8, which is a script's lock.
in_root() {
    local dir=$1
    shift
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root DEBIAN_FRONTEND=noninteractive \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
        chroot "$dir" "$@" 8>&-
}
