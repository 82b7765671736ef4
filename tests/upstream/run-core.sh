#!/usr/bin/env bash
# run-core.sh [--major N] [--mode plain|sealed] [--limit SECONDS] [--keep]
#
# Runs PostgreSQL's core regression tests (src/test/regress, parallel_schedule) against a plain
# or a sealed server. Results: build/results/core-MAJOR-MODE/.
#
# On a busy machine a few of these tests sometimes fail although the server is correct. Therefore,
# if a test fails, all tests run once more on a new cluster, and the second run counts. There is no
# second run after a crash, after the time limit, or if pgseal wrote to the server's log.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

LIMIT_S=900
upstream_start core "$@"
results_in "$SUITE-$MAJOR-$MODE"
build_modules
PORT=54151

# attempt: runs all tests on a new cluster; sets status.
attempt() {
    cp -r "$SRC/src/test/regress" "$WORK/in"
    mkdir -p "$WORK/out/testtablespace" "$WORK/out/sql" "$WORK/out/expected"
    start_server $PORT 'max_prepared_transactions = 2' 'log_autovacuum_min_duration = 0' 'log_checkpoints = on' \
        'log_temp_files = 128kB'
    status=0
    (cd "$WORK/out" && timeout --kill-after=10 "$LIMIT_S" "${MODE_ENV[@]}" "$PGXS/src/test/regress/pg_regress" \
        --inputdir="$WORK/in" --outputdir="$WORK/out" --bindir="$BIN" --dlpath="$WORK/lib" \
        --host="$WORK" --port=$PORT --user=postgres --max-concurrent-tests=20 \
        --schedule="$WORK/in/parallel_schedule") >"$RESULTS/run.log" 2>&1 </dev/null || status=$?
}

attempt
if [ "$status" = 1 ] && [ -s "$WORK/out/regression.diffs" ] &&
    ! grep -qE 'pgseal|PANIC|was terminated by signal' "$RESULTS/server.log"; then
    cp "$WORK/out/regression.diffs" "$RESULTS/first.diffs"
    warn "$SUITE, $MODE: failed once, and runs again: $(parse_pg_regress "$RESULTS/run.log" |
        awk -F '\t' '$2 != "ok" { print $1 }' | paste -sd ' ')"
    head -n 60 "$RESULTS/first.diffs"
    stop_server
    mv "$RESULTS/server.log" "$RESULTS/first.log"
    rm -rf "$WORK/data" "$WORK/in" "$WORK/out"
    attempt
fi
finish_pg_regress "$status"
stop_server
check_what_is_on_disk "$WORK/data"
