# shellcheck shell=bash
# Shared by demo.sh and bench.sh, after lib.sh: the helper program, and the change from root to an ordinary
# user, because PostgreSQL's servers refuse to run as root.

# The helper program: PGSEAL_BENCH, or built here.
bench_program() {
    PGSEAL_BENCH=${PGSEAL_BENCH:-$PGSEAL_ROOT/target/release/pgseal-bench}
    if [ "$PGSEAL_BENCH" = "$PGSEAL_ROOT/target/release/pgseal-bench" ] &&
        { [ -x "$HOME/.cargo/bin/cargo" ] || command -v cargo >/dev/null; }; then
        (cd "$PGSEAL_ROOT" && PATH=$PATH:$HOME/.cargo/bin cargo build --quiet --release --locked -p pgseal-bench) ||
            die "the helper program did not build; see cargo's message above"
    fi
    [ -x "$PGSEAL_BENCH" ] || die "$PGSEAL_BENCH is missing and there is no cargo to build it; run scripts/setup.sh"
}

# What 'make build' makes, and a PostgreSQL with its client programs; sets PG_BIN.
need_built() {
    local part config
    for part in target/release/pgseal target/release/libpgseal.so; do
        [ -e "$PGSEAL_ROOT/$part" ] || die "$part is missing; run 'make build' first"
    done
    # The newest of those whose guard module was built.
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

# as_ordinary_user keep|remove SCRIPT ARGUMENT...: as root only; runs SCRIPT through as-user.sh with everything
# it makes below one new directory, PGSEAL_STAGE to SCRIPT. 'keep': the directory stays if SCRIPT succeeds.
as_ordinary_user() {
    local keep=$1 flags=() home child status=0
    shift
    if [ "$keep" = keep ]; then flags=(--keep); fi
    # Short, because the paths of Unix sockets are at most 107 bytes long.
    home=$(mktemp -d /tmp/pgseal.XXXXXX) || die "cannot make a directory in /tmp"
    chmod 0755 "$home"
    install -D -m 0755 "$PGSEAL_BENCH" "$home/bin/pgseal-bench"
    # In a process group of its own, see as-user.sh; a signal to this script is handed on.
    set -m
    TMPDIR=$home PGSEAL_STAGE=$home PGSEAL_BENCH=$home/bin/pgseal-bench \
        "$PGSEAL_ROOT/scripts/as-user.sh" "${flags[@]}" -- "$@" &
    child=$!
    set +m
    trap 'status=143; kill -TERM "$child" 2>/dev/null || true' INT TERM HUP
    while kill -0 "$child" 2>/dev/null; do
        wait "$child" || status=$?
    done
    trap - INT TERM HUP
    if [ "$keep" != keep ] || [ "$status" != 0 ]; then
        stop_servers_below "$home"
        rm -rf "$home"
        [ "$status" = 0 ] || warn "removed $home"
    fi
    return "$status"
}
