#!/usr/bin/env bash
# guard.sh build|test|install|uninstall
#
# The guard module, for each PostgreSQL on this machine or those of PG_CONFIG. "build" builds it
# with PGXS in a copy of server/guard/, as target/guard/MAJOR/pgseal_guard.so. "install" installs it
# in the directory where that server looks for its modules, below DESTDIR.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

action=${1:-}
done_any=no
for config in $(pg_configs); do
    major=$(pg_major "$config")
    built=$(target_dir)/guard/$major/pgseal_guard.so
    installed=${DESTDIR:-}$("$config" --pkglibdir)/pgseal_guard.so
    case "$action" in
    build)
        if [ ! -e "$("$config" --includedir-server)/postgres.h" ]; then
            warn "PostgreSQL $major: no guard module, its server headers are missing (scripts/setup.sh build)"
            continue
        fi
        [ -e server/guard/Makefile ] || die "server/guard/Makefile is missing"
        done_any=yes
        if [ -e "$built" ] && [ -z "$(find server/guard -name '*.[ch]' -newer "$built" -o -name Makefile -newer "$built")" ] &&
            [ ! "$("$config" --includedir-server)/postgres.h" -nt "$built" ]; then
            continue
        fi
        # A copy for each major version: PGXS builds in place, and object files must not be shared.
        work=${built%/*}/build
        rm -rf "$work"
        mkdir -p "$work"
        cp server/guard/Makefile server/guard/*.[ch] "$work/"
        make_module "$work" PG_CONFIG="$config"
        mv -f "$work/pgseal_guard.so" "$built"
        rm -rf "$work"
        say "guard: PostgreSQL $major: $built"
        ;;
    install)
        if [ ! -e "$built" ]; then
            warn "PostgreSQL $major: no guard module was built; a sealed cluster of it will not start"
            continue
        fi
        done_any=yes
        install_file 0755 "$built" "$installed"
        ;;
    test)
        [ -e "$built" ] || continue
        done_any=yes
        # In a copy, as above.
        work=$(mktemp -d "${TMPDIR:-/tmp}/pgseal-guard-src.XXXXXX")
        cp -r server/guard/Makefile server/guard/*.[ch] server/guard/test.sh server/guard/test "$work/"
        status=0
        PG_CONFIG=$config make -s -C "$work" selftest PG_CONFIG="$config" || status=1
        rm -rf "$work"
        [ "$status" = 0 ] || die "PostgreSQL $major: the guard module does not do what it should"
        ;;
    uninstall)
        done_any=yes
        rm -f "$installed"
        ;;
    *) die "build, test, install or uninstall?" ;;
    esac
done
[ "$done_any" = yes ] || warn "no guard module: no PostgreSQL server with its headers here (scripts/setup.sh build)"
[ "$done_any" = yes ]
