#!/usr/bin/env bash
# extensions.sh run [--resume] [NAME...]   compares what extensions do on a plain and on a sealed
#                                          server; after 'make build'
# extensions.sh list                       prints the names: "create", and those of
#                                          tests/extensions/workloads
# extensions.sh table                      writes the tables of docs/extensions.md from the last
#                                          runs
# extensions.sh shell [SUITE MAJOR]        a shell in the root (default: bookworm 15), as root
#
# Runs in a clean root of Debian 12 made by debootstrap (as root), with Debian's PostgreSQL 15 and
# every package postgresql-15-* of its archive. "create" runs CREATE EXTENSION for every extension
# and LOAD for every module. Every other name is a workload (tests/extensions/workload.sh). NAME may
# be a part of a name ("pl": every language). If Debian 12 does not have the extension of a
# workload, the workload names another release, its PostgreSQL and the packages ("-- release: trixie
# 17 postgresql-17-pgvector") and runs in a root of that release. --resume leaves out workloads that
# had no difference in the last run. Exit status 1: a difference without a reason in
# tests/extensions/reasons.tsv, or a reason without a difference.
#
# The roots are made once and kept, as SUITE (3 GB) below PGSEAL_EXTENSIONS_ROOTS (default:
# /var/cache/pgseal/extensions). To use newer packages, remove a root. Clusters lie in memory (up to
# 3 GB). Results: build/results/extensions.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/root.sh"
cd "$PGSEAL_ROOT"

DEFAULT_RELEASE="bookworm 15"
# Packages that are tried and have other names.
MORE=(postgresql-plperl-15 postgresql-plpython3-15 postgresql-pltcl-15 pgbouncer pgpool2 r-base-core)
roots=${PGSEAL_EXTENSIONS_ROOTS:-/var/cache/pgseal/extensions}
tests=tests/extensions
results=build/results/extensions
inside=/srv/pgseal-extensions

# release NAME: prints the suite and the major version that the workload needs.
release() {
    local wanted=''
    [ "$1" = create ] || wanted=$(sed -nE 's/^-- release: ([^ ]+ [0-9]+) .*/\1/p' "$tests/workloads/$1.sql")
    say "${wanted:-$DEFAULT_RELEASE}"
}

# into RELEASE: sets SUITE, MAJOR and root.
into() {
    read -r SUITE MAJOR <<<"$1"
    root=$roots/$SUITE
}

# Prints the packages to be tried from the release.
packages() {
    if [ "$SUITE $MAJOR" = "$DEFAULT_RELEASE" ]; then
        in_root "$root" apt-cache pkgnames "postgresql-$MAJOR-" | grep -vE -- '-(doc|dbgsym)$'
    else
        sed -nE "s/^-- release: $SUITE $MAJOR (.*)/\1/p" "$tests"/workloads/*.sql | tr ' ' '\n'
    fi | LC_ALL=C sort -u
}

finish() {
    local status=$?
    trap - EXIT
    leave
    exit "$status"
}

leave() {
    stop_servers_below "$root/srv/extensions"
    umount "$root/srv/extensions" 2>/dev/null || true
    leave_root "$root"
}

# Makes the root with its packages if necessary, and prepares it for commands until this script
# ends.
prepare() {
    local program wanted more=()
    [ "$(id -u)" = 0 ] || die "a root of its own can only be made as root: sudo make test-extensions"
    for program in debootstrap flock; do
        command -v "$program" >/dev/null || die "$program is missing; run scripts/setup.sh test-extensions"
    done
    mkdir -p "$root" "$results"
    exec 8>"$root.lock"
    flock -w 20 8 || die "somebody works in $root; set PGSEAL_EXTENSIONS_ROOTS to another directory"
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
    [ "$SUITE $MAJOR" != "$DEFAULT_RELEASE" ] || more=("${MORE[@]}")
    # The default release gets all packages of the archive; another release those that workloads
    # need.
    if [ -e "$root/etc/pgseal-packages" ] && { [ ${#more[@]} -gt 0 ] || packages | cmp -s - "$root/etc/pgseal-packages"; }; then
        return
    fi
    in_root "$root" apt-get -qq update
    # Installing the packages must not make a cluster.
    mkdir -p "$root/etc/postgresql-common"
    say "create_main_cluster = false" >"$root/etc/postgresql-common/createcluster.conf"
    wanted=$(packages)
    say "extensions: installing PostgreSQL $MAJOR and $(wc -l <<<"$wanted") packages"
    # shellcheck disable=SC2086 # a list
    in_root "$root" apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends "postgresql-$MAJOR" \
        "${more[@]}" $wanted >"$results/install.log" 2>&1 || { tail -n 5 "$results/install.log"; die "apt-get install"; }
    in_root "$root" apt-get clean
    say "$wanted" >"$root/etc/pgseal-packages"
}

# Copies the built programs and the tests into the root.
bring() {
    local guard=target/guard/$MAJOR/pgseal_guard.so file
    # 'make build' builds the guard module only for the distribution's own servers.
    if [ "$SUITE $MAJOR" != "$DEFAULT_RELEASE" ]; then
        PG_CONFIG=$(scripts/postgres-versions.sh fetch "$MAJOR") scripts/guard.sh build
    fi
    for file in target/release/pgseal target/release/libpgseal.so "$guard"; do
        [ -e "$file" ] || die "$file is missing; run 'make build' first"
    done
    install_file 0755 target/release/pgseal "$root/usr/local/bin/pgseal" >/dev/null
    install_file 0755 target/release/libpgseal.so "$root/usr/local/lib/pgseal/libpgseal.so" >/dev/null
    install_file 0755 "$guard" "$root/usr/lib/postgresql/$MAJOR/lib/pgseal_guard.so" >/dev/null
    rm -rf --one-file-system "$root$inside"
    mkdir -p "$root$inside" "$root/srv/extensions"
    # In memory, because many clusters are made and removed, and no power cut is tested here.
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

# judge CHOSEN...: compares the results of these (NAME TAB same|DIFFERENT ...) with the reasons.
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
    local resume=no chosen=() name wanted release status=0
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
    while read -r release; do
        into "$release"
        prepare
        bring
        say "extensions: $SUITE, $(in_root "$root" "/usr/lib/postgresql/$MAJOR/bin/postgres" --version)"
        for name in "${chosen[@]}"; do
            [ "$(release "$name")" = "$release" ] || continue
            case "$name" in
            create) set -- create.sh ;;
            *) set -- workload.sh "$name" ;;
            esac
            in_root "$root" setpriv --reuid=postgres --regid=postgres --init-groups -- \
                env "EXTENSIONS_MAJOR=$MAJOR" bash "$inside/$1" "${@:2}" </dev/null || status=1
            take_results
        done
        leave
    done < <(for name in "${chosen[@]}"; do release "$name"; done | LC_ALL=C sort -u)
    [ "$status" = 0 ] || die "not all could be run; see $results"
    judge "${chosen[@]}" || die "differences without a reason; what was printed is below $results"
    say "extensions: sealed and plain the same, but for what reasons.tsv names"
}

case "${1:-}" in
run) run "${@:2}" ;;
list) names ;;
table) exec "$tests/table.sh" "$results" ;;
shell)
    [ $# -gt 1 ] || set -- shell "$DEFAULT_RELEASE"
    into "${*:2}"
    prepare
    in_root "$root" bash
    ;;
-h | --help) usage ;;
*) die "run, list, table or shell?" ;;
esac
