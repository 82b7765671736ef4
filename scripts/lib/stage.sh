# shellcheck shell=bash
# For demo.sh and bench.sh, after lib.sh: what they need, and for the demo the change from root to
# an ordinary user, because PostgreSQL's servers refuse to run as root.

# need_built BIN [LAB]: checks that the directory BIN has the program pgseal and its library, with
# LAB=lab the lab as well, and that a PostgreSQL with client programs exists for which there is a
# guard module; sets PG_BIN.
need_built() {
    local bin=$1 lab=${2:-} part config
    [ -x "$bin/pgseal" ] || die "$bin/pgseal is missing; run 'make build' first"
    [ -e "$bin/libpgseal.so" ] || [ -e "$bin/../lib/pgseal/libpgseal.so" ] ||
        die "libpgseal.so is neither in $bin nor in $bin/../lib/pgseal; run 'make build' first"
    [ "$lab" != lab ] || [ -x "$bin/pgseal-lab" ] || die "$bin/pgseal-lab is missing; run 'make build' first"
    # Use the newest PostgreSQL whose guard module was built.
    PG_BIN=
    for config in $(pg_configs); do
        [ -x "$config" ] || die "$config is not a program (PG_CONFIG)"
        has_guard "$bin" "$config" || continue
        PG_BIN=$("$config" --bindir)
    done
    [ -n "$PG_BIN" ] || die "no PostgreSQL server here with a guard module; run 'make setup build' first"
    for part in postgres initdb psql pgbench pg_isready; do
        [ -x "$PG_BIN/$part" ] || die "$PG_BIN/$part is missing; install the packages postgresql and postgresql-client" \
            "of this version"
    done
}

# has_guard BIN PG_CONFIG: whether pgseal in BIN finds a guard module for this PostgreSQL.
has_guard() {
    local major
    major=$(pg_major "$2")
    [ -e "$("$2" --pkglibdir)/pgseal_guard.so" ] || [ -e "$1/../lib/pgseal/guard/$major/pgseal_guard.so" ] ||
        [ -e "$1/../guard/$major/pgseal_guard.so" ]
}

# as_ordinary_user SCRIPT ARGUMENT...: only as root. Runs SCRIPT through as-user.sh, with all its
# files below one new directory (PGSEAL_STAGE), which stays if SCRIPT succeeds.
as_ordinary_user() {
    local home child status=0
    # Short, because the paths of Unix sockets are at most 107 bytes long.
    home=$(mktemp -d /tmp/pgseal.XXXXXX) || die "cannot make a directory in /tmp"
    chmod 0755 "$home"
    # Job control gives it its own process group, see as-user.sh. Signals to this script are passed
    # on.
    set -m
    TMPDIR=$home PGSEAL_STAGE=$home "$PGSEAL_ROOT/scripts/as-user.sh" --keep -- "$@" &
    child=$!
    set +m
    trap 'status=143; kill -TERM "$child" 2>/dev/null || true' INT TERM HUP
    while kill -0 "$child" 2>/dev/null; do
        wait "$child" || status=$?
    done
    trap - INT TERM HUP
    if [ "$status" != 0 ]; then
        stop_servers_below "$home"
        rm -rf "$home"
        warn "removed $home"
    fi
    return "$status"
}
