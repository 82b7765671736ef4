#!/usr/bin/env bash
# extension.sh build|install|uninstall|test|memcheck|drivers
#
# The extension pgseal, for each PostgreSQL on this machine or those of PG_CONFIG:
#   build      builds it with PGXS in a copy of server/extension/, in target/extension/MAJOR/; needs
#              the release build of pgseal-column
#   install    installs it where that server looks for modules and extensions, below DESTDIR
#   test       runs its tests against a private copy of the installation, as an ordinary user
#              (server/extension/test/run.sh)
#   memcheck   tests every type under valgrind, in a server of one process
#   drivers    tests psycopg, asyncpg, node-postgres, pgx, JDBC and others against a real server;
#              downloads them
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

action=${1:-}
library=$PGSEAL_ROOT/$(target_dir)/release/libpgseal_column.a

# compile CONFIG WORK: builds in a copy for each major version, since PGXS builds in place.
compile() {
    local config=$1 work=$2
    rm -rf "$work"
    mkdir -p "$work"
    cp server/extension/Makefile server/extension/*.[ch] server/extension/pgseal.control server/extension/*.sql "$work/"
    make_module "$work" PG_CONFIG="$config" COLUMN_LIBRARY="$library" \
        COLUMN_INCLUDE="$PGSEAL_ROOT/crates/pgseal-column/include"
}

done_any=no
for config in $(pg_configs); do
    major=$(pg_major "$config")
    built=$(target_dir)/extension/$major
    modules=${DESTDIR:-}$("$config" --pkglibdir)
    share=${DESTDIR:-}$("$config" --sharedir)/extension
    if [ "$major" -lt 15 ] || [ "$major" -gt 18 ]; then
        warn "PostgreSQL $major: the extension is written for 15 to 18"
        done_any=yes
        continue
    fi
    case "$action" in
    build)
        if [ ! -e "$("$config" --includedir-server)/postgres.h" ]; then
            warn "PostgreSQL $major: no extension, its server headers are missing (scripts/setup.sh build)"
            continue
        fi
        [ -e "$library" ] || die "$library is missing: cargo build --release -p pgseal-column"
        done_any=yes
        if [ -e "$built/pgseal.so" ] && [ ! "$library" -nt "$built/pgseal.so" ] &&
            [ -z "$(find server/extension crates/pgseal-column/include -name '*.[ch]' -newer "$built/pgseal.so" \
                -o -name Makefile -newer "$built/pgseal.so")" ] &&
            [ ! "$("$config" --includedir-server)/postgres.h" -nt "$built/pgseal.so" ]; then
            continue
        fi
        compile "$config" "$built/build"
        mv -f "$built/build/pgseal.so" "$built/pgseal.so"
        rm -rf "$built/build"
        say "extension: PostgreSQL $major: $built/pgseal.so"
        ;;
    install)
        if [ ! -e "$built/pgseal.so" ]; then
            warn "PostgreSQL $major: the extension was not built; it has no sealed column types"
            continue
        fi
        done_any=yes
        install_file 0755 "$built/pgseal.so" "$modules/pgseal.so"
        install_file 0644 server/extension/pgseal.control "$share/pgseal.control"
        for file in server/extension/pgseal--*.sql; do install_file 0644 "$file" "$share/${file##*/}"; done
        ;;
    uninstall)
        done_any=yes
        rm -f "$modules/pgseal.so" "$share/pgseal.control" "$share"/pgseal--*.sql
        ;;
    test | memcheck | drivers)
        [ -e "$built/pgseal.so" ] || continue
        done_any=yes
        PG_CONFIG=$config scripts/as-user.sh server/extension/test/run.sh "$action"
        ;;
    *) die "build, install, uninstall, test, memcheck or drivers?" ;;
    esac
done
[ "$done_any" = yes ] || warn "nothing done: no PostgreSQL from 15 on with its headers here, or not built (make build)"
[ "$done_any" = yes ]
