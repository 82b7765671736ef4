#!/usr/bin/env bash
# workload.sh NAME...: runs workloads/NAME.sql on a plain and on a sealed cluster, in the clean
# root, as PostgreSQL's user.
#
# First the part of the file before "-- after kill -9" runs. Then the script kills the postmaster
# and searches the raw data directory for the marker canary-NAME-Zq7x. The server recovers, and the
# rest of the file runs. Then the script reads the content of each table and checks the indexes, and
# 'pgseal verify' must find the stopped sealed cluster sound. workloads/NAME.sh, if it exists, runs
# after the first part (argument "load") and after the rest ("after"). The output of both clusters
# must be the same, byte for byte.
#
# Comments at the head of the file:
#   -- tried: WORDS                     what the workload tries, for the table
#   -- extensions: NAMES
#   -- packages: NAMES                  packages that are not extensions
#   -- preload: MODULES
#   -- setting: LINE                    a line of postgresql.conf
#   -- normalise: SCRIPT                a sed script for the output
#   -- ignore: REGEXP                   tables whose rows always differ
#   -- release: SUITE MAJOR PACKAGES    see scripts/extensions.sh
#
# Results: results/NAME/, and in results/workloads.tsv one line per workload: NAME, same|DIFFERENT,
# the versions, what was tried, and the differences.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

head_of() { sed -nE "s/^-- $2: (.*)/\1/p" "$HERE/workloads/$1.sql"; }

# Prints the number of rows of each table and a hash of the rows.
contents() {
    local ignore=$1
    psql -X -A -t -q -d w <<SQL 2>&1
SELECT format('SELECT %L, count(*), md5(coalesce(string_agg(t::text, chr(10) ORDER BY t::text COLLATE "C"), '''')) FROM ONLY %I.%I t',
    nspname || '.' || relname, nspname, relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
WHERE relkind IN ('r', 'm') AND nspname !~ '^pg_(catalog|toast|temp)|^information_schema\$'
    AND nspname || '.' || relname !~ '${ignore:-^ignore nothing\$}' AND relpersistence = 'p'
ORDER BY nspname COLLATE "C", relname COLLATE "C" \gexec
SQL
}

# run MODE NAME: runs all steps on one cluster and writes the output to results/NAME/MODE.
run() {
    local mode=$1 name=$2 out=$RESULTS/$2/$1 normalise marker settings=() preload part
    rm -rf "$out"
    mkdir -p "$out"
    marker=canary-$name-Zq7x
    mapfile -t settings < <(head_of "$name" setting)
    preload=$(head_of "$name" preload)
    normalise=$(head_of "$name" normalise)
    new_cluster "$mode" "$preload" "${settings[@]}"
    rm -rf "$W/scratch"
    mkdir "$W/scratch"
    sed '/^-- after kill -9/,$d' "$HERE/workloads/$name.sql" >"$HERE/workloads/.load.sql"
    sed '1,/^-- after kill -9/d' "$HERE/workloads/$name.sql" >"$HERE/workloads/.after.sql"

    start_server "$mode" "$out/server.log" || {
        say "the server does not start: $(tail -n 3 "$out/server.log")" >"$out/load.out"
        return 0
    }
    psql -X -q -d postgres -c "CREATE DATABASE w" </dev/null >"$out/load.out" 2>&1 || true
    for part in load after; do
        run_sql w "$HERE/workloads/.$part.sql" >>"$out/$part.out" || true
        if [ -e "$HERE/workloads/$name.sh" ]; then
            (cd "$W/scratch" && MODE=$mode SCRATCH=$W/scratch bash "$HERE/workloads/$name.sh" $part) \
                >>"$out/$part.out" 2>&1 </dev/null 9>&- || say "the script ended with $?" >>"$out/$part.out"
        fi
        if [ $part = load ]; then
            kill9_server >>"$out/load.out" || true
            perl "$HERE/scan.pl" "$marker" "$DATA" | sed "s#^$DATA/##" >"$out/shown-after-kill"
            start_server "$mode" "$out/server.log" || {
                say "no recovery: $(tail -n 3 "$out/server.log")" >>"$out/after.out"
                return 0
            }
        fi
    done
    contents "$(head_of "$name" ignore)" >"$out/contents.out"
    pg_amcheck --no-strict-names --install-missing --heapallindexed -d w >"$out/amcheck.out" 2>&1 </dev/null || true
    stop_server >>"$out/after.out" || say "no orderly end" >>"$out/after.out"
    perl "$HERE/scan.pl" "$marker" "$DATA" | sed "s#^$DATA/##" >"$out/shown-at-end"
    if [ "$mode" = sealed ]; then
        pgseal verify "$DATA" >"$out/verify.out" 2>&1 || say "exit status $?" >>"$out/verify.out"
    fi
    for part in load after contents amcheck; do
        [ -z "$normalise" ] || sed -i -E "$normalise" "$out/$part.out"
    done
}

versions() {
    local name
    {
        for name in $(head_of "$1" extensions); do
            sed -nE "s/^default_version *= *'?([^']*).*/$name \1/p" "/usr/share/postgresql/$MAJOR/extension/$name.control"
        done
        for name in $(head_of "$1" packages); do
            dpkg-query -W -f '${Package} ${Version}\n' "$name"
        done
        [ -z "$(head_of "$1" release)" ] || postgres --version | sed -E 's/^[^0-9]*([0-9.]+) [(](.*)[)]/PostgreSQL \1 (\2)/'
    } | paste -sd ',' | sed 's/,/, /g'
}

# judge NAME: prints the workload's line for results/workloads.tsv.
judge() {
    local name=$1 plain=$RESULTS/$1/plain sealed=$RESULTS/$1/sealed part faults=()
    for part in load after contents amcheck; do
        touch "$plain/$part.out" "$sealed/$part.out"
        cmp -s "$plain/$part.out" "$sealed/$part.out" || {
            diff "$plain/$part.out" "$sealed/$part.out" >"$RESULTS/$name/$part.diff" || true
            faults+=("$part: $(grep -c '^[<>]' "$RESULTS/$name/$part.diff") lines differ")
        }
    done
    # The search must find the marker in the plain cluster; otherwise finding no marker in the
    # sealed cluster proves nothing.
    [ -s "$plain/shown-after-kill" ] || faults+=("the plain cluster does not show the marker")
    for part in shown-after-kill shown-at-end; do
        [ ! -s "$sealed/$part" ] ||
            faults+=("IN THE CLEAR ($part): $(cut -f 1 "$sealed/$part" | sed -E 's#/[^/]*$##' | sort | uniq -c |
                awk '{ print $1 " files in " $2 }' | head -n 4 | paste -sd ',')")
    done
    grep -q '^Sound\.' "$sealed/verify.out" 2>/dev/null || faults+=("verify: $(tail -n 1 "$sealed/verify.out" 2>/dev/null)")
    for part in PANIC 'terminated by signal' 'TRAP:'; do
        [ "$(grep -c "$part" "$plain/server.log")" = "$(grep -c "$part" "$sealed/server.log")" ] || faults+=("$part in the log")
    done
    part=$(grep -oE 'pgseal: .*' "$sealed/server.log" | grep -vE 'pgseal: (recovered|info)' | sort -u | head -n 1 || true)
    if [ ${#faults[@]} = 0 ]; then
        printf '%s\tsame\t%s\t%s\t%s\n' "$name" "$(versions "$name")" "$(head_of "$name" tried)" "${part//$'\t'/ }"
    else
        printf '%s\tDIFFERENT\t%s\t%s\t%s\n' "$name" "$(versions "$name")" "$(head_of "$name" tried)" \
            "$(IFS=';'; say "${faults[*]}")${part:+; log: ${part//$'\t'/ }}"
    fi
}

mkdir -p "$RESULTS"
touch "$RESULTS/workloads.tsv"
for name; do
    [ -e "$HERE/workloads/$name.sql" ] || die "there is no workload $name"
    began=$SECONDS
    rm -rf "${RESULTS:?}/$name"
    run plain "$name"
    end_server
    run sealed "$name"
    end_server
    line=$(judge "$name")
    grep -v "^$name	" "$RESULTS/workloads.tsv" >"$RESULTS/workloads.new" || true
    { cat "$RESULTS/workloads.new"; say "$line"; } | LC_ALL=C sort >"$RESULTS/workloads.tsv"
    rm "$RESULTS/workloads.new"
    printf '%-18s %-10s %3s s  %s\n' "$name" "$(cut -f 2 <<<"$line")" $((SECONDS - began)) "$(cut -f 5 <<<"$line")"
done
