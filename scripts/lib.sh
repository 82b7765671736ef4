# shellcheck shell=bash disable=SC2034 # its variables are for the scripts that read it
# Shared by the scripts of this project: where the tree is, how to speak, how to stop.

PGSEAL_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*"; }
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
    warn "$*"
    exit 1
}

# The PostgreSQL majors with a server here, as the paths of their pg_config, oldest first.
# PG_CONFIG (one or more paths) overrides what is found.
pg_configs() {
    local path
    if [ -n "${PG_CONFIG:-}" ]; then
        # shellcheck disable=SC2086 # a list of paths
        printf '%s\n' $PG_CONFIG
        return
    fi
    for path in /usr/lib/postgresql/*/bin/postgres; do
        if [ -x "$path" ]; then printf '%s\n' "${path%/postgres}/pg_config"; fi
    done | sort -V
}

# Major version of the server that pg_config $1 belongs to.
pg_major() {
    "$1" --version | sed -E 's/^PostgreSQL ([0-9]+).*/\1/'
}

# install_file MODE SOURCE TARGET: in one step, by a rename. A library that running servers have mapped keeps
# its bytes, and nobody ever meets half a file.
install_file() {
    local mode=$1 source=$2 target=$3
    install -d "$(dirname "$target")"
    install -m "$mode" "$source" "$target.new.$$"
    mv -f "$target.new.$$" "$target"
    say "installed $target"
}

# Ends every PostgreSQL process whose working directory is $1 or below it (servers and their backends work
# in their data directory), so that no server outlives a test run, whatever happened to it.
stop_servers_below() {
    local dir signal pids
    dir=$(realpath "$1" 2>/dev/null) || return 0
    for signal in INT QUIT KILL; do
        pids=$(servers_below "$dir")
        [ -z "$pids" ] && return 0
        # shellcheck disable=SC2086 # a list of process ids
        kill -"$signal" $pids 2>/dev/null || true
        for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            [ -z "$(servers_below "$dir")" ] && return 0
            sleep 0.25
        done
    done
}

servers_below() {
    local link cwd
    for link in /proc/[0-9]*/cwd; do
        cwd=$(readlink "$link" 2>/dev/null) || continue
        case "$cwd" in
        "$1" | "$1"/*) ;;
        *) continue ;;
        esac
        case "$(readlink "${link%/cwd}/exe" 2>/dev/null)" in
        */postgres | */postgres\ *) basename "${link%/cwd}" ;;
        esac
    done
}
