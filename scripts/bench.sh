#!/usr/bin/env bash
# bench.sh [--quick] [--only LOAD[,LOAD...]] [--until PERCENT] [--max-time TIME] [--slice TIME]
#          [--arms ARM[,ARM...]] [--cpus LIST|none] [--output DIR] [--json]
#
# Measures what sealing costs, compared with the same PostgreSQL unsealed: 'pgseal lab cost'. It
# makes two plain clusters (their difference is the noise) and one for each suite. Their servers
# take turns of some hundred milliseconds, until the 95 % intervals of a load are narrow or its time
# is up. Prints ratios with these intervals, processor time and the floor of the bare cipher, and
# says which aims are met; the report and the raw samples go into a directory of this run in DIR
# (build/results/bench). Without --only and --json, and if cargo is installed, it then compares the
# core with the bare cipher ('cargo bench -p pgseal-core'). Exit status 24: the time of a load was
# up first.
#
#   --quick     small and short (3 minutes): shows that it works, but its figures mean little
#   --only      select-memory scan select-64mb connect tpcb insert vacuum vacuum-full ctas init, or
#               core
#   --until     the widest interval: 2%
#   --max-time  the longest time for each load: 5min
#   --slice     the length of a turn: 300ms
#   --arms      aes-256-gcm; other suites, gocryptfs, and with -without-checksums behind it a suite
#               or plain
#   --cpus      runs servers and clients together on these CPUs (default: the last CPU)
#   --json      prints the results and their analysis as JSON (spec/lab-report.md)
#
# The clusters lie below TMPDIR (as root: /tmp, of the user postgres) and take 2 GB. Do not use the
# machine meanwhile.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/stage.sh"

output=$PGSEAL_ROOT/build/results/bench
cpus=$(($(nproc) - 1))
only='' json=no
pass=()
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
    --until | --max-time | --slice | --arms)
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
need_built "$PGSEAL_ROOT/target/release" lab
if [ "$cpus" != none ]; then
    taskset -c "$cpus" true 2>/dev/null ||
        die "taskset cannot pin to CPU $cpus; install util-linux, or give --cpus LIST or --cpus none"
    pass+=(--cpus "$cpus")
fi
# The paths of Unix sockets are at most 107 bytes long.
base=${TMPDIR:-/tmp}
if [ ${#base} -gt 60 ] || [ "$(id -u)" = 0 ]; then base=/tmp; fi
[ -z "$only" ] || pass+=(--only "$only")
output=$output/$(date +%Y%m%d-%H%M%S)
status=0
"$PGSEAL_ROOT/target/release/pgseal" lab cost --bindir "$PG_BIN" --work "$base" --output "$output" "${pass[@]}" ||
    status=$?
[ "$status" = 0 ] || [ "$status" = 24 ] || exit "$status"
if [ -z "$only" ] && [ "$json" = no ]; then bench_core; fi
exit "$status"
