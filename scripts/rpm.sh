#!/usr/bin/env bash
# rpm.sh build [OUT]|test
#
#   build   makes RPM packages of the results of 'make build', in OUT (build/rpm): pgseal,
#           pgseal-lab, pgseal_NN for each PostgreSQL of the distribution that is installed here or
#           that PG_CONFIG names, and their debug symbols. The modules are for the servers of the
#           PostgreSQL project's own RPM packages (/usr/pgsql-NN). RPM_MAINTAINER sets the packager,
#           RPM_RELEASE the release (1).
#   place   called by the spec file: moves the modules to where those servers look for them
#   test    what the packages need (no C library newer than that of RHEL 9), rpmlint; installs,
#           upgrades and removes them with rpm in a root made by debootstrap (as root), and uses a
#           sealed cluster there (scripts/rpm-test-inside.sh)
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/root.sh"
. "$(dirname "$0")/lib/packages.sh"
cd "$PGSEAL_ROOT"

# The C library of RHEL 9 and what is made like it.
NEWEST_GLIBC=2.34
out=$PGSEAL_ROOT/build/rpm
version=$(project_version)
# The default is an address that reaches nobody (RFC 2606).
maintainer=${RPM_MAINTAINER:-pgseal maintainers <pgseal@unknown.invalid>}

# function_of NAME: the shell function with this name of the Debian package's scripts.
function_of() { sed -n "/^$1() {/,/^}/p" packaging/debian/pgseal.postinst packaging/debian/pgseal.prerm; }

# fill NAME FILE: replaces @NAME@ on the standard input by the content of a file, which stands on
# lines of its own.
fill() { sed -e "/^@$1@\$/{r $2" -e 'd}'; }

build() {
    local work=$out/work majors=() major program epoch
    for program in rpmbuild find-debuginfo eu-strip; do
        command -v "$program" >/dev/null || die "$program is missing; run scripts/setup.sh rpm"
    done
    built_majors
    rm -rf "$out"
    mkdir -p "$work"
    copy_examples "$work/examples"
    cp packaging/rpm/pgseal.cil "$work/examples/"
    # One of them, as for Debian.
    say "Recommends: $(printf 'pgseal_%s or ' "${majors[@]}" | sed -E 's/ or $//; s/^.* or .*$/(&)/')" >"$work/recommends"
    for major in "${majors[@]}"; do sed "s/@MAJOR@/$major/g" packaging/rpm/major.spec.in; done >"$work/majors"
    epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
    function_of older_servers >"$work/older"
    function_of sealed_servers >"$work/sealed"
    sed -n '/<<TEXT$/,/^TEXT$/{//!p}' packaging/debian/pgseal.prerm >"$work/warning"
    fill RECOMMENDS "$work/recommends" <packaging/rpm/pgseal.spec.in | fill MAJORS "$work/majors" |
        fill OLDER_SERVERS "$work/older" | fill SEALED_SERVERS "$work/sealed" | fill WARNING "$work/warning" |
        sed "s#@DATE@#$(LC_ALL=C date -u -d "@$epoch" '+%a %b %d %Y')#; s#@VERSION@#$version#g; s#@RELEASE@#${RPM_RELEASE:-1}#; s#@ROOT@#$PGSEAL_ROOT#g; s#@EXAMPLES@#$work/examples#; s#@MAINTAINER@#$maintainer#g" \
            >"$work/pgseal.spec"
    env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS -u DESTDIR SOURCE_DATE_EPOCH="$epoch" rpmbuild -bb --define "_topdir $work/top" \
        --define "_rpmdir $out" --define '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
        --define "_binary_payload w2.gzdio" "$work/pgseal.spec" >"$out/build.log" 2>&1 || {
        tail -n 30 "$out/build.log" >&2
        die "the packages were not built; see $out/build.log"
    }
    rm -rf "$work"
    find "$out" -name '*.rpm' | sort
}

# unpack_rpm PACKAGE DIR
unpack_rpm() {
    mkdir -p "$2"
    rpm2cpio "$1" | (cd "$2" && cpio -id --quiet)
}

# What the packages need is what RHEL 9 has, and nothing of this machine.
check_needs() {
    local package needs glibc
    for package in "$out"/*.rpm; do
        needs=$(rpm -qp --requires "$package" 2>/dev/null)
        glibc=$(sed -nE 's/.*\(GLIBC_([0-9.]+)\).*/\1/p' <<<"$needs" | sort -V | tail -n 1)
        [ "$(printf '%s\n' "$glibc" $NEWEST_GLIBC | sort -V | tail -n 1)" = $NEWEST_GLIBC ] ||
            die "${package##*/} needs glibc $glibc, and RHEL 9 has $NEWEST_GLIBC"
        needs=$(grep -vE '^(lib(c|m|dl|pthread|rt|gcc_s)\.so\.[0-9]|ld-linux-|rpmlib\(|rtld\(GNU_HASH\)|/bin/sh$|pgseal |postgresql[0-9]+-server$|$)' <<<"$needs" || true)
        [ -z "$needs" ] || die "${package##*/} needs $needs"
    done
    say "test-rpm: no package needs more than the C library $NEWEST_GLIBC, that of RHEL 9"
}

test_rpms() {
    local program suite major package
    [ "$(id -u)" = 0 ] || die "a root of its own can only be made as root: sudo make test-rpm"
    for program in debootstrap jq python3 rpmlint rpm rpm2cpio cpio; do
        command -v "$program" >/dev/null || die "$program is missing; run scripts/setup.sh test-rpm"
    done
    find "$out" -name '*.rpm' 2>/dev/null | grep . >/dev/null || die "no packages in $out; run 'make rpm' first"
    check_needs
    check_symbols unpack_rpm "$out"/*.rpm
    check_packaged_crates unpack_rpm "$out"/*.rpm
    say "test-rpm: rpmlint"
    rpmlint -r packaging/rpm/rpmlintrc "$out"/*.rpm || die "rpmlint finds errors"
    suite=$(host_suite)
    major=$(default_major)
    temporary_root rpm
    say "test-rpm: a clean $suite with rpm, in $root"
    make_root "$root" "$suite" "$out/debootstrap.log"
    enter_root "$root"
    mkdir "$root/rpms"
    find "$out" -maxdepth 1 -name '*.rpm' ! -name '*-debuginfo-*' -exec cp -t "$root/rpms" {} +
    # The next release, for the upgrade.
    (RPM_RELEASE=2 && out=$root/next && build >/dev/null)
    cp scripts/rpm-test-inside.sh "$root/"
    in_root "$root" /rpm-test-inside.sh "$major"
    say "test-rpm: passed"
}

case "${1:-}" in
build)
    out=$(realpath -m "${2:-$out}")
    build
    ;;
place) place_modules "$2" /usr/pgsql-@/lib /usr/pgsql-@/share ;;
test) test_rpms ;;
-h | --help) usage ;;
*) die "build or test?" ;;
esac
