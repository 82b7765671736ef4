#!/usr/bin/env bash
# setup.sh [build|server|test|scenarios|upstream|matrix|demo|lint|deb|test-deb|test-extensions|
#           memcheck|drivers|report|docs|fips|book|release|image|test-image|kubernetes|aarch64|
#           fleet|rpm|test-rpm|auditable|musl]...   (default: build)
#
# Installs what is missing from the distribution (Debian, Ubuntu), and nothing that exists already:
#   build     compiler, make, PostgreSQL's server and its headers, Rust
#   server    PostgreSQL's server alone
#   test      as build, perl, the server's procedural languages, hll and pg_partman, SoftHSM and
#             OpenSC, swtpm and tpm2-tools; PyKMIP and moto, in a cache (scripts/key-stores.txt); on
#             Debian also the newest stable PostgreSQL, which is not installed but unpacked into a
#             cache (scripts/postgres-versions.sh)
#   scenarios the programs that long scenarios run on a sealed cluster: pg_repack, pgBackRest,
#             Barman, btrfs, Patroni, etcd; the extensions PostGIS, plsh, pgfincore
#   matrix    the same as test, and what postgres-versions.sh gets other majors with
#   upstream  as build, the procedural languages, and what else PostgreSQL's own test suites need
#   demo      as build
#   lint      shellcheck
#   book      mdbook, below build/tools: the documentation as a site
#   fips      CMake and Go, for a build over the FIPS module (FIPS=1)
#   auditable cargo-auditable, below build/tools: programs of packages list the crates in them
#   deb       debhelper and fakeroot, for 'make deb'
#   release   gpg, for 'make release'
#   aarch64   a compiler and Rust's library for arm64, and qemu-user, for 'make test-aarch64'
#   musl      musl, its compiler and Rust's library for it, busybox and Maven, for 'make test-musl'
#   test-deb  debootstrap and lintian
#   rpm       rpmbuild and what splits debug symbols, for 'make rpm'
#   test-rpm  as rpm, debootstrap and rpmlint
#   image     debootstrap and jq, for 'make image'
#   test-image  umoci, runc and jq; PyKMIP, as for test
#   kubernetes  Go, and Kubernetes' schemas in build/tools, for 'make test-kubernetes'
#   test-extensions  debootstrap
#   memcheck  valgrind
#   drivers   Java, Maven, npm and Python, for the drivers; Go, for pgx, only if it is there
#   docs      what commands of the pages use and "test" does not install: pgBackRest, Barman,
#             Patroni, etcd, logrotate, ssh, jq, curl
#   fleet     Ansible, in a directory of its own, for the tests of its role
#   report    chromium and a font, for the pages of pgseal lab
# Needs root or sudo only if something is missing. May be run repeatedly.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

PREFERRED_MAJOR=15
MDBOOK_VERSION=0.5.4
AUDITABLE_VERSION=0.7.7
KUBERNETES_VALIDATE_VERSION=1.37.0
apt_updated=no

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        return 127
    fi
}

may_be_root() { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; }

apt_update() {
    [ "$apt_updated" = yes ] && return 0
    say "setup: refreshing the package lists"
    as_root apt-get -qq update || warn "apt-get update had errors; going on with the lists that are there"
    apt_updated=yes
}

# install WHY PACKAGE...
install() {
    local why=$1
    shift
    command -v apt-get >/dev/null ||
        die "missing: $why. This is no Debian or Ubuntu; install the counterparts of these packages yourself: $*"
    may_be_root ||
        die "missing: $why. Neither root nor sudo here; ask an administrator for: apt-get install $*"
    say "setup: installing $* ($why)"
    local lost upgraded
    if ! simulate "$@" >/dev/null; then apt_update; fi
    upgraded=$(simulate "$@" | sed -nE 's/^Inst (postgresql-[0-9]+) \[.*/\1/p') ||
        die "apt-get cannot install: $*. Run 'apt-get install $*' to see why."
    [ -z "$upgraded" ] || say "setup: note: this also upgrades the server ($upgraded)"
    lost=$(apt_install "$@" 2>&1) && return 0
    apt_update
    apt_install "$@" || die "apt-get could not install: $*. The first attempt said: $(tail -n 3 <<<"$lost")"
}

simulate() { LC_ALL=C apt-get -s -qq install --no-install-recommends "$@" 2>/dev/null; }

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y \
        -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@" >/dev/null </dev/null
}

# No grep -q after a pipe: it would exit early, and the writer would fail because of a broken pipe.
in_apt() { apt-cache policy "$1" 2>/dev/null | grep 'Candidate: [^(]' >/dev/null; }

installed_version() {
    # shellcheck disable=SC2016 # dpkg's own placeholders
    dpkg-query -W -f '${db:Status-Status} ${Version}\n' "$1" 2>/dev/null | sed -n 's/^installed //p'
}

# need COMMAND PACKAGE: collects packages for one call of apt-get
packages=()
need() { command -v "$1" >/dev/null || packages+=("$2"); }

need_package() { [ -n "$(installed_version "$1")" ] || packages+=("$1"); }

# need_venv PYTHON
need_venv() {
    need python3 python3
    "$1" -m venv --help >/dev/null 2>&1 && "$1" -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
}

# The distribution's: other users than this one can run it too.
system_python() { if [ -x /usr/bin/python3 ]; then say /usr/bin/python3; else say python3; fi; }

need_compiler() {
    need gcc gcc
    need make make
    need ld binutils
    [ -e /usr/include/stdlib.h ] || packages+=(libc6-dev)
}

need_upstream() {
    need perl perl
    need prove perl
    perl -MIPC::Run -e 1 2>/dev/null || packages+=(libipc-run-perl)
    need dpkg-source dpkg-dev
    need patch patch
    need xz xz-utils
    # What tests of backups compress with, and a terminal for psql's.
    need lz4 lz4
    need zstd zstd
    need openssl openssl
    perl -MIO::Pty -e 1 2>/dev/null || packages+=(libio-pty-perl)
    # Headers for test modules.
    [ -e /usr/include/gssapi/gssapi.h ] || packages+=(libkrb5-dev)
    [ -e /usr/include/openssl/ssl.h ] || packages+=(libssl-dev)
}

need_matrix() {
    need readelf binutils
    need npm npm
    python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
}

need_scenarios() {
    local major extension
    # The one that scenarios run against if no other is asked for.
    major=$(unset PG_CONFIG && pg_configs | tail -n 1 | sed -nE 's#.*/postgresql/([0-9]+)/.*#\1#p')
    need_package "postgresql-${major:-$PREFERRED_MAJOR}-repack"
    # Extensions with libraries, children and maps.
    for extension in postgis-3 plsh pgfincore; do
        need_package "postgresql-${major:-$PREFERRED_MAJOR}-$extension"
    done
    # Backups: the tools, and what compresses, copies and snapshots.
    need pgbackrest pgbackrest
    need barman barman
    need rsync rsync
    need lz4 lz4
    need zstd zstd
    need_package btrfs-progs
    # filefrag
    need_package e2fsprogs
    # Many clusters behind ssh; the server of a test listens on loopback and is run by the test.
    need ssh openssh-client
    [ -x /usr/sbin/sshd ] || packages+=(openssh-server)
    # A cluster.
    need patroni patroni
    need etcd etcd-server
}

setup_postgres() {
    [ -n "${PG_CONFIG:-}" ] || [ -n "$(pg_configs)" ] && return 0
    command -v apt-get >/dev/null && { in_apt "postgresql-$PREFERRED_MAJOR" || apt_update; }
    local major=$PREFERRED_MAJOR
    if ! in_apt "postgresql-$major"; then
        major=$(apt-cache search --names-only '^postgresql-[0-9]+$' 2>/dev/null |
            sed -nE 's/^postgresql-([0-9]+) .*/\1/p' | sort -n | tail -n 1)
        [ -n "$major" ] || die "no PostgreSQL server here and none in the package lists; install one or set PG_CONFIG"
        say "setup: the distribution has no PostgreSQL $PREFERRED_MAJOR; taking $major"
    fi
    install "a PostgreSQL server" "postgresql-$major"
}

# Installs the headers in exactly the server's version: newer headers would also install a newer
# server.
setup_headers() {
    local config major server libpq want
    for config in $(pg_configs); do
        [ -x "$config" ] || die "$config is not a program (PG_CONFIG)"
        [ -e "$("$config" --includedir-server)/postgres.h" ] && continue
        major=$(pg_major "$config")
        server=$(installed_version "postgresql-$major")
        [ -n "$server" ] || die "no server headers beside $config; install them for PostgreSQL $major"
        apt-cache madison "postgresql-server-dev-$major" 2>/dev/null | grep -F " $server " >/dev/null || apt_update
        want=("postgresql-server-dev-$major")
        if apt-cache madison "postgresql-server-dev-$major" | grep -F " $server " >/dev/null; then
            want=("postgresql-server-dev-$major=$server")
            libpq=$(installed_version libpq5)
            if [ -z "$(installed_version libpq-dev)" ] &&
                apt-cache madison libpq-dev | grep -F " $libpq " >/dev/null; then
                want+=("libpq-dev=$libpq")
            fi
        else
            say "setup: the headers of the installed server ($server) are no longer in the package lists;" \
                "taking the newest ones"
        fi
        install "headers of PostgreSQL $major, for the guard module" "${want[@]}"
    done
}

# The procedural languages of the distribution's servers, in exactly the server's version.
setup_languages() {
    local major server language want
    for major in $(pg_configs | sed -nE 's#^/usr/lib/postgresql/([0-9]+)/.*#\1#p'); do
        server=$(installed_version "postgresql-$major")
        [ -n "$server" ] || continue
        want=()
        for language in plperl plpython3 pltcl; do
            [ -z "$(installed_version "postgresql-$language-$major")" ] || continue
            apt-cache madison "postgresql-$language-$major" 2>/dev/null | grep -F " $server " >/dev/null || apt_update
            if apt-cache madison "postgresql-$language-$major" | grep -F " $server " >/dev/null; then
                want+=("postgresql-$language-$major=$server")
            else
                say "setup: postgresql-$language-$major of the server's version ($server) is no longer to be had"
            fi
        done
        [ ${#want[@]} = 0 ] || install "procedural languages of PostgreSQL $major" "${want[@]}"
    done
}

setup_rust() {
    local pinned have
    pinned=$(sed -nE 's/^channel *= *"([^"]+)"/\1/p' "$PGSEAL_ROOT/rust-toolchain.toml")
    if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
        PATH=$HOME/.cargo/bin:$PATH
    fi
    if ! command -v cargo >/dev/null; then
        if command -v apt-get >/dev/null && may_be_root && { in_apt rustup || { apt_update && in_apt rustup; }; }; then
            install "Rust" rustup
            (cd "$PGSEAL_ROOT" && rustup toolchain install "$pinned")
        else
            die "Rust $pinned is missing and the distribution has no rustup package; install rustup" \
                "(its home page says how), then run this again"
        fi
    fi
    # With rustup this also fetches the pinned toolchain.
    have=$(cd "$PGSEAL_ROOT" && cargo --version | sed -E 's/^cargo ([0-9.]+).*/\1/')
    [ "$(printf '%s\n' "$pinned" "$have" | sort -V | head -n 1)" = "$pinned" ] ||
        die "cargo is $have, this project needs $pinned or newer; install it through rustup"
}

# rust_target NAME: Rust's library for another architecture.
rust_target() {
    local toolchain
    toolchain=$(cd "$PGSEAL_ROOT" && rustc --print sysroot)
    [ ! -d "$toolchain/lib/rustlib/$1" ] || return 0
    command -v rustup >/dev/null || die "Rust's library for $1 is missing; install it, or Rust through rustup"
    say "setup: installing Rust's library for $1"
    (cd "$PGSEAL_ROOT" && rustup --quiet target add "$1")
}

# setup_crate NAME VERSION TIME: a program of crates.io, in a version of our choice, in the source
# tree.
setup_crate() {
    local tools=$PGSEAL_ROOT/build/tools
    ! grep -qF "\"$1 $2 " "$tools/.crates.toml" 2>/dev/null || return 0
    say "setup: compiling $1 $2 ($3)"
    cargo install --quiet --locked --root "$tools" --version "$2" "$1"
}

# The schemas of Kubernetes' own objects, and what checks against them, in the source tree.
setup_kubernetes() {
    local dir=$PGSEAL_ROOT/build/tools/kubernetes
    [ ! -e "$dir/$KUBERNETES_VALIDATE_VERSION" ] || return 0
    say "setup: installing kubernetes-validate $KUBERNETES_VALIDATE_VERSION"
    rm -rf "$dir"
    mkdir -p "${dir%/*}"
    python3 -m venv "$dir"
    "$dir/bin/python3" -m pip --disable-pip-version-check --quiet install "kubernetes-validate==$KUBERNETES_VALIDATE_VERSION"
    : >"$dir/$KUBERNETES_VALIDATE_VERSION"
}

# Extensions that scenarios/languages.rs tries in the distribution's own server.
setup_extensions() {
    local major package want=()
    major=$(unset PG_CONFIG && pg_configs | sed -nE 's#^/usr/lib/postgresql/([0-9]+)/.*#\1#p' | tail -n 1)
    [ -n "$major" ] || return 0
    for package in hll partman; do
        package=postgresql-$major-$package
        [ -z "$(installed_version "$package")" ] || continue
        in_apt "$package" || apt_update
        if in_apt "$package"; then want+=("$package"); fi
    done
    [ ${#want[@]} = 0 ] || install "extensions of PostgreSQL $major" "${want[@]}"
}

setup_newest() {
    # shellcheck disable=SC1091
    if [ "$(. /etc/os-release && say "${ID:-}")" != debian ]; then
        say "setup: this is no Debian; PostgreSQL $NEWEST_MAJOR, for 'make test-newest', has to be installed by hand"
        return
    fi
    "$PGSEAL_ROOT/scripts/postgres-versions.sh" path "$NEWEST_MAJOR" >/dev/null 2>&1 ||
        "$PGSEAL_ROOT/scripts/postgres-versions.sh" fetch "$NEWEST_MAJOR" >/dev/null
}

# setup_python WHAT LIST DIR: programs written in Python, in versions of our choice and a directory
# of their own.
setup_python() {
    local wanted=$PGSEAL_ROOT/scripts/$2 dir=$3
    cmp -s "$wanted" "$dir/$2" && return
    say "setup: installing $1 in $dir"
    rm -rf "$dir"
    mkdir -p "${dir%/*}"
    # Its programs name the directory, so it is made where it stays; the copy of the list says that
    # all is there.
    "$(system_python)" -m venv "$dir"
    "$dir/bin/python3" -m pip --disable-pip-version-check --quiet install --no-deps -r "$wanted"
    chmod -R go+rX "$dir"
    cp "$wanted" "$dir/$2"
}

newest=no
key_stores=no
[ $# -gt 0 ] || set -- build
for purpose in "$@"; do
    case "$purpose" in
    build | demo) need_compiler ;;
    server | auditable) ;;
    test)
        need_compiler
        need_upstream
        need readelf binutils
        newest=yes
        # what the OS cache holds
        need fincore util-linux-extra
        # what a command does on a hostile directory
        need strace strace
        need rsyslogd rsyslog
        need sudo sudo
        # a token, and a plugin that is written in Python
        need softhsm2-util softhsm2
        need pkcs11-tool opensc
        # a TPM, and the programs that the plugin runs
        need swtpm swtpm
        need tpm2_unseal tpm2-tools
        need python3 python3
        # what commands of the main pages use, and their machine: its loopback interface
        need sudo sudo
        need ip iproute2
        need script bsdutils
        # key stores that are written in Python
        need_venv "$(system_python)"
        key_stores=yes
        ;;
    scenarios) need_scenarios ;;
    upstream)
        need_compiler
        need_upstream
        ;;
    matrix)
        need_compiler
        need_upstream
        need_matrix
        ;;
    injection)
        need bison bison
        need flex flex
        [ -e /usr/include/zlib.h ] || packages+=(zlib1g-dev)
        [ -e /usr/include/openssl/ssl.h ] || packages+=(libssl-dev)
        ;;
    lint) need shellcheck shellcheck ;;
    deb)
        need dpkg-buildpackage dpkg-dev
        need dh debhelper
        need fakeroot fakeroot
        ;;
    release)
        need gpg gpg
        need jq jq
        need python3 python3
        ;;
    aarch64)
        need_compiler
        need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
        need_package libc6-dev-arm64-cross
        need qemu-aarch64-static qemu-user-static
        # the source of PostgreSQL's core regression tests
        need dpkg-source dpkg-dev
        need xz xz-utils
        need patch patch
        need unshare util-linux
        ;;
    musl)
        need_compiler
        need musl-gcc musl-tools
        need_package busybox-static
        need mvn maven
        need python3 python3
        need unshare util-linux
        ;;
    test-deb)
        need debootstrap debootstrap
        need lintian lintian
        need jq jq
        need python3 python3
        ;;
    rpm | test-rpm)
        need rpmbuild rpm
        need find-debuginfo debugedit
        need eu-strip elfutils
        if [ "$purpose" = test-rpm ]; then
            need debootstrap debootstrap
            need rpmlint rpmlint
            need jq jq
            need python3 python3
            need rpm2cpio rpm2cpio
            need cpio cpio
        fi
        ;;
    image)
        need debootstrap debootstrap
        need jq jq
        ;;
    test-image)
        need umoci umoci
        need runc runc
        need jq jq
        need openssl openssl
        need_venv "$(system_python)"
        key_stores=yes
        ;;
    kubernetes)
        need go golang-go
        need jq jq
        need_venv python3
        ;;
    test-extensions)
        need debootstrap debootstrap
        need flock util-linux
        ;;
    memcheck) need valgrind valgrind ;;
    book) need perl perl ;;
    fips)
        need cmake cmake
        need go golang-go
        ;;
    drivers)
        need javac default-jdk-headless
        need mvn maven
        need npm npm
        need_venv python3
        ;;
    report)
        command -v chromium-browser >/dev/null || need chromium chromium
        need python3 python3
        [ -n "$(installed_version fonts-dejavu-core)" ] || packages+=(fonts-dejavu-core)
        ;;
    docs)
        need jq jq
        need curl curl
        need pgbackrest pgbackrest
        need barman barman
        need rsync rsync
        need patroni patroni
        need etcd etcd-server
        need logrotate logrotate
        need ssh openssh-client
        [ -x /usr/sbin/sshd ] || packages+=(openssh-server)
        ;;
    fleet)
        need python3 python3
        need_venv "$(system_python)"
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    *) die "unknown purpose '$purpose'; one or more of: build server test scenarios upstream matrix demo lint deb test-deb test-extensions memcheck drivers report docs fips book release image test-image kubernetes fleet aarch64 rpm test-rpm auditable musl" ;;
    esac
done
if [ ${#packages[@]} -gt 0 ]; then
    mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
    install "tools" "${packages[@]}"
fi
case " $* " in
*" build "* | *" demo "* | *" test "* | *" upstream "* | *" matrix "*)
    setup_postgres
    setup_headers
    setup_rust
    ;;
esac
case " $* " in *" server "*) setup_postgres ;; esac
case " $* " in *" aarch64 "*)
    setup_rust
    rust_target aarch64-unknown-linux-gnu
    ;;
esac
case " $* " in *" musl "*)
    setup_postgres
    setup_headers
    setup_rust
    rust_target x86_64-unknown-linux-musl
    ;;
esac
case " $* " in *" book "*)
    setup_rust
    setup_crate mdbook "$MDBOOK_VERSION" "3 minutes"
    ;;
esac
case " $* " in *" auditable "*) setup_crate cargo-auditable "$AUDITABLE_VERSION" "half a minute" ;; esac
case " $* " in *" kubernetes "*) setup_kubernetes ;; esac
case " $* " in *" test "* | *" upstream "*) setup_languages ;; esac
if [ "$key_stores" = yes ]; then setup_python "key stores for tests" key-stores.txt "$(key_stores_dir)"; fi
case " $* " in *" fleet "*) setup_python "Ansible, for its role" ansible.txt "$(ansible_dir)" ;; esac
if [ "$newest" = yes ]; then
    setup_extensions
    setup_newest
fi
say "setup: everything for '$*' is there"
