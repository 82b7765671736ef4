#!/usr/bin/env bash
# deb.sh build [OUT]|test
#
#   build   makes Debian packages of the results of 'make build', in OUT (build/deb): pgseal,
#           pgseal-lab, postgresql-NN-pgseal for each PostgreSQL of the distribution that is
#           installed here or that PG_CONFIG names, and their debug symbols. DEB_MAINTAINER sets the
#           maintainer. With PGSEAL_CROSS of what was built for another architecture
#           (scripts/aarch64.sh); PGSEAL_LIBRARIES names its libraries then, as unpacked packages.
#   place   called by debian/rules: moves what was installed for a PostgreSQL that is not where
#           Debian's is (scripts/postgres-versions.sh) to where it is on the user's machine
#   test    installs them in a clean root made by debootstrap (as root), uses a sealed cluster there
#           as an administrator of Debian would (scripts/deb-test-inside.sh), and runs lintian
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/root.sh"
. "$(dirname "$0")/lib/packages.sh"
cd "$PGSEAL_ROOT"

out=$PGSEAL_ROOT/build/deb
version=$(project_version)
# The default is an address that reaches nobody (RFC 2606).
maintainer=${DEB_MAINTAINER:-pgseal maintainers <pgseal@unknown.invalid>}

build() {
    local work=$out/pgseal-$version majors=() major modules='' arch=
    command -v dpkg-buildpackage >/dev/null || die "dpkg-buildpackage is missing; run scripts/setup.sh deb"
    case $PGSEAL_CROSS in
    '') ;;
    aarch64-*) arch=arm64 ;;
    *) die "no Debian packages for $PGSEAL_CROSS" ;;
    esac
    built_majors
    rm -rf "$out"
    mkdir -p "$work"
    cp -r packaging/debian "$work/debian"
    cp -r README.md SECURITY.md CHANGELOG.md docs spec "$work/"
    copy_examples "$work/examples"
    for major in "${majors[@]}"; do
        modules="$modules${modules:+ | }postgresql-$major-pgseal"
        sed "s/@MAJOR@/$major/g" "$work/debian/control-major.in" >>"$work/debian/control.in"
        printf '%s\n' "usr/lib/postgresql/$major" "usr/share/postgresql/$major" \
            >"$work/debian/postgresql-$major-pgseal.install"
        cp "$work/debian/postinst-major.in" "$work/debian/postgresql-$major-pgseal.postinst"
    done
    sed "s/@MODULES@/$modules/; s/@MAINTAINER@/$maintainer/" "$work/debian/control.in" >"$work/debian/control"
    rm "$work/debian/control.in" "$work/debian/control-major.in" "$work/debian/postinst-major.in"
    cat >"$work/debian/changelog" <<LOG
pgseal ($version) unstable; urgency=medium

  * See CHANGELOG.md.

 -- $maintainer  $(date -R -d "@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}")
LOG
    (cd "$work" && env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS -u DESTDIR PGSEAL_ROOT="$PGSEAL_ROOT" \
        DEB_BUILD_OPTIONS=nocheck dpkg-buildpackage ${arch:+-a"$arch"} -b -us -uc >"$out/build.log" 2>&1) || {
        tail -n 30 "$out/build.log" >&2
        die "the packages were not built; see $out/build.log"
    }
    rm -rf "$work"
    find "$out" -name '*.deb' | sort
}

test_debs() {
    local suite
    [ "$(id -u)" = 0 ] || die "a root of its own can only be made as root: sudo make test-deb"
    for program in debootstrap lintian jq python3; do
        command -v "$program" >/dev/null || die "$program is missing; run scripts/setup.sh test-deb"
    done
    find "$out" -name '*.deb' 2>/dev/null | grep . >/dev/null || die "no packages in $out; run 'make deb' first"
    check_debs "$out"
    suite=$(host_suite)
    temporary_root deb
    say "test-deb: a clean $suite in $root"
    make_root "$root" "$suite" "$out/debootstrap.log"
    enter_root "$root"
    mkdir "$root/debs"
    find "$out" -maxdepth 1 -name '*.deb' ! -name '*-dbgsym_*' -exec cp -t "$root/debs" {} +
    cp scripts/deb-test-inside.sh "$root/"
    in_root "$root" /deb-test-inside.sh
    say "test-deb: passed"
}

case "${1:-}" in
build)
    out=$(realpath -m "${2:-$out}")
    build
    ;;
place) place_modules "$2" /usr/lib/postgresql/@/lib /usr/share/postgresql/@ ;;
test) test_debs ;;
-h | --help) usage ;;
*) die "build or test?" ;;
esac
