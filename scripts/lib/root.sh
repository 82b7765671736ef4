# shellcheck shell=bash
# Shared by deb.sh and extensions.sh, after lib.sh: a clean root of a suite of Debian, made by debootstrap from the
# archive that apt uses here, and commands in it. Needs root.

# The suite of Debian that runs here.
# shellcheck disable=SC1091
host_suite() { (. /etc/os-release && say "$VERSION_CODENAME"); }

# make_root DIR SUITE LOG: DIR becomes a clean root whose apt is set up as this machine's is.
make_root() {
    local dir=$1 suite=$2 log=$3 mirror
    mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $suite" 2>/dev/null | head -n 1)
    [ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $(host_suite)" 2>/dev/null | head -n 1)
    # It becomes "/", which everybody may enter.
    chmod 755 "$dir"
    debootstrap --variant=minbase "$suite" "$dir" ${mirror:+"$mirror"} >"$log" 2>&1 || die "debootstrap failed; see $log"
    # As apt is set up here: proxies, sources.
    rm -f "$dir/etc/apt/sources.list"
    cp -rL /etc/apt/. "$dir/etc/apt/"
    if [ "$suite" != "$(host_suite)" ]; then
        [ -n "$mirror" ] || die "the package sources of this machine name no Debian archive (apt-get indextargets)"
        rm -rf "$dir/etc/apt/sources.list.d"
        say "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$dir/etc/apt/sources.list"
    fi
    # Nothing starts by itself.
    printf '#!/bin/sh\nexit 101\n' >"$dir/usr/sbin/policy-rc.d"
    chmod 755 "$dir/usr/sbin/policy-rc.d"
}

# enter_root DIR: what programs in it need of the running system, for as long as a script works there.
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

# in_root DIR COMMAND [ARGUMENT...]: with an environment of its own, and without descriptor 8, a script's lock.
in_root() {
    local dir=$1
    shift
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root DEBIAN_FRONTEND=noninteractive \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
        chroot "$dir" "$@" 8>&-
}
