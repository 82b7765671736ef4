# shellcheck shell=bash disable=SC2034 # its variables are for the scripts that read it
# Shared by the scripts of this project: where the tree is, how to speak, how to stop.

PGSEAL_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*"; }
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
    warn "$*"
    exit 1
}

# The comment at the head of the script that runs.
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; }

# read_options WORDS ARGUMENT...: for a word NAME=VARIABLE of WORDS the option --NAME sets VARIABLE to its value, for
# NAME:VARIABLE to "yes"; what is no option becomes REST. -h prints the comment at the head of the script, and ends it.
read_options() {
    local words=$1 option known
    shift
    REST=()
    while [ $# -gt 0 ]; do
        option=$1
        shift
        case "$option" in
        -h | --help)
            usage
            exit 0
            ;;
        -*) ;;
        *)
            REST+=("$option")
            continue
            ;;
        esac
        for known in $words; do
            case "$known" in
            "${option#--}="*)
                [ $# -gt 0 ] || die "$option needs a value"
                printf -v "${known#*=}" %s "$1"
                shift
                continue 2
                ;;
            "${option#--}:"*)
                printf -v "${known#*:}" yes
                continue 2
                ;;
            esac
        done
        die "unknown option $option"
    done
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

# The newest stable major; CI runs it beside the distribution's own.
NEWEST_MAJOR=18

# Where scripts/postgres-versions.sh keeps what it got.
postgres_cache() {
    local base=/var/cache
    [ "$(id -u)" = 0 ] || base=${XDG_CACHE_HOME:-$HOME/.cache}
    say "${PGSEAL_POSTGRES_CACHE:-$base/pgseal/postgres}"
}

# pg_config_of MAJOR: the distribution's, else the one in the cache; fails if there is none.
pg_config_of() {
    local cached path=/usr/lib/postgresql/$1/bin
    cached=$(postgres_cache)/$1
    # What is in the cache is whole when its origin is noted.
    if [ ! -x "$path/postgres" ] && [ -e "$cached/origin" ]; then path=$cached/$(cat "$cached/bindir"); fi
    [ -x "$path/postgres" ] || return 1
    say "$path/pg_config"
}

# The major that upstream suites run against if none is asked for: PGSEAL_PG_MAJOR, else 15, else the newest.
default_major() {
    local majors
    if [ -n "${PGSEAL_PG_MAJOR:-}" ]; then
        say "$PGSEAL_PG_MAJOR"
        return
    fi
    majors=$(pg_configs | while read -r config; do pg_major "$config"; done)
    [ -n "$majors" ] || return 0
    grep -x 15 <<<"$majors" || tail -n 1 <<<"$majors"
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
