#!/usr/bin/env bash
# create.sh: runs CREATE EXTENSION for every extension of the server, each in its own database, LOAD
# for every module, and --version of every program, on a plain and on a sealed cluster. Runs in the
# clean root as PostgreSQL's user. Modules that have to be in shared_preload_libraries are there. At
# the end the script kills the postmaster, and the server recovers.
#
# Results: results/create/, and in results/create.tsv one line per package: PACKAGE, same|DIFFERENT,
# the version, the extensions, modules and programs, and the differences.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

PRELOAD=pg_stat_statements,pg_cron,pglogical,pgaudit,pgauditlogtofile,pg_qualstats,pg_stat_kcache,pg_wait_sampling
PRELOAD=$PRELOAD,bgw_replstatus,plugin_debugger,repmgr,set_user,pglogical_ticker,pg_prewarm
PRELOAD=$PRELOAD,pg_partman_bgw,pgextwlist,pgmemcache,omnidb_plpgsql_debugger,auto_explain,pgl_ddl_deploy,pg_fact_loader
# Not in PRELOAD: plprofiler (together with the others it prevents the server's start: "requested
# tranche is not registered"), pgautofailover (its workers stay connected to every database), and
# powa (its worker outlives the postmaster). Each extension in APART has its own server.
APART=(plprofiler pgautofailover)
SETTINGS=("wal_level = logical" "track_commit_timestamp = on" "max_worker_processes = 60" "max_replication_slots = 10"
    "cron.database_name = 'pg_cron'" "max_connections = 200")
EXTENSIONS=/usr/share/postgresql/$MAJOR/extension
MODULES=/usr/lib/postgresql/$MAJOR/lib

# An extension's version, schema and number of objects by catalog; all are the same on every server.
objects="SELECT extname, extversion, nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = extnamespace ORDER BY 1;
SELECT classid::regclass, count(*) FROM pg_depend WHERE deptype = 'e' GROUP BY 1 ORDER BY 1::text;"

run() {
    local mode=$1 out=$RESULTS/create/$1 name
    rm -rf "$out"
    mkdir -p "$out/extension" "$out/module" "$out/program"
    start "$mode" "$(usable_preload)"
    for name in $(all extension); do
        [[ " ${APART[*]} " == *" $name "* ]] || create "$name" "$out"
    done
    for name in $(all module); do
        sql postgres -c "LOAD '$name'" >"$out/module/$name" 2>&1 || true
    done
    for name in $(all program); do
        under "$mode" timeout 20 "$BIN/$name" --version >"$out/program/$name" 2>&1 </dev/null 9>&- ||
            say "exit status $?" >>"$out/program/$name"
    done
    kill9_server || true
    start_server "$mode" "$out/server.log" || die "the $mode server does not start again; see server.log"
    stop_server || true
    [ "$mode" = plain ] || pgseal verify "$DATA" >"$out/verify.out" 2>&1 || say "exit status $?" >>"$out/verify.out"
    for name in "${APART[@]}"; do
        [ -e "$EXTENSIONS/$name.control" ] || continue
        start "$mode" "$name"
        create "$name" "$out"
        kill9_server || true
        start_server "$mode" "$out/server.log" || die "the $mode server with $name does not start again; see server.log"
        kill9_server || true
    done
}

start() {
    new_cluster "$1" "$2" "${SETTINGS[@]}"
    start_server "$1" "$out/server.log" || {
        tail -n 5 "$out/server.log"
        die "the $1 server does not start with $2"
    }
}

sql() { timeout 60 psql -X -q -d "$@" </dev/null 9>&-; }

# create EXTENSION OUT: creates a database and in it the extension. The database is not dropped,
# because DROP DATABASE would wait forever for some extensions' workers.
create() {
    {
        sql postgres -c "CREATE DATABASE \"$1\"" &&
            sql "$1" -c "CREATE EXTENSION \"$1\" CASCADE" -c "$objects"
    } >"$2/extension/$1" 2>&1 || true
}

usable_preload() {
    local name usable=()
    for name in ${PRELOAD//,/ }; do [ ! -e "$MODULES/$name.so" ] || usable+=("$name"); done
    (IFS=,; say "${usable[*]}")
}

# all extension|module|program: prints the names of all extensions, modules or programs.
all() {
    case "$1" in
    extension) find "$EXTENSIONS" -name '*.control' -printf '%f\n' | sed 's/\.control$//' | grep -vx plpgsql ;;
    module) find "$MODULES" -maxdepth 1 -name '*.so' -printf '%f\n' | sed 's/\.so$//' ;;
    program) packages | xargs -n 1 dpkg -L | sed -nE "s#^$BIN/([^/]+)\$#\1#p" | grep -vx 'postgres\|postmaster' ;;
    esac | LC_ALL=C sort
}

packages() { cat /etc/pgseal-packages && dpkg-query -W -f '${Package} ${db:Status-Status}\n' "postgresql-$MAJOR" "postgresql-pl*-$MAJOR" | sed -n 's/ installed$//p'; }

# contents KIND PACKAGE: prints the package's extensions, modules or programs.
contents() {
    dpkg -L "$2" | case $1 in
    extension) sed -nE "s#^$EXTENSIONS/(.*)\.control\$#\1#p" ;;
    module) sed -nE "s#^$MODULES/([^/]*)\.so\$#\1#p" ;;
    program) sed -nE "s#^$BIN/([^/]+)\$#\1#p" ;;
    esac | LC_ALL=C sort
}

# in_words KIND NAME...: prints the names, or only their number if there are more than 12.
in_words() {
    local kind=$1 names
    shift
    [ $# -gt 0 ] || return 0
    names=$(printf '%s\n' "$@" | paste -sd ',' | sed 's/,/, /g')
    if [ $# -gt 12 ]; then say "$# ${kind}s"; elif [ $# -gt 1 ]; then say "${kind}s $names"; else say "$kind $names"; fi
}

judge() {
    local package kind name names plain sealed faults has
    for package in $(packages | sort -u); do
        faults=() has=()
        for kind in extension module program; do
            mapfile -t names < <(contents "$kind" "$package")
            has+=("$(in_words "$kind" "${names[@]}")")
            for name in "${names[@]}"; do
                plain=$RESULTS/create/plain/$kind/$name sealed=$RESULTS/create/sealed/$kind/$name
                [ -e "$plain" ] || continue
                cmp -s "$plain" "$sealed" ||
                    faults+=("$kind $name: $(diff "$plain" "$sealed" | sed -n 's/^> //p' | head -n 1 | tr '\t' ' ' || true)")
            done
        done
        printf '%s\t%s\t%s\t%s\t%s\n' "$package" "$([ ${#faults[@]} = 0 ] && say same || say DIFFERENT)" \
            "$(dpkg-query -W -f '${Version}' "$package")" \
            "$(printf '%s\n' "${has[@]}" | grep . | paste -sd ';' | sed 's/;/; /g' | grep . || say 'no extension, module or program')" \
            "$(IFS=';'; say "${faults[*]}" | cut -c 1-300)"
    done
    if grep -q '^Sound\.' "$RESULTS/create/sealed/verify.out"; then
        printf 'recovery\tsame\t-\tkill -9 behind all of it, recovery, pgseal verify\t\n'
    else
        printf 'recovery\tDIFFERENT\t-\tkill -9 behind all of it, recovery, pgseal verify\t%s\n' \
            "$(tail -n 1 "$RESULTS/create/sealed/verify.out")"
    fi
}

mkdir -p "$RESULTS"
for mode in plain sealed; do
    began=$SECONDS
    run $mode
    end_server
    say "create, $mode: $(all extension | wc -l) extensions, $(all module | wc -l) modules, $(all program | wc -l) programs: $((SECONDS - began)) s"
done
judge >"$RESULTS/create.new"
mv "$RESULTS/create.new" "$RESULTS/create.tsv"
awk -F '\t' '$2 != "same" { print $1 ": " $5 }' "$RESULTS/create.tsv"
say "create: $(awk -F '\t' '$2 == "same"' "$RESULTS/create.tsv" | wc -l) of $(wc -l <"$RESULTS/create.tsv") packages the same"
