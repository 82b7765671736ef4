# shellcheck shell=bash
# Shared by the scripts that run inside the clean root of scripts/extensions.sh, as PostgreSQL's
# user. A plain and a sealed cluster use the same directory one after the other, so that their
# output has the same paths. Whenever the script exits, it stops a server that still runs.
# Descriptor 9 is the script's standard error; no started program inherits it.

MAJOR=${EXTENSIONS_MAJOR:-15}
BIN=/usr/lib/postgresql/$MAJOR/bin
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
RESULTS=$HERE/results
W=/srv/extensions
DATA=$W/data
PORT=5415
export LC_ALL=C.UTF-8 HOME=$W PATH=$BIN:/usr/local/bin:/usr/bin:/bin:/usr/sbin
export PGHOST=$W PGPORT=$PORT PGUSER=postgres PGTZ=UTC PGDATESTYLE=ISO PGCONNECT_TIMEOUT=60
unset PGDATABASE PGDATA
POSTMASTER=

say() { printf '%s\n' "$*"; }
die() {
    printf 'extensions: %s\n' "$*" >&2
    exit 1
}

exec 9>&2
finish() {
    local status=$?
    trap - EXIT
    end_server
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

# under MODE PROGRAM...: runs a program of PostgreSQL, in sealed mode through 'pgseal run'.
under() {
    local mode=$1
    shift
    if [ "$mode" = sealed ]; then pgseal run -- "$@"; else "$@"; fi
}

# make_template MODE: creates a cluster that is never started; new clusters are copies of it.
make_template() {
    local mode=$1 options=(-U postgres --auth=trust --no-sync --locale=C.UTF-8 -E UTF8 --wal-segsize=4)
    rm -rf "$W/$mode-template"
    if [ "$mode" = sealed ]; then
        [ -e "$W/key" ] || pgseal key new -o "$W/key" >/dev/null
        pgseal initdb -k -K "file:$W/key" --bindir "$BIN" -D "$W/$mode-template" -- "${options[@]}"
    else
        initdb -k -D "$W/$mode-template" "${options[@]}"
    fi >"$RESULTS/initdb-$mode.log" 2>&1 || {
        tail -n 5 "$RESULTS/initdb-$mode.log"
        die "initdb, $mode"
    }
}

# new_cluster MODE PRELOAD [SETTING...]
new_cluster() {
    local mode=$1 preload=$2
    shift 2
    [ -e "$W/$mode-template/PG_VERSION" ] || make_template "$mode"
    rm -rf "$DATA"
    cp -a "$W/$mode-template" "$DATA"
    [ "$mode" = plain ] || preload=pgseal_guard${preload:+,$preload}
    {
        say "shared_preload_libraries = '$preload'"
        say "port = $PORT"
        say "unix_socket_directories = '$W'"
        say "listen_addresses = ''"
        # The tests kill processes, not the machine, so fsync is not needed.
        say "fsync = off"
        say "autovacuum = off"
        say "max_wal_size = 256MB"
        say "max_parallel_workers_per_gather = 0"
        # pgseal's messages on behalf of a backend go to the server's log; %b is the backend type.
        say "log_line_prefix = '%b: '"
        printf '%s\n' "$@"
    } >>"$DATA/postgresql.conf"
}

# start_server MODE LOG
start_server() {
    local mode=$1 log=$2 lines
    # POSTMASTER must be the process ID of the postmaster itself, which is killed later. Therefore
    # setsid starts in the background, without a subshell, and no descriptor of this script is open.
    if [ "$mode" = sealed ]; then
        setsid pgseal run -- "$BIN/postgres" -D "$DATA" >>"$log" 2>&1 </dev/null 9>&- &
    else
        setsid "$BIN/postgres" -D "$DATA" >>"$log" 2>&1 </dev/null 9>&- &
    fi
    POSTMASTER=$!
    for _ in $(seq 1200); do
        # The whole file is read at once, and the process ID is compared: after kill -9 the file of
        # the last server is still there.
        mapfile -t lines < <(cat "$DATA/postmaster.pid" 2>/dev/null)
        [ "${lines[0]:-} ${lines[7]:-}" != "$POSTMASTER ready   " ] || return 0
        kill -0 "$POSTMASTER" 2>/dev/null || break
        sleep 0.05
    done
    wait "$POSTMASTER" 2>/dev/null || true
    return 1
}

# Prints the processes whose current directory is the data directory: the postmaster, its backends,
# and their children.
in_data() {
    local dir
    for dir in /proc/[0-9]*; do
        if [ "$dir/cwd" -ef "$DATA" ]; then say "${dir#/proc/}"; fi
    done
}

# Waits until no process has the data directory as its current directory. If one remains after 20 s,
# prints its command line, kills it, and returns 1.
await_end() {
    local pid
    for _ in $(seq 200); do
        [ -n "$(in_data)" ] || return 0
        sleep 0.1
    done
    for pid in $(in_data); do
        say "stays: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
        kill -KILL "$pid" 2>/dev/null || true
    done
    return 1
}

kill9_server() {
    kill -KILL "$POSTMASTER"
    wait "$POSTMASTER" 2>/dev/null || true
    await_end
}

stop_server() {
    kill -INT "$POSTMASTER" 2>/dev/null || return 1
    local status=0
    wait "$POSTMASTER" || status=$?
    await_end && [ "$status" = 0 ]
}

# Ends the server and its children in any state, at the end of a script.
end_server() {
    local pid
    [ -z "$POSTMASTER" ] || kill -QUIT "$POSTMASTER" 2>/dev/null || true
    for _ in $(seq 100); do
        [ -n "$(in_data)" ] || return 0
        sleep 0.1
    done
    for pid in $(in_data); do kill -KILL "$pid" 2>/dev/null || true; done
}

# run_sql DATABASE FILE: prints each statement with its output and errors. A statement that hangs is
# cancelled after 150 s.
run_sql() { (cd "$HERE/workloads" && PGOPTIONS="-c statement_timeout=150s" psql -X -a -q -d "$1" -f "$2" 2>&1 </dev/null 9>&-); }
ask() { psql -X -A -t -q -v ON_ERROR_STOP=1 -d "$1" -c "$2" </dev/null 9>&-; }
