#!/usr/bin/env bash
# run-core.sh [--major N] [--mode plain|sealed] [--limit SECONDS] [--keep]
#
# PostgreSQL's core regression tests (src/test/regress, parallel_schedule) against a plain or a sealed server.
# Results: build/results/core-MAJOR-MODE/.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

LIMIT_S=900
upstream_start core "$@"
results_in "$SUITE-$MAJOR-$MODE"
build_modules
cp -r "$SRC/src/test/regress" "$WORK/in"
mkdir -p "$WORK/out/testtablespace" "$WORK/out/sql" "$WORK/out/expected"
PORT=54151
start_server $PORT 'max_prepared_transactions = 2' 'log_autovacuum_min_duration = 0' 'log_checkpoints = on' \
    'log_temp_files = 128kB'

status=0
(cd "$WORK/out" && timeout --kill-after=10 "$LIMIT_S" "${MODE_ENV[@]}" "$PGXS/src/test/regress/pg_regress" \
    --inputdir="$WORK/in" --outputdir="$WORK/out" --bindir="$BIN" --dlpath="$WORK/lib" \
    --host="$WORK" --port=$PORT --user=postgres --max-concurrent-tests=20 \
    --schedule="$WORK/in/parallel_schedule") >"$RESULTS/run.log" 2>&1 </dev/null || status=$?
finish_pg_regress "$status"
stop_server
check_what_is_on_disk "$WORK/data"
