# shellcheck shell=bash
# For demo.sh and bench.sh, after lib.sh: what they need, and for the demo the change from root to
# an ordinary user, because PostgreSQL's servers refuse to run as root.

# Checks that 'make build' has run and that a PostgreSQL with client programs exists; sets PG_BIN.
need_built() {
    local part config
    for part in target/release/pgseal target/release/pgseal-lab target/release/libpgseal.so; do
        [ -e "$PGSEAL_ROOT/$part" ] || die "$part is missing; run 'make build' first"
    done
    # Use the newest PostgreSQL whose guard module was built.
    PG_BIN=
    for config in $(pg_configs); do
        [ -x "$config" ] || die "$config is not a program (PG_CONFIG)"
        [ -e "$PGSEAL_ROOT/target/guard/$(pg_major "$config")/pgseal_guard.so" ] || continue
        PG_BIN=$("$config" --bindir)
    done
    [ -n "$PG_BIN" ] || die "no PostgreSQL server here with a guard module; run 'make setup build' first"
    for part in postgres initdb psql pgbench pg_isready; do
        [ -x "$PG_BIN/$part" ] || die "$PG_BIN/$part is missing; install the packages postgresql and postgresql-client" \
            "of this version"
    done
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
