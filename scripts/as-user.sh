#!/usr/bin/env bash
# as-user.sh [--keep] [--upstream MAJOR] [--] COMMAND [ARGUMENT...]
#
# Runs COMMAND as an ordinary user, because PostgreSQL's servers refuse to run as root. If an
# ordinary user starts this script, COMMAND runs in the project's directory. If root starts it
# (containers, CI), the script copies what tests need (scripts, tests, built programs, cached
# upstream sources) to a private work directory of an ordinary user and runs COMMAND there as that
# user; other users need no access to the project's own directory. Afterwards build/results of the
# work directory is copied back, remaining servers are stopped, and the work directory is removed.
# --keep: the work directory stays, and its name is printed. --upstream: copies only the cached
# sources of this major version.
#
# PGSEAL_TEST_USER  the user; default: postgres where it exists, else pgseal-test (made if need be)
set -euo pipefail
. "$(dirname "$0")/lib.sh"

keep=no upstream=
while [ $# -gt 0 ]; do
    case "$1" in
    --keep) keep=yes ;;
    --upstream)
        upstream=${2:-}
        shift
        ;;
    --)
        shift
        break
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    -*) die "unknown option $1" ;;
    *) break ;;
    esac
    shift
done
[ $# -gt 0 ] || die "which command?"

if [ "$(id -u)" != 0 ]; then
    cd "$PGSEAL_ROOT"
    exec "$@"
fi

user=${PGSEAL_TEST_USER:-}
if [ -z "$user" ]; then
    user=postgres
    getent passwd "$user" >/dev/null || user=pgseal-test
fi
if ! getent passwd "$user" >/dev/null; then
    say "as-user: making the user $user"
    useradd --system --user-group --no-create-home --shell /bin/sh "$user"
fi
uid=$(id -u "$user")
gid=$(id -g "$user")
[ "$uid" != 0 ] || die "$user is root too; set PGSEAL_TEST_USER to an ordinary user"
run_as() {
    setpriv --reuid="$uid" --regid="$gid" --init-groups -- "$@"
}

# A directory that the user can reach. Its name is short, because the paths of Unix sockets are at
# most 107 bytes long, and the servers make their sockets below it.
stage=
for base in "${TMPDIR:-/tmp}" /tmp /var/tmp; do
    [ -d "$base" ] && [ ${#base} -le 40 ] || continue
    stage=$(mktemp -d "$base/pgs.XXXXXX") || continue
    chmod 0755 "$stage"
    run_as test -x "$stage" 2>/dev/null && break
    rm -rf "$stage"
    stage=
done
[ -n "$stage" ] || die "$user can reach none of: ${TMPDIR:-} /tmp /var/tmp; set TMPDIR to a short path open to others"

child=
finish() {
    local status=$?
    trap - EXIT INT TERM HUP
    if [ -n "$child" ] && kill -0 "$child" 2>/dev/null; then
        kill -TERM -- "-$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    fi
    if [ -d "$stage/tree/build/results" ]; then
        mkdir -p "$PGSEAL_ROOT/build/results"
        for results in "$stage/tree/build/results"/*; do
            rm -rf "$PGSEAL_ROOT/build/results/${results##*/}"
            cp -r --no-preserve=ownership "$results" "$PGSEAL_ROOT/build/results/" || status=1
        done
    fi
    if [ "$keep" = yes ]; then
        say "as-user: the work directory stays: $stage"
    else
        stop_servers_below "$stage"
        rm -rf "$stage"
    fi
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

mkdir -p "$stage/tree" "$stage/home" "$stage/t"
cd "$PGSEAL_ROOT"
parts=()
for part in Makefile scripts tests docs packaging target/release/pgseal target/release/pgseal-lab target/release/libpgseal.so target/guard target/extension server/extension; do
    [ -e "$part" ] && parts+=("$part")
done
tar -cf - --exclude=__pycache__ "${parts[@]}" | tar -xf - -C "$stage/tree"
cache=${PGSEAL_CACHE:-build/upstream}
if [ -d "$cache" ]; then
    mkdir -p "$stage/tree/build/upstream"
    parts=(.)
    if [ -n "$upstream" ]; then
        read -r version rest <"$cache/current-$upstream" || die "no cached sources of PostgreSQL $upstream"
        parts=("current-$upstream" "$version")
    fi
    tar -cf - -C "$cache" --exclude=./apt "${parts[@]}" | tar -xf - -C "$stage/tree/build/upstream"
fi
chmod -R u+rwX,go+rX "$stage/tree"
chown -R "$uid:$gid" "$stage"

# The servers that postgres-versions.sh fetched are used where they are.
PGSEAL_POSTGRES_CACHE=$(postgres_cache)
export PGSEAL_POSTGRES_CACHE
# Remove root's PGHOST, PGDATA and similar variables, which would mislead the command.
while IFS= read -r name; do unset "$name"; done < <(compgen -e | grep -E '^(PG[A-Z]+|XDG_.*)$')
unset PGSEAL_CACHE
cd "$stage/tree"
export HOME=$stage/home USER=$user LOGNAME=$user TMPDIR=$stage/t
# Job control gives the command its own process group. Without it, a background job and all its
# children would start with SIGINT ignored.
set -m
setpriv --reuid="$uid" --regid="$gid" --init-groups -- "$@" </dev/null &
child=$!
set +m
wait "$child" && status=0 || status=$?
child=
exit "$status"
