# shellcheck shell=bash disable=SC2034 # its variables are for the scripts that read it
# For musl.sh, after lib.sh: a root with musl and PostgreSQL as it was built on Alpine, and programs
# in it.

MUSL_TARGET=x86_64-unknown-linux-musl
MUSL_DIR=$(dirname "$(postgres_cache)")/musl
MUSL_ROOT=$MUSL_DIR/root
# The binaries for Alpine of a package of Maven's repository, which other projects take for their
# tests: server, initdb, pg_ctl, contrib, languages, with the libraries that they need. They have no
# other programs.
MUSL_ARTIFACT=io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64-alpine
declare -A MUSL_RELEASES=([15]=15.18.0 [16]=16.9.0 [17]=17.5.0 [18]=18.0.0)

# make_musl_root MAJOR: PostgreSQL in /usr/local, as in Alpine's image of it; musl of this machine's
# package; busybox for what the server runs by a shell.
make_musl_root() {
    local major=$1 release work=$MUSL_DIR/part name
    release=${MUSL_RELEASES[$major]:-}
    [ -n "$release" ] || die "no PostgreSQL $major for musl; there are ${!MUSL_RELEASES[*]}"
    [ "$(cat "$MUSL_ROOT/origin" 2>/dev/null)" != "$release" ] || return 0
    say "musl: PostgreSQL ${release%.0}, built on Alpine, in $MUSL_ROOT"
    rm -rf "$MUSL_ROOT" "$work"
    mkdir -p "$work/jar" "$work/root"/{bin,lib,etc,usr/local,proc,dev,tmp}
    mvn -q -B dependency:copy -Dartifact="$MUSL_ARTIFACT:$release" -DoutputDirectory="$work/jar" >"$work/log" 2>&1 ||
        die "PostgreSQL $major for musl cannot be had: $(grep -m 1 ERROR "$work/log" | sed -E 's#[a-z]+://[^ ]*/##g')"
    python3 -m zipfile -e "$work/jar"/*.jar "$work/jar"
    tar -xJf "$work/jar"/postgres-*.txz -C "$work/root/usr/local"
    cp /usr/lib/x86_64-linux-musl/libc.so "$work/root/lib/ld-musl-x86_64.so.1"
    cp "$(command -v busybox)" "$work/root/bin/"
    for name in $("$work/root/bin/busybox" --list); do
        [ -e "$work/root/bin/$name" ] || ln -s busybox "$work/root/bin/$name"
    done
    chmod 1777 "$work/root/tmp"
    # The users are those of this machine, so that both can use the same files.
    grep -E '^(root|postgres):' /etc/passwd >"$work/root/etc/passwd"
    grep -E '^(root|postgres):' /etc/group >"$work/root/etc/group"
    say "$release" >"$work/root/origin"
    mv "$work/root" "$MUSL_ROOT"
    rm -rf "$work"
}

# in_musl DIR COMMAND [ARGUMENT...]: runs a command in the root as the user postgres, in the
# directory DIR of this machine, which the root sees under the same path.
in_musl() {
    local dir=$1
    shift
    unshare --mount --propagation private bash -euc '
        root=$1 dir=$2
        shift 2
        mkdir -p "$root$dir"
        mount --bind "$dir" "$root$dir"
        mount --rbind /proc "$root/proc"
        mount --rbind /dev "$root/dev"
        exec chroot --userspec=postgres:postgres "$root" /bin/env -i PATH=/usr/local/bin:/bin LC_ALL=C.UTF-8 \
            sh -c "cd \"\$0\" && exec \"\$@\"" "$dir" "$@"
        ' bash "$MUSL_ROOT" "$dir" "$@"
}
