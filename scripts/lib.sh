# shellcheck shell=bash disable=SC2034 # its variables are for the scripts that read it
# Functions for the scripts of this project: paths, messages, options, versions of PostgreSQL.

PGSEAL_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*"; }
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
    warn "$*"
    exit 1
}

# Of a build for another architecture or C library: its name for Rust, the C compiler, options for
# make with PGXS, the root with its programs, the program that runs them, and the list of tests that
# cannot pass there. scripts/aarch64.sh and scripts/musl.sh set them.
: "${PGSEAL_CROSS:=}" "${PGSEAL_CROSS_CC:=}" "${PGSEAL_CROSS_MAKE:=}" "${PGSEAL_CROSS_ROOT:=}" "${PGSEAL_CROSS_EMULATOR:=}"
: "${PGSEAL_CROSS_SKIP:=}"

# Prints where what is built lies, relative to the project's directory.
target_dir() { say "target${PGSEAL_CROSS:+/$PGSEAL_CROSS}"; }

# run_built PROGRAM ARGUMENT...: runs a program that was built, also that of another architecture.
run_built() {
    local program=$1
    shift
    ${PGSEAL_CROSS_EMULATOR:+"$PGSEAL_CROSS_EMULATOR" -L "$PGSEAL_CROSS_ROOT"} "$(target_dir)/release/$program" "$@"
}

# make_module DIR OPTION...: runs make with PGXS, and nothing of the make that runs this script.
make_module() {
    local dir=$1
    shift
    env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -s -C "$dir" ${PGSEAL_CROSS:+CC="$PGSEAL_CROSS_CC"} \
        ${PGSEAL_CROSS_MAKE:+"$PGSEAL_CROSS_MAKE"} "$@" >/dev/null
}

# Prints the version of pgseal.
project_version() {
    sed -nE '/^\[workspace.package\]/,/^\[workspace.dep/s/^version = "(.*)"/\1/p' "$PGSEAL_ROOT/Cargo.toml"
}

# Prints the comment at the head of the running script.
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; }

# run_actions NAME KNOWN ACTION...: checks that all actions are among the known ones, calls the
# script's function "prepare", and then the function of each action, with its time.
run_actions() {
    local name=$1 known=$2 action start
    shift 2
    [ $# -gt 0 ] || die "what? (see --help)"
    for action; do
        case "$action" in
        -h | --help)
            usage
            exit 0
            ;;
        esac
        case " $known " in *" $action "*) ;; *) die "unknown action '$action'" ;; esac
    done
    prepare
    for action; do
        start=$SECONDS
        "$action"
        say "$name: $action: $((SECONDS - start)) s"
    done
}

# read_options WORDS ARGUMENT...: parses options. A word NAME=VARIABLE in WORDS declares an option
# --NAME whose value goes into VARIABLE; a word NAME:VARIABLE declares a flag that sets VARIABLE to
# "yes". Other arguments go into REST. -h prints the comment at the head of the script and exits.
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

# Prints the path of pg_config for each PostgreSQL server on this machine, oldest major version
# first. PG_CONFIG (one or more paths) overrides the search.
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

# The newest stable major version. CI tests it in addition to that of the distribution.
NEWEST_MAJOR=18

# Prints the cache directory of scripts/postgres-versions.sh.
postgres_cache() {
    local base=/var/cache
    [ "$(id -u)" = 0 ] || base=${XDG_CACHE_HOME:-$HOME/.cache}
    say "${PGSEAL_POSTGRES_CACHE:-$base/pgseal/postgres}"
}

# Prints the directory with the key stores for tests that are written in Python (scripts/setup.sh).
key_stores_dir() {
    local base=/var/cache
    [ "$(id -u)" = 0 ] || base=${XDG_CACHE_HOME:-$HOME/.cache}
    say "${PGSEAL_KEY_STORES:-$base/pgseal/key-stores}"
}

# Prints the directory with Ansible, for the tests of its role (scripts/setup.sh).
ansible_dir() {
    local base=/var/cache
    [ "$(id -u)" = 0 ] || base=${XDG_CACHE_HOME:-$HOME/.cache}
    say "${PGSEAL_ANSIBLE:-$base/pgseal/ansible}"
}

# pg_config_of MAJOR: prints the path of the distribution's pg_config, or else of that in the cache;
# fails if there is none.
pg_config_of() {
    local cached path=/usr/lib/postgresql/$1/bin
    cached=$(postgres_cache)/$1
    # A server in the cache is complete if the file "origin" exists.
    if [ ! -x "$path/postgres" ] && [ -e "$cached/origin" ]; then path=$cached/$(cat "$cached/bindir"); fi
    [ -x "$path/postgres" ] || return 1
    say "$path/pg_config"
}

# The default major version for upstream suites: PGSEAL_PG_MAJOR, or else 15, or else the newest.
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

# install_file MODE SOURCE TARGET: installs a file atomically, by a rename. Running servers keep the
# old library that they have mapped, and no program ever sees an incomplete file.
install_file() {
    local mode=$1 source=$2 target=$3
    install -d "$(dirname "$target")"
    install -m "$mode" "$source" "$target.new.$$"
    mv -f "$target.new.$$" "$target"
    say "installed $target"
}

# Stops every PostgreSQL process whose working directory is $1 or below it (that of a server is its
# data directory), so that no server survives a test run, even if the run failed.
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
