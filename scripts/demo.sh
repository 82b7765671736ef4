#!/usr/bin/env bash
# demo.sh: makes a sealed cluster of this machine's PostgreSQL beside a plain one with the same
# data, and shows what is on disk, what damage does, what a crash does and what sealing costs. Run
# it with 'make demo', which first installs what is missing and builds. Takes less than a minute on
# two cores, listens on no TCP port, and stops every server that it started. Leaves the sealed
# cluster, and prints the commands to use and to remove it.
#
# DEMO_ROUNDS  rounds of the comparison (3)
# DEMO_BIN     directory of a program pgseal to use instead of the one of this source tree
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/stage.sh"

case ${1:-} in
'') ;;
-h | --help)
    usage
    exit 0
    ;;
*) die "unknown option $1" ;;
esac

need_built "${DEMO_BIN:-$PGSEAL_ROOT/target/release}"

if [ "$(id -u)" = 0 ]; then
    as_ordinary_user scripts/demo.sh
    exit
fi

rounds=${DEMO_ROUNDS:-3}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || die "DEMO_ROUNDS=$rounds is no number of rounds"
pgseal=${DEMO_BIN:-$PGSEAL_ROOT/target/release}/pgseal
user=$(id -un)
began=$SECONDS
umask 077
export LC_ALL=C
while IFS= read -r name; do unset "$name"; done < <(compgen -e | grep -E '^PG(HOST|HOSTADDR|PORT|DATABASE|USER|DATA|OPTIONS|SERVICE)$')

base=${TMPDIR:-/tmp}
[ ${#base} -le 60 ] || base=/tmp
dir=$(mktemp -d "$base/demo.XXXXXX") || die "cannot make a directory in $base; set TMPDIR to one that $user may write to"
key=$dir/demo.key
sealed_pid='' plain_pid='' load_pid='' finished=no

# All processes are children of this script, which stops them by their process ids.
finish() {
    local status=$? pid
    trap - EXIT
    for pid in $load_pid; do kill "$pid" 2>/dev/null || true; done
    for pid in $sealed_pid $plain_pid; do kill -INT "$pid" 2>/dev/null || true; done
    for pid in $load_pid $sealed_pid $plain_pid; do wait "$pid" 2>/dev/null || true; done
    if [ "$finished" != yes ]; then
        [ "$status" != 0 ] || status=1
        warn "stopped early (status $status)"
        for log in "$dir"/sealed.log "$dir"/plain.log "$dir"/work.log; do
            if [ -s "$log" ]; then
                warn "the last lines of ${log##*/}:"
                tail -n 5 "$log" | sed 's/^/    /' >&2
            fi
        done
        rm -rf "$dir"
    fi
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

STEPS=8
step_number=0
# step SECONDS WHAT: SECONDS is what the step takes on two idle cores.
step() {
    step_number=$((step_number + 1))
    printf '\n%d of %d. %s (about %d s)\n' "$step_number" "$STEPS" "$2" "$1"
}
show() { sed 's/^/      /'; }

# start NAME [PROGRAM...]: starts the server of cluster NAME through PROGRAM. It is a child of this
# script, so that the script can wait for it also after kill -9.
start() {
    local name=$1 pid
    shift
    "$@" "$PG_BIN/postgres" -D "$dir/$name" \
        >>"$dir/$name.log" 2>&1 </dev/null &
    pid=$!
    if [ "$name" = sealed ]; then sealed_pid=$pid; else plain_pid=$pid; fi
    for _ in $(seq 300); do
        "$PG_BIN/pg_isready" -q -h "$dir/s-$name" && return 0
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    die "the $name server did not start"
}
start_sealed() { start sealed "$pgseal" run --; }
stop_sealed() {
    kill -INT "$sealed_pid"
    wait "$sealed_pid" || die "the sealed server did not stop cleanly"
    sealed_pid=
}
sql() {
    local name=$1
    shift
    "$PG_BIN/psql" -X -q -A -t -v ON_ERROR_STOP=1 -h "$dir/s-$name" -U postgres -d "${database:-demo}" "$@"
}
work() { "$@" >>"$dir/work.log" 2>&1; }

say "pgseal demo: $("$PG_BIN/postgres" --version), unmodified; everything is below $dir
$STEPS steps, about a minute"

step 8 "Two clusters: one sealed, one plain twin (data checksums on in both)"
"$pgseal" key new -o "$key"
work "$pgseal" initdb -k -K "file:$key" --bindir "$PG_BIN" "$dir/sealed" -- --no-sync -A trust -U postgres --locale=C
work "$PG_BIN/initdb" -k -D "$dir/plain" --no-sync -A trust -U postgres --locale=C
say "   pgseal key new -o KEYFILE"
say "   pgseal initdb -k -K file:KEYFILE DIR"
say "   pgseal run -- postgres -D DIR          (the plain twin: postgres -D DIR)"
for name in sealed plain; do
    mkdir "$dir/s-$name"
    printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$dir/s-$name'" "max_wal_size = 2GB" \
        >>"$dir/$name/postgresql.conf"
done
start_sealed
start plain

step 5 "The same data into both: customers and orders of a shop, and pgbench's tables"
shop="CREATE TABLE customer (id int PRIMARY KEY, name text, card text, note text);
    INSERT INTO customer SELECT i, 'Ada Byron, house ' || i, 'card 4000 ' || lpad((i * 7919)::text, 12, '0'),
        'asks for a discount of ' || i % 90 || ' percent' FROM generate_series(1, 3000) i;
    CREATE TABLE orders (id int PRIMARY KEY, customer int, price numeric(10, 2), what text);
    INSERT INTO orders SELECT i, i % 3000 + 1, i % 1000 + 0.99, 'a present for godchild number ' || i
        FROM generate_series(1, 150000) i;"
for name in sealed plain; do
    database=postgres sql "$name" -c 'CREATE DATABASE demo'
    work "$PG_BIN/pgbench" -i -q -s 2 -h "$dir/s-$name" -U postgres demo
    sql "$name" -c "$shop"
    sql "$name" -c 'VACUUM ANALYZE'
    sql "$name" -c CHECKPOINT
done
count_rows="SELECT string_agg(t || ' ' || n, ', ' ORDER BY t) FROM (
    SELECT 'customer' t, count(*) n FROM customer UNION ALL SELECT 'orders', count(*) FROM orders
    UNION ALL SELECT 'pgbench_accounts', count(*) FROM pgbench_accounts) rows"
rows_before=$(sql sealed -c "$count_rows")
say "   rows: $rows_before"

step 1 "Search the raw files for what was loaded"
sql plain >"$dir/needles" <<'SQL'
SELECT name FROM customer WHERE id IN (1001, 2042, 2950);
SELECT card FROM customer WHERE id IN (1001, 2950);
SELECT what FROM orders WHERE id IN (100007, 140042);
SQL
[ "$(sort -u "$dir/needles" | grep -c .)" = 7 ] || die "the strings to search for were not found in the tables"
hits() { { grep -r -a -o -F -h -f "$dir/needles" "$dir/$1" || true; } | wc -l; }
sed 's/^/      looking for: /' "$dir/needles"
hits_sealed=$(hits sealed)
hits_plain=$(hits plain)
say "   grep -r in the plain twin : $hits_plain hits"
say "   grep -r in the sealed one : $hits_sealed hits"
[ "$hits_plain" -ge 7 ] || die "the search does not see plain data; it proves nothing"
[ "$hits_sealed" = 0 ] || die "the sealed cluster shows what was loaded: this is a bug in pgseal"

step 4 "Change one byte of a table on disk"
sql sealed -c 'CREATE TABLE scratch AS SELECT * FROM customer' -c 'CHECKPOINT'
table=$dir/sealed/$(sql sealed -c "SELECT pg_relation_filepath('scratch')")
stop_sealed
size=$(stat -c %s "$table")
at=$((size / 2))
byte_at() { od -An -tu1 -j "$at" -N 1 "$table" | tr -d ' '; }
put_byte() {
    # shellcheck disable=SC2059 # the format is the byte itself
    printf "\\$(printf %03o "$1")" | dd of="$table" bs=1 seek="$at" conv=notrunc status=none
}
byte=$(byte_at)
put_byte $((byte ^ 1))
say "   byte $at of ${table#"$dir/sealed/"}: $byte -> $(byte_at)"
log_lines=$(wc -l <"$dir/sealed.log")
start_sealed
if answer=$(sql sealed -c 'SELECT count(note) FROM scratch' 2>&1); then
    die "the damage was not noticed: the query answered $answer"
fi
say "   PostgreSQL answers:"
show <<<"$answer"
say "   pgseal says in the server's log:"
{ tail -n +$((log_lines + 1)) "$dir/sealed.log" | grep -m 1 'pgseal: ' || die "no line of pgseal in the log"; } | show
say "   pgseal verify finds it too:"
found=$("$pgseal" verify -q "$dir/sealed" 2>&1) && die "pgseal verify did not find the damage"
head -n 3 <<<"$found" | show
stop_sealed
put_byte "$byte"
start_sealed
say "   the byte put back, the table reads again: $(sql sealed -c 'SELECT count(note) FROM scratch') rows"
sql sealed -c 'DROP TABLE scratch'

step 5 "kill -9 under load, then recovery"
"$PG_BIN/pgbench" -n -c 4 -T 60 -h "$dir/s-sealed" -U postgres demo >"$dir/load.out" 2>&1 &
load_pid=$!
sleep 2
kill -9 "$sealed_pid"
wait "$sealed_pid" 2>/dev/null || true
wait "$load_pid" 2>/dev/null || true
load_pid=
# The backends notice that the postmaster is gone, and exit. Until then, a new server cannot start.
for _ in $(seq 100); do
    [ -n "$(servers_below "$(realpath "$dir/sealed")")" ] || break
    sleep 0.1
done
acknowledged=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' "$dir/load.out")
log_lines=$(wc -l <"$dir/sealed.log")
start_sealed
tail -n +$((log_lines + 1)) "$dir/sealed.log" | grep -E 'not properly shut down|redo (starts|done)' | cut -d ' ' -f 4- | show
rows_after=$(sql sealed -c "$count_rows")
[ "$rows_before" = "$rows_after" ] || die "rows differ after recovery: $rows_after"
committed=$(sql sealed -c 'SELECT count(*) FROM pgbench_history')
[ "$committed" -ge "${acknowledged:-0}" ] || die "$acknowledged transactions were acknowledged, $committed are there"
balanced=$(sql sealed -c "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
    AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history)")
[ "$balanced" = t ] || die "the balances do not add up after recovery"
say "   rows as before; acknowledged to clients: ${acknowledged:-unknown} transactions, found: $committed; balances add up"

step 1 "pgseal status, pgseal verify"
"$pgseal" status "$dir/sealed" | sed '/^Plain by design/,$d' | show
"$pgseal" verify "$dir/sealed" 2>/dev/null | show

# The plain server is measured twice in each round: the difference is noise.
ARMS=(plain plain-again sealed)
printf '%s\n' 'SELECT sum(price) FROM orders WHERE id % 7 <> 3;' >"$dir/scan.sql"

# sample NAME MEASURE: transactions per second of the server of cluster NAME.
sample() {
    local how=(-c 2 -T 1)
    case "$2" in
    scan) how=(-c 1 -T 1 -f "$dir/scan.sql") ;;
    select) how+=(-S) ;;
    tpc-b) ;;
    esac
    "$PG_BIN/pgbench" -n "${how[@]}" -h "$dir/s-$1" -U postgres demo 2>>"$dir/work.log" |
        sed -n 's/^tps = \([0-9.]*\).*/\1/p'
}

# compare MEASURE: prints the ratio of the medians, sealed to plain, and plain to itself. Round 0
# warms the caches.
compare() {
    local round arm
    for ((round = 0; round <= rounds; round++)); do
        for arm in $(shuf -e "${ARMS[@]}"); do
            printf '%s %s %s\n' "$round" "$arm" "$(sample "${arm%-again}" "$1")"
        done
    done | awk '
        $1 > 0 { rate[$2, ++n[$2]] = $3 }
        function median(arm, i, j, t) {
            for (i = 2; i <= n[arm]; i++)
                for (j = i; j > 1 && rate[arm, j] < rate[arm, j - 1]; j--) {
                    t = rate[arm, j]; rate[arm, j] = rate[arm, j - 1]; rate[arm, j - 1] = t
                }
            i = int((n[arm] + 1) / 2)
            return (rate[arm, i] + rate[arm, n[arm] + 1 - i]) / 2
        }
        END {
            plain = median("plain"); again = median("plain-again"); sealed = median("sealed")
            if (plain <= 0 || again <= 0 || sealed <= 0) exit 1
            printf "%10.2f %16.2f\n", sealed / plain, again / plain
        }'
}

step $((9 * (rounds + 1))) "What it costs here, now: $rounds rounds, runs interleaved in random order"
sql sealed -c CHECKPOINT
sql plain -c CHECKPOINT
printf '      %-28s %10s %16s\n' "transactions per second" sealed/plain plain/plain
for measure in scan select tpc-b; do
    figures=$(compare "$measure") || die "pgbench gave no figures for $measure; see $dir/work.log"
    case "$measure" in
    scan) name="scan of a table" ;;
    select) name="pgbench -S" ;;
    tpc-b) name="pgbench TPC-B" ;;
    esac
    printf '      %-28s %s\n' "$name" "$figures"
done
say "   (ratios of medians; the last column is the noise: plain against itself. 'make bench' measures with care)"

step 1 "What is left"
stop_sealed
kill -INT "$plain_pid"
wait "$plain_pid" || die "the plain server did not stop cleanly"
plain_pid=
rm -rf "$dir/plain" "$dir/s-plain" "$dir"/plain.log "$dir"/work.log "$dir"/load.out "$dir"/needles "$dir"/scan.sql
finished=yes
remove=$dir
as=
if [ -n "${PGSEAL_STAGE:-}" ]; then
    remove=$PGSEAL_STAGE
    as="runuser -u $user -- "
fi
cat <<TEXT
   A sealed cluster, stopped, and its key, $key. No server is running. To use it:

      D=$dir
      B=$PG_BIN
      pgseal="$as$pgseal"

      \$pgseal run -- \$B/pg_ctl -D \$D/sealed -l \$D/sealed.log start
      $as\$B/psql -h \$D/s-sealed -U postgres demo
      \$pgseal status \$D/sealed
      \$pgseal verify \$D/sealed
      \$pgseal run -- \$B/pg_ctl -D \$D/sealed stop

   To remove it, once it is stopped:

      rm -rf $remove

pgseal demo: all steps passed in $((SECONDS - began)) s
TEXT
