#!/usr/bin/env bash
# run-isolation.sh [--major N] [--mode plain|sealed] [--limit SECONDS] [--keep]
#
# Runs PostgreSQL's isolation tests (src/test/isolation) against a plain or a sealed server.
# Results: build/results/isolation-MAJOR-MODE/.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

LIMIT_S=900
upstream_start isolation "$@"
results_in "$SUITE-$MAJOR-$MODE"
cp -r "$SRC/src/test/isolation" "$WORK/in"
mkdir -p "$WORK/out"
PORT=54152
# Without prepared transactions three tests would use their "not supported" expected output.
start_server $PORT 'max_prepared_transactions = 3'

status=0
(cd "$WORK/out" && timeout --kill-after=10 "$LIMIT_S" "${MODE_ENV[@]}" \
    "$PGXS/src/test/isolation/pg_isolation_regress" --inputdir="$WORK/in" --outputdir="$WORK/out" \
    --bindir="$BIN" --host="$WORK" --port=$PORT --user=postgres \
    --schedule="$WORK/in/isolation_schedule") >"$RESULTS/run.log" 2>&1 </dev/null || status=$?
finish_pg_regress "$status"
stop_server
check_what_is_on_disk "$WORK/data"
