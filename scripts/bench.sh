#!/usr/bin/env bash
# bench.sh [--quick] [--only NAME[,NAME...]] [--rounds N] [--suites SUITE[,SUITE...]] [--cpus LIST|none]
#          [--output DIR] [--json]
#
# What sealing costs, against the same PostgreSQL unsealed: clusters of its own, two plain (their difference
# is the noise) and one for each suite, measured in rounds, each round in a random order. Prints a table of
# ratios with 95 % intervals; raw samples go into a file in DIR (build/results/bench). Then, without --only
# and where there is a cargo, the core alone against the bare cipher ('cargo bench -p pgseal-core').
#
#   --quick    small and short (2 minutes): shows that it works, its figures mean little
#   --only     select-memory scan select-64mb connect tpcb vacuum vacuum-full ctas init, or core
#   --rounds   rounds that count (11; with --quick 3)
#   --suites   aes-256-gcm,aes-256-xts
#   --cpus     server and client together on these CPUs, for taskset (the last one)
#
# The clusters lie below TMPDIR (as root: /tmp), 2 GB in all. Leave the machine alone meanwhile.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/stage.sh"

output=$PGSEAL_ROOT/build/results/bench
cpus=$(($(nproc) - 1))
only='' json=no
pass=()
arguments=("$@")
value() { [ $# -gt 1 ] || die "$1 needs a value"; }
while [ $# -gt 0 ]; do
    case "$1" in
    --quick) pass+=(--quick) ;;
    --json) json=yes pass+=(--json) ;;
    --only)
        value "$@"
        only=$2
        shift
        ;;
    --rounds | --suites)
        value "$@"
        pass+=("$1" "$2")
        shift
        ;;
    --cpus)
        value "$@"
        cpus=$2
        shift
        ;;
    --output)
        value "$@"
        output=$2
        shift
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    *) die "unknown option $1; --help lists them" ;;
    esac
    shift
done

bench_core() {
    [ -d "$PGSEAL_ROOT/crates/pgseal-core/benches" ] || return 0
    [ -z "${PGSEAL_STAGE:-}" ] && command -v cargo >/dev/null || return 0
    say ""
    say "The core alone against the bare cipher:"
    (cd "$PGSEAL_ROOT" && cargo bench --quiet --locked -p pgseal-core)
}

if [ "$only" = core ]; then
    bench_core
    exit
fi
need_built
bench_program
[ "$cpus" = none ] || taskset -c "$cpus" true 2>/dev/null ||
    die "taskset cannot pin to CPU $cpus; install util-linux, or give --cpus LIST or --cpus none"

if [ "$(id -u)" = 0 ]; then
    as_ordinary_user remove scripts/bench.sh "${arguments[@]}" --output build/results/bench
    results=$PGSEAL_ROOT/build/results/bench
    if [ "$(realpath -m "$output")" != "$(realpath -m "$results")" ]; then
        mkdir -p "$output"
        # shellcheck disable=SC2012 # names of our own making
        cp "$(ls -t "$results"/bench-*.json | head -n 1)" "$output/"
        say "raw samples: $output"
    fi
else
    while IFS= read -r name; do unset "$name"; done < <(compgen -e | grep -E '^PG[A-Z]+$')
    base=${TMPDIR:-/tmp}
    [ ${#base} -le 60 ] || base=/tmp
    dir=$(mktemp -d "$base/bench.XXXXXX") || die "cannot make a directory in $base; set TMPDIR"
    trap 'stop_servers_below "$dir"; rm -rf "$dir"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    [ -z "$only" ] || pass+=(--only "$only")
    "$PGSEAL_BENCH" run --bindir "$PG_BIN" --pgseal "$PGSEAL_ROOT/target/release/pgseal" --work "$dir" \
        --output "$output" --cpus "$cpus" "${pass[@]}"
fi
if [ -z "$only" ] && [ "$json" = no ]; then bench_core; fi
