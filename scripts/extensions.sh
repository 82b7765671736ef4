#!/usr/bin/env bash
# extensions.sh run [--resume] [NAME...]   what extensions do on a plain and on a sealed server, compared; after 'make build'
# extensions.sh list                       the names: "create", and those of tests/pg/extensions/workloads
# extensions.sh table                      writes the tables of docs/extensions.md from the last runs
# extensions.sh shell                      a shell in the root, as root
#
# Runs in a clean root of Debian 12 made by debootstrap (as root), with Debian's PostgreSQL 15 and every package
# postgresql-15-* of its archive. "create" is CREATE EXTENSION of every extension and LOAD of every module there; each
# other name is a workload (tests/pg/extensions/workload.sh). NAME may be a part of a name ("pl": every language).
# --resume leaves out workloads that had no difference in the last run. Exit status 1: a difference for which
# tests/pg/extensions/reasons.tsv has no reason, or a reason for which there is no difference.
#
# The root is made once and kept: PGSEAL_EXTENSIONS_ROOT, default /var/cache/pgseal/extensions/SUITE (3 GB). Remove it,
# and what Debian has published since is taken. Clusters live in memory (up to 3 GB). Results: build/results/extensions.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/root.sh"
cd "$PGSEAL_ROOT"

SUITE=bookworm MAJOR=15
# What is tried and has another name.
MORE=("postgresql-plperl-$MAJOR" "postgresql-plpython3-$MAJOR" "postgresql-pltcl-$MAJOR" pgbouncer pgpool2 r-base-core)
root=${PGSEAL_EXTENSIONS_ROOT:-/var/cache/pgseal/extensions/$SUITE}
tests=tests/pg/extensions
results=build/results/extensions
inside=/srv/pgseal-extensions

finish() {
    local status=$?
    trap - EXIT
    stop_servers_below "$root/srv/extensions"
    umount "$root/srv/extensions" 2>/dev/null || true
    leave_root "$root"
    exit "$status"
}

# The root with its packages, made if need be, and open for commands until this script ends.
prepare() {
    local program packages
    [ "$(id -u)" = 0 ] || die "a root of its own can only be made as root: sudo make test-extensions"
    for program in debootstrap flock; do
        command -v "$program" >/dev/null || die "$program is missing; run scripts/setup.sh test-extensions"
    done
    mkdir -p "$root" "$results"
    exec 8>"$root.lock"
    flock -w 20 8 || die "somebody works in $root; set PGSEAL_EXTENSIONS_ROOT to another directory"
    trap finish EXIT
    trap 'exit 130' INT TERM
    umount "$root/srv/extensions" 2>/dev/null || true
    leave_root "$root"
    if [ ! -e "$root/etc/pgseal-root" ]; then
        say "extensions: a clean $SUITE in $root"
        rm -rf --one-file-system "$root"
        mkdir "$root"
        make_root "$root" "$SUITE" "$results/debootstrap.log"
        touch "$root/etc/pgseal-root"
    fi
    enter_root "$root"
    if [ ! -e "$root/etc/pgseal-packages" ]; then
        in_root "$root" apt-get -qq update
        # No cluster is made by the way.
        mkdir -p "$root/etc/postgresql-common"
        say "create_main_cluster = false" >"$root/etc/postgresql-common/createcluster.conf"
        packages=$(in_root "$root" apt-cache pkgnames "postgresql-$MAJOR-" | grep -vE -- '-(doc|dbgsym)$' | LC_ALL=C sort)
        say "extensions: installing PostgreSQL $MAJOR and $(wc -l <<<"$packages") packages"
        # shellcheck disable=SC2086 # a list
        in_root "$root" apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends "postgresql-$MAJOR" \
            "${MORE[@]}" $packages >"$results/install.log" 2>&1 || { tail -n 5 "$results/install.log"; die "apt-get install"; }
        in_root "$root" apt-get clean
        say "$packages" >"$root/etc/pgseal-packages"
    fi
}

# What was built goes into the root, and the tests.
bring() {
    local guard=target/guard/$MAJOR/pgseal_guard.so file
    for file in target/release/pgseal target/release/libpgseal.so "$guard"; do
        [ -e "$file" ] || die "$file is missing; run 'make build' first"
    done
    install_file 0755 target/release/pgseal "$root/usr/local/bin/pgseal" >/dev/null
    install_file 0755 target/release/libpgseal.so "$root/usr/local/lib/pgseal/libpgseal.so" >/dev/null
    install_file 0755 "$guard" "$root/usr/lib/postgresql/$MAJOR/lib/pgseal_guard.so" >/dev/null
    rm -rf --one-file-system "$root$inside"
    mkdir -p "$root$inside" "$root/srv/extensions"
    # In memory: clusters are made and removed all the time, and no power fails here.
    mount -t tmpfs -o size=6g,mode=755 tmpfs "$root/srv/extensions"
    cp -r "$tests/." "$root$inside/"
    mkdir -p "$results"
    mkdir "$root$inside/results"
    for file in "$results"/*.tsv; do [ ! -e "$file" ] || cp "$file" "$root$inside/results/"; done
    in_root "$root" chown -R postgres: "$inside" /srv/extensions
}

take_results() {
    local file
    for file in "$root$inside/results"/*; do
        [ -e "$file" ] || continue
        rm -rf "${results:?}/${file##*/}"
        cp -r --no-preserve=ownership "$file" "$results/"
    done
}

names() {
    say create
    for file in "$tests"/workloads/*.sql; do basename "$file" .sql; done | LC_ALL=C sort
}

# judge CHOSEN...: the results of these (NAME TAB same|DIFFERENT ...), held against the reasons.
judge() {
    local bad=0 name verdict rest reason
    while IFS=$'\t' read -r name verdict rest; do
        reason=$(awk -F '\t' -v name="$name" '$1 == name { print $2 }' "$tests/reasons.tsv")
        if [ "$verdict" = same ] && [ -n "$reason" ]; then
            say "$name: has a reason in reasons.tsv and no difference"
            bad=1
        elif [ "$verdict" != same ] && [ -z "$reason" ]; then
            say "$name: $verdict: $(cut -f 3 <<<"$rest")"
            bad=1
        fi
    done < <(for name; do
        if [ "$name" = create ]; then cat "$results/create.tsv"; else grep "^$name	" "$results/workloads.tsv"; fi
    done)
    return "$bad"
}

run() {
    local resume=no chosen=() name wanted status=0
    if [ "${1:-}" = --resume ]; then
        resume=yes
        shift
    fi
    for name in $(names); do
        [ $# -eq 0 ] || { for wanted; do [[ $name != *$wanted* ]] || break; done && [[ $name == *$wanted* ]]; } || continue
        # "create" has a line for each package.
        [ "$resume" = no ] || [ "$name" = create ] || ! grep -q "^$name	same	" "$results/workloads.tsv" 2>/dev/null || continue
        chosen+=("$name")
    done
    [ ${#chosen[@]} -gt 0 ] || die "no such name, or nothing left: $*"
    prepare
    bring
    say "extensions: $(in_root "$root" "/usr/lib/postgresql/$MAJOR/bin/postgres" --version)"
    for name in "${chosen[@]}"; do
        case "$name" in
        create) set -- create.sh ;;
        *) set -- workload.sh "$name" ;;
        esac
        in_root "$root" setpriv --reuid=postgres --regid=postgres --init-groups -- bash "$inside/$1" "${@:2}" </dev/null || status=1
        take_results
    done
    [ "$status" = 0 ] || die "not all could be run; see $results"
    judge "${chosen[@]}" || die "differences without a reason; what was printed is below $results"
    say "extensions: sealed and plain the same, but for what reasons.tsv names"
}

case "${1:-}" in
run) run "${@:2}" ;;
list) names ;;
table) exec "$tests/table.sh" "$results" ;;
shell)
    prepare
    in_root "$root" bash
    ;;
-h | --help) usage ;;
*) die "run, list, table or shell?" ;;
esac
