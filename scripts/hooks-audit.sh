#!/usr/bin/env bash
# hooks-audit.sh [PATH...]: compares the library's symbol table with every function that the
# programs and modules of each PostgreSQL on this machine import, and those of each PATH (a program,
# a module, or a directory of them). Uses the library's own ELF reader. Fails, and lists the
# functions, if the table refuses a function, or does not contain one whose name suggests a file
# call. Programs and modules of other packages (pg_repack, PostGIS, ...) are reported, but do not
# make this fail: the library refuses such a module, and leaves other programs alone.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

cargo build ${PGSEAL_CROSS:+--target="$PGSEAL_CROSS"} --quiet --locked -p pgseal-preload --example symbol_check
check=$(cargo metadata --format-version 1 --no-deps | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')
check=$check/${PGSEAL_CROSS:+$PGSEAL_CROSS/}debug/examples/symbol_check
# Of another architecture: its emulator, which needs no root of its own for this program.
emulator=()
if [ -n "$PGSEAL_CROSS" ]; then emulator=("$PGSEAL_CROSS_EMULATOR" -L "$PGSEAL_CROSS_ROOT"); fi
# The programs of PostgreSQL in which the library is active.
active=$(sed -n '/^const ACTIVE/,/^];/p' server/pgseal-preload/src/place/program.rs | grep -oE '"[a-z_]+"' | tr -d '"')
[ -n "$active" ] || die "server/pgseal-preload/src/place/program.rs lists no programs"

# Prints the package that contains a file.
owner_of() {
    command -v dpkg-query >/dev/null || return 0
    dpkg-query -S "$1" 2>/dev/null | sed -nE 's/^([^: ]+).*/\1/p' | head -n 1 || true
}

# is_own KIND MAJOR FILE: whether the file is a part of PostgreSQL.
is_own() {
    local owner
    case "$1" in
    program) grep -xF "${3##*/}" <<<"$active" >/dev/null ;;
    module)
        # A PostgreSQL without a package was built or unpacked here, so all its modules are its own.
        [ "$packaged" = yes ] || return 0
        owner=$(owner_of "$3")
        case "$owner" in
        "postgresql-$2" | "postgresql-contrib-$2" | "postgresql-plperl-$2" | "postgresql-plpython3-$2" | "postgresql-pltcl-$2") ;;
        *) return 1 ;;
        esac
        ;;
    esac
}

# judge NAME KIND FAILS FILE...: prints one line for all files, and one for each function that
# bypasses sealing.
judge() {
    local name=$1 kind=$2 fails=$3 found
    shift 3
    [ $# -gt 0 ] || return 0
    if found=$(${emulator[@]+"${emulator[@]}"} "$check" "$kind" "$@" 2>"$counts"); then
        say "$name: $(cat "$counts")"
        return
    fi
    say "$name: $(cat "$counts")"
    say "${found//$'\n'/$'\n'  }" | sed '1s/^/  /'
    if [ "$fails" = yes ]; then failed=1; else say "  (not PostgreSQL's own: the library does not load these modules)"; fi
}

# audit NAME KIND MAJOR DIR: audits a directory of PostgreSQL.
audit() {
    local name=$1 kind=$2 major=$3 dir=$4 file own=() foreign=()
    while IFS= read -r file; do
        if is_own "$kind" "$major" "$file"; then own+=("$file"); else foreign+=("$file"); fi
    done < <(find -L "$dir" -type f \( -perm /111 -o -name '*.so' \) 2>/dev/null | sort)
    [ ${#own[@]} -gt 0 ] || die "$name: none of PostgreSQL's own in $dir"
    judge "$name" "$kind" yes "${own[@]}"
    # The library leaves programs alone that are not PostgreSQL's.
    [ "$kind" = program ] || judge "$name of other packages" "$kind" no ${foreign[@]+"${foreign[@]}"}
}

counts=$(mktemp)
trap 'rm -f "$counts"' EXIT
failed=0
for config in $(pg_configs); do
    major=$(pg_major "$config")
    packaged=no
    [ -z "$(owner_of "$(realpath "${config%/*}/postgres")")" ] || packaged=yes
    audit "PostgreSQL $major, programs" program "$major" "$("$config" --bindir)"
    audit "PostgreSQL $major, modules" module "$major" "$("$config" --pkglibdir)"
done
for path in "$@"; do
    mapfile -t files < <(find -L "$path" -type f \( -perm /111 -o -name '*.so' -o -name '*.so.*' \) | sort)
    [ ${#files[@]} -gt 0 ] || die "$path: no program and no module"
    judge "$path" module yes "${files[@]}"
done
if [ "$failed" != 0 ]; then
    die "add the functions to a family of server/pgseal-preload/src/calls/symbols.rs, with the reason, or hook them"
fi
