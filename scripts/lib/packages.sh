# shellcheck shell=bash
# For deb.sh, rpm.sh and release.sh, after lib.sh: what packages of each kind have in common.

# copy_examples DIR: units, wrappers and the Ansible role, for the documentation of a package.
copy_examples() {
    mkdir -p "$1"
    cp packaging/systemd/* packaging/container/* packaging/barman/* "$1/"
    cp -r packaging/ansible "$1/"
}

# Puts the majors of PostgreSQL that this machine has modules for into the caller's array "majors".
built_majors() {
    local config major
    for config in $(pg_configs); do
        major=$(pg_major "$config")
        [ -e "$(target_dir)/guard/$major/pgseal_guard.so" ] || die "no modules for PostgreSQL $major: run 'make build' first"
        majors+=("$major")
    done
    [ ${#majors[@]} -gt 0 ] || die "no PostgreSQL of the distribution here"
}

# place_modules ROOT LIBDIR SHAREDIR: moves what 'make install' put below ROOT for each PostgreSQL
# of this machine to where that of the user's machine looks for it; "@" stands for the major
# version.
place_modules() {
    local root=$1 config major pair from into
    for config in $(pg_configs); do
        major=$(pg_major "$config")
        for pair in "$("$config" --pkglibdir):${2//@/$major}" "$("$config" --sharedir):${3//@/$major}"; do
            from=$root${pair%:*} into=$root${pair#*:}
            if [ "$from" != "$into" ]; then mkdir -p "${into%/*}" && mv "$from" "$into"; fi
        done
    done
}

# check_symbols UNPACK PACKAGE...: programs and libraries are stripped, and what gdb and perf need
# is in packages of its own. UNPACK PACKAGE DIR unpacks a package.
check_symbols() {
    local unpack=$1 package dir file id count=0 wanted
    local -A names=()
    shift
    dir=$(mktemp -d "${TMPDIR:-/tmp}/pgseal-symbols.XXXXXX")
    for package; do "$unpack" "$package" "$dir/${package##*/}"; done
    while read -r file; do
        if readelf -SW "$file" 2>/dev/null | grep -E '\.(debug_line|symtab)' >/dev/null; then
            die "${file#"$dir/"} is not stripped"
        fi
        id=$(build_id "$file")
        [ -z "$id" ] || names[$id]=${file##*/}
    done < <(find "$dir" -type f \( -perm -u+x -o -name '*.so' \) ! -path '*/usr/lib/debug/*')
    while read -r file; do
        wanted=debug_line
        # Programs are built without debug information, and some link nothing that has it: names of
        # functions. So has everything of who built without it.
        case "${names[$(build_id "$file")]:-unknown}:${CARGO_PROFILE_RELEASE_DEBUG:-}" in
        unknown:*) die "${file#"$dir/"} is of no program" ;;
        pgseal-provider-* | pgseal-lab:* | *:0) wanted=symtab ;;
        esac
        readelf -SW "$file" 2>/dev/null | grep "\.$wanted" >/dev/null || die "${file#"$dir/"} has no debug symbols"
        count=$((count + 1))
    done < <(find "$dir" -type f -path '*/usr/lib/debug/*' -name '*.debug')
    rm -rf "$dir"
    # pgseal, the library, three plugins, pgseal-lab; guard module and extension
    [ "$count" -ge 8 ] || die "only $count files of debug symbols"
    say "$count files of debug symbols, each in a package of its own"
}

# unpack_deb PACKAGE DIR
unpack_deb() { dpkg-deb -x "$1" "$2"; }

# check_debs DIR: debug symbols, lists of crates, lintian. Only errors of lintian make this fail;
# all findings are shown.
check_debs() {
    check_symbols unpack_deb "$1"/*.deb
    check_packaged_crates unpack_deb "$1"/*.deb
    say "lintian"
    lintian --fail-on error --tag-display-limit 0 --allow-root "$1"/*.deb
}

# build_id FILE: the number that a program and its debug symbols have in common; nothing of another
# file.
build_id() { { readelf -n "$1" 2>/dev/null || true; } | sed -n 's/.*Build ID: //p'; }

# check_crates BILL FILE...: each program or library names the crates in it (cargo auditable), and
# together they name all of the bill of materials: what is linked is in both. The programs' lists
# have some more, which cargo's features would allow.
check_crates() {
    local bill=$1 file names missing
    shift
    names=$(mktemp "${TMPDIR:-/tmp}/pgseal-crates.XXXXXX")
    for file; do
        "$PGSEAL_ROOT/scripts/crates-in.py" "$file" >>"$names" || die "${file##*/} does not list the crates in it"
    done
    missing=$(jq -r '.components[] | "\(.name) \(.version)"' "$bill" | sort | comm -23 - <(sort -u "$names"))
    rm "$names"
    [ -z "$missing" ] || die "no program lists these crates of ${bill##*/}: $missing"
    say "each of $# programs and libraries lists the crates in it"
}

# check_packaged_crates UNPACK PACKAGE...: the same for the programs and the library of packages.
# The extension of sealed columns is C with a static library of Rust, into which cargo auditable
# puts no list.
check_packaged_crates() {
    local unpack=$1 package dir programs
    shift
    dir=$(mktemp -d "${TMPDIR:-/tmp}/pgseal-crates.XXXXXX")
    for package; do
        case "${package##*/}" in *dbgsym* | *debuginfo*) ;; *) "$unpack" "$package" "$dir" ;; esac
    done
    gzip -dqf "$dir/usr/share/doc/pgseal/pgseal.cdx.json.gz" 2>/dev/null || true
    mapfile -t programs < <(find "$dir/usr/bin" "$dir/usr/lib/pgseal" -type f)
    check_crates "$dir/usr/share/doc/pgseal/pgseal.cdx.json" "${programs[@]}"
    rm -rf "$dir"
}
