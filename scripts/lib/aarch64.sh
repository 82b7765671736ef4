# shellcheck shell=bash disable=SC2034 # its variables are for the scripts that read it
# For aarch64.sh and aarch64-run.sh, after lib.sh: a root of Debian for arm64, and programs in it
# under qemu-user.

AARCH64_TARGET=aarch64-unknown-linux-gnu
AARCH64_QEMU=/usr/bin/qemu-aarch64-static
AARCH64_DIR=$(dirname "$(postgres_cache)")/aarch64
AARCH64_ROOT=$AARCH64_DIR/root
# The packages that all programs need, as dpkg-deb -R unpacks them: with what they say of their
# symbols.
AARCH64_LIBRARIES=$AARCH64_DIR/libraries

# make_aarch64_root SUITE MAJOR: unpacks PostgreSQL with its headers, a compiler and what they need,
# for arm64, from this suite of Debian, unless that is there. Their scripts are not run, because
# that takes minutes under emulation; what they would do and tests need is done here. Needs
# lib/apt.sh.
make_aarch64_root() {
    local suite=$1 major=$2 work=$AARCH64_DIR/part deb dir name
    # The last word changes when what this function makes does.
    local origin="$suite $major localtime"
    [ "$(cat "$AARCH64_ROOT/origin" 2>/dev/null)" != "$origin" ] || return 0
    say "aarch64: PostgreSQL $major of Debian $suite for arm64, in $AARCH64_ROOT"
    rm -rf "$AARCH64_ROOT" "$AARCH64_LIBRARIES" "$work"
    mkdir -p "$work/root" "$work/debs" "$AARCH64_LIBRARIES"
    (
        private_apt "$work/apt" deb "$suite"
        printf '#clear APT::Architectures;\nAPT::Architecture "arm64";\nAPT::Architectures { "arm64"; };\n' >>"$APT_CONFIG"
        apt-get -qq update </dev/null
        # The package of the headers needs compilers that nothing here uses.
        apt-get -qq -y --download-only install '?essential' make gcc libc6-dev libpq-dev "postgresql-$major" </dev/null
        cd "$work/debs"
        apt-get -qq download "postgresql-server-dev-$major"
    ) >"$work/log" 2>&1 ||
        die "PostgreSQL $major for arm64 cannot be had: $(tail -n 1 "$work/log" | sed -E 's#[a-z]+://[^ ]*/##g')"
    for dir in bin sbin lib; do
        mkdir -p "$work/root/usr/$dir"
        ln -s "usr/$dir" "$work/root/$dir"
    done
    mkdir -p "$work/root"/{etc,proc,sys,dev,tmp,root,run/postgresql,var/lib/dpkg/{info,updates,triggers}}
    for deb in "$work"/apt/cache/archives/*.deb "$work"/debs/*.deb; do
        case "${deb##*/}" in perl-modules-* | locales_* | libasan* | libtsan* | libhwasan*) continue ;; esac
        dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work/root" --no-same-owner --keep-directory-symlink \
            --exclude='*/share/doc/*' --exclude='*/share/man/*' --exclude='*/bitcode/*' || die "cannot unpack ${deb##*/}"
        # dpkg-query names the versions, and dpkg installs what needs them.
        printf '%s\nStatus: install ok installed\n\n' "$(dpkg-deb -f "$deb")" >>"$work/root/var/lib/dpkg/status"
        name=$(dpkg-deb -f "$deb" Package)
        case $name in libc6 | libgcc-s1) dpkg-deb -R "$deb" "$AARCH64_LIBRARIES/$name" ;; esac
        [ "$(dpkg-deb -f "$deb" Multi-Arch)" != same ] || name=$name:arm64
        dpkg-deb --fsys-tarfile "$deb" | tar -t | sed -E 's#^\.##; s#(.)/$#\1#; s#^/$#/.#' >"$work/root/var/lib/dpkg/info/$name.list"
    done
    printf '%s\n' root:x:0:0::/root:/bin/sh postgres:x:101:101::/tmp:/bin/sh >"$work/root/etc/passwd"
    printf '%s\n' root:x:0: postgres:x:101: >"$work/root/etc/group"
    say '127.0.0.1 localhost' >"$work/root/etc/hosts"
    ln -s /usr/share/zoneinfo/Etc/UTC "$work/root/etc/localtime"
    ln -s mawk "$work/root/usr/bin/awk"
    ln -s gcc "$work/root/usr/bin/cc"
    # For this machine: make, with the compiler for arm64, finds the headers by it.
    printf '#!/bin/sh\nexec %s -L %s %s/usr/lib/postgresql/%s/bin/pg_config "$@"\n' \
        "$AARCH64_QEMU" "$AARCH64_ROOT" "$AARCH64_ROOT" "$major" >"$AARCH64_DIR/pg_config"
    chmod 755 "$AARCH64_DIR/pg_config"
    say "$origin" >"$work/root/origin"
    mv "$work/root" "$AARCH64_ROOT"
    rm -rf "$work"
}

# in_aarch64 COMMAND [ARGUMENT...]: runs a command in the root, as root, in the current directory of
# the project. The kernel starts programs of arm64 under qemu-user: it is registered in a user
# namespace alone, not on this machine.
in_aarch64() {
    local go child status=0
    [ "$(id -u)" = 0 ] || die "only root can enter the root for arm64"
    go=$(mktemp -d "${TMPDIR:-/tmp}/pgseal-go.XXXXXX")
    mkfifo "$go/fifo"
    unshare --user --mount --propagation private \
        "$PGSEAL_ROOT/scripts/aarch64-enter.sh" "$go/fifo" "$AARCH64_ROOT" "$AARCH64_QEMU" "$PGSEAL_ROOT" "$@" &
    child=$!
    until [ "$(readlink "/proc/$child/ns/user")" != "$(readlink /proc/self/ns/user)" ]; do
        kill -0 "$child" 2>/dev/null || die "unshare made no user namespace"
        sleep 0.02
    done
    # All users as they are. Only somebody outside may write that.
    say '0 0 4294967295' >"/proc/$child/uid_map"
    say '0 0 4294967295' >"/proc/$child/gid_map"
    say go >"$go/fifo"
    rm -rf "$go"
    wait "$child" || status=$?
    return "$status"
}
