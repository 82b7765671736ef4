#!/usr/bin/env bash
# docs-test.sh [--fast] [--keep] [PAGE...]  runs the commands of README.md and of each page of
#                                           docs/, or of these pages
# docs-test.sh check                        checks that each block of each page has a mark
#
# Each page runs in a machine of its own: the file system of this one, with an own layer for all
# changes (overlay), own processes, network and host name, and with what 'make install' installs.
# When the page has ended, all of it is gone, servers included. scripts/lib/pages.sh says how blocks
# are marked, scripts/docs-test-inside.sh what happens to them. Needs root, and no network.
#
# --fast  only the pages that 'make test' runs: README, start, keys, columns, first-hour
# JOBS=N          how many pages at once; default: two for each processor
# MAJORS="15 18"  the major versions of PostgreSQL; default: those two, as far as they are here
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/pages.sh"
cd "$PGSEAL_ROOT"

FAST=(README.md docs/start.md docs/keys.md docs/columns.md docs/first-hour.md)
DEFAULT_MAJORS="15 18"

work=
clean() {
    local status=$?
    trap - EXIT
    if [ -n "$work" ]; then
        umount -R "$work/disk" 2>/dev/null || true
        rm -rf --one-file-system "$work"
    fi
    exit "$status"
}

# layers LOWER NAME: mounts a root of LOWER with an own layer, and prints nothing; its path is
# disk/NAME/root.
layers() {
    local at=$work/disk/$2
    mkdir -p "$at/upper" "$at/work" "$at/root"
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$at/upper,workdir=$at/work" "$at/root" ||
        die "this kernel mounts no overlay here, so no page can have a machine of its own"
}

# in_machine ROOT COMMAND...: runs a command in this root, as the first process of its machine: when
# it ends, all others end.
in_machine() {
    local root=$1
    shift
    # shellcheck disable=SC2016 # the inner shell expands
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root TZ=UTC \
        unshare --mount --propagation private --pid --fork --kill-child --net --uts --ipc -- \
        bash -euc 'root=$1; shift
            mount -t proc proc "$root/proc"
            mount --rbind /sys "$root/sys"
            mount -t tmpfs -o mode=755 tmpfs "$root/dev"
            for device in null zero full random urandom tty; do
                touch "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"; done
            mkdir "$root/dev/shm" "$root/dev/pts" "$root/dev/fd" && rmdir "$root/dev/fd"
            mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
            mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
            ln -s pts/ptmx "$root/dev/ptmx"; ln -s /proc/self/fd "$root/dev/fd"
            ln -s /proc/self/fd/0 "$root/dev/stdin"; ln -s /proc/self/fd/1 "$root/dev/stdout"
            ln -s /proc/self/fd/2 "$root/dev/stderr"
            mount -t tmpfs -o mode=755 tmpfs "$root/run"
            mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
            ip link set lo up 2>/dev/null || true
            hostname pg
            cd "$root" && exec chroot . "$@"' bash "$root" "$@" </dev/null
}

# base_of MAJOR: the root that all pages of a major version start from: with 'make install' done.
base_of() {
    local major=$1 root=$work/disk/base-$1/root config other place
    layers / "base-$major"
    for other in 15 16 17 18 19; do
        config=$(pg_config_of "$other") || continue
        place=$root/usr/lib/postgresql/$other
        [ -e "$place" ] || ln -s "${config%/bin/pg_config}" "$place"
    done
    configs=$(for other in 15 16 17 18; do
        [ "$other" = "$major" ] || [ -e "target/guard/$other/pgseal_guard.so" ] || continue
        pg_config_of "$other" || true
    done | tr '\n' ' ')
    # The tree lies somewhere in the root, as here.
    if ! in_machine "$root" /bin/bash -c "cd '$PGSEAL_ROOT' && make install PREFIX=/usr/local PG_CONFIG='$configs'" \
        >"$work/install.log" 2>&1; then
        tail -n 20 "$work/install.log" >&2
        die "make install failed"
    fi
    mkdir -p "$root/docs-test"
    cp scripts/docs-test-inside.sh "$root/docs-test/inside.sh"
    umount "$work/disk/base-$major/root"
}

# test_page PAGE MAJOR: 0 if all of it did what it says.
test_page() {
    local page=$1 major=$2 name status=0 start=$SECONDS steps
    name=$(tr / _ <<<"${page%.md}")-$major
    steps=$work/steps-$name
    read_page "$page" "$steps"
    say "$page" >"$steps/page"
    say "$major" >"$steps/major"
    say "$PGSEAL_ROOT" >"$steps/tree"
    layers "$work/disk/base-$major/upper:/" "$name"
    mkdir -p "$work/disk/$name/root/docs-test/page"
    cp -r "$steps/." "$work/disk/$name/root/docs-test/page/"
    cp scripts/lib.sh scripts/lib/pages.sh "$work/disk/$name/root/docs-test/"
    in_machine "$work/disk/$name/root" /docs-test/inside.sh >"$work/$name.log" 2>&1 || status=1
    [ "$status" = 0 ] || cp "$work/$name.log" "${TMPDIR:-/tmp}/pgseal-docs-$name.log"
    cp "$work/disk/$name/root/docs-test/page/counts" "$work/$name.counts" 2>/dev/null || : >"$work/$name.counts"
    umount "$work/disk/$name/root"
    rm -rf "${work:?}/disk/$name"
    if [ "$status" != 0 ]; then
        say "docs-test: $page FAILED on PostgreSQL $major:"
        sed 's/^/    /' "$work/$name.log"
        return 1
    fi
    say "docs-test: $page, PostgreSQL $major: $(grep -c '^run' "$work/$name.counts" || true) commands," \
        "$(grep -cE '^(written|compared)' "$work/$name.counts" || true) files and outputs," \
        "$(grep -c '^excused' "$work/$name.counts" || true) excused, $((SECONDS - start)) s"
}

# check PAGE...: each block of each page has a mark that can be understood.
check() {
    local page faults=no dir
    dir=$(mktemp -d "${TMPDIR:-/tmp}/pgseal-docs.XXXXXX")
    for page; do
        read_page "$page" "$dir/page"
        if [ -s "$dir/page/faults" ]; then
            cat "$dir/page/faults" >&2
            faults=yes
        fi
        rm -rf "$dir/page"
    done
    rm -rf "$dir"
    [ "$faults" = no ] || die "marks of pages: see above, and scripts/lib/pages.sh"
    say "marks: each block of $# pages has one"
}

fast=
keep=
read_options "fast:fast keep:keep" "$@"
all=(README.md docs/*.md)
if [ "${REST[0]:-}" = check ]; then
    check "${all[@]}"
    exit
fi
pages=("${all[@]}")
[ -z "$fast" ] || pages=("${FAST[@]}")
[ ${#REST[@]} -eq 0 ] || pages=("${REST[@]}")
check "${pages[@]}"

if [ "$(id -u)" != 0 ]; then
    if sudo -n true 2>/dev/null; then exec sudo -n --preserve-env=MAJORS,PGSEAL_POSTGRES_CACHE "$0" "$@"; fi
    [ -z "${CI:-}" ] || die "the pages can only be tested as root"
    warn "not root: the commands of the pages were not run (sudo make test-docs)"
    exit 0
fi
for part in pgseal pgseal-lab libpgseal.so; do
    [ -e "target/release/$part" ] || die "target/release/$part is missing; run 'make build' first"
done
if [[ " ${pages[*]} " == *" docs/key-stores.md "* ]]; then
    [ -e target/release/pgseal-provider-aws-kms ] ||
        die "target/release/pgseal-provider-aws-kms is missing; run 'make build-aws-kms' first"
fi
majors=()
for major in ${MAJORS:-$DEFAULT_MAJORS}; do
    config=$(pg_config_of "$major") || {
        [ -z "${MAJORS:-}" ] || die "PostgreSQL $major is not here; get it with: scripts/postgres-versions.sh fetch $major"
        warn "PostgreSQL $major is not here: left out"
        continue
    }
    for part in "target/guard/$major/pgseal_guard.so" "target/extension/$major/pgseal.so"; do
        [ -e "$part" ] || die "$part is missing; run: make build PG_CONFIG=$config"
    done
    majors+=("$major")
done
[ ${#majors[@]} -gt 0 ] || die "no PostgreSQL here to test the pages with"

work=$(mktemp -d "${TMPDIR:-/tmp}/pgseal-docs.XXXXXX")
trap clean EXIT
trap 'exit 130' INT TERM HUP
mkdir "$work/disk"
mount -t tmpfs -o mode=755 tmpfs "$work/disk"
failed=()
# The commands that stand in the text, and in blocks that are not run: pgseal has them, with these
# options.
mkdir "$work/man"
target/release/pgseal man --dir "$work/man"
written=()
for page in "${all[@]}"; do
    # Its messages are no commands.
    [ "$page" = docs/troubleshooting.md ] || written+=("$page")
done
unknown_commands "$work/man" "${written[@]}" >"$work/unknown"
inline=$(tail -n 1 "$work/unknown")
if [ "$(wc -l <"$work/unknown")" -gt 1 ]; then
    sed '$d' "$work/unknown" >&2
    die "commands that pgseal does not have: see above"
fi
say "docs-test: $inline commands of pgseal in text and blocks: each exists, with its options"
jobs=${JOBS:-$(($(nproc) * 2))}
for major in "${majors[@]}"; do
    base_of "$major"
    for page in "${pages[@]}"; do
        grep -q '^ *\(```\|<!-- docs-test: hidden\)' "$page" || continue
        while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
        { test_page "$page" "$major" || say "$page ($major)" >>"$work/failed"; } &
    done
    wait
done
[ ! -e "$work/failed" ] || mapfile -t failed <"$work/failed"
cat "$work"/*.counts >"$work/counts"
say "docs-test: $(grep -c '^run' "$work/counts" || true) commands run," \
    "$(grep -c '^run.*changed' "$work/counts" || true) of them with host names or open places filled in;" \
    "$(grep -c '^written' "$work/counts" || true) files written;" \
    "$(grep -c '^compared' "$work/counts" || true) outputs compared"
say "docs-test: of the pages' commands, excused are:"
grep -E '^(excused|file)' "$work/counts" | sort -u | cut -f 1-3 | uniq -c |
    awk -F '\t' '{ split($1, n, " "); printf "    %s: %d %s: %s\n", $2, n[1], n[2] == "file" ? "files" : "commands", $3 }'
[ -z "$keep" ] || {
    cp "$work"/*.log "$work"/counts "${TMPDIR:-/tmp}/"
    say "docs-test: the logs are in ${TMPDIR:-/tmp}"
}
[ ${#failed[@]} -eq 0 ] || die "these pages do not do what they say: ${failed[*]}"
say "docs-test: passed"
