#!/usr/bin/env bash
# notices.sh write|check
#
# Writes what a package of pgseal must say about the crates that are linked into it, for the
# programs, the preloaded library and the library of sealed columns together, from the lock file
# alone:
#   target/notices/THIRD-PARTY-NOTICES.txt  each crate with its licence texts, those of AWS-LC
#                                           included
#   target/notices/pgseal.cdx.json          the bill of materials, CycloneDX 1.5
# Both are the same for the same lock file; those of another architecture (PGSEAL_CROSS) are below
# target/ARCHITECTURE. "check" fails if a crate has no licence text, unless it is one of
# WITHOUT_TEXT or MIT_WITHOUT_TEXT below.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"
export LC_ALL=C

LINKED=(pgseal-preload pgseal-cli pgseal-lab pgseal-provider-aws-kms pgseal-provider-kmip pgseal-provider-pkcs11 pgseal-provider-tpm2 pgseal-provider-vault
    pgseal-column)
# Their packages contain no licence text. All of them offer Apache-2.0, whose text stands at the
# end.
WITHOUT_TEXT='^(perf-event|perf-event-open-sys)$'
# The same, and only MIT is offered; its text stands at the end, too.
MIT_WITHOUT_TEXT='^(base64-simd|vsimd)$'
RULE=$(printf '=%.0s' {1..100})

out=$(target_dir)/notices
project=$(project_version)

# Prints NAME VERSION LICENCE-EXPRESSION in a line for each crate of others that is linked.
crates() {
    local packages=() name
    for name in "${LINKED[@]}"; do packages+=(-p "$name"); done
    if [ -n "${FIPS:-}" ]; then packages+=(-p pgseal-crypto --features pgseal-crypto/fips); fi
    "${CARGO:-cargo}" tree --quiet --locked "${packages[@]}" -e normal,no-proc-macro --target "${PGSEAL_CROSS:-$(host)}" --prefix none \
        --format '{p}|{l}' |
        sed -nE 's/^([^ ]+) v([^ |]+)\|(.*)$/\1 \2 \3/p' | sed -E 's/ \(\*\)$//; s#/# OR #g' | sort -u
}

host() { rustc -vV | sed -n 's/^host: //p'; }

# Where cargo has unpacked the sources of a crate.
source_of() {
    local dir
    for dir in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$1-$2"; do
        if [ -d "$dir" ]; then
            say "$dir"
            return
        fi
    done
    die "the sources of $1 $2 are not here; run 'cargo fetch --locked'"
}

# The files with licence texts and notices in the sources of a crate; the C sources within it too.
texts_of() {
    find "$1" -maxdepth 4 -type f -not -path '*/tests/*' \
        \( -iname 'licen[sc]e*' -o -iname 'copying*' -o -iname 'notice*' -o -iname 'copyright*' -o -iname 'unlicense*' \) \
        -not -name '*.rs' -not -name '*.toml' | sort
}

checksum_of() {
    awk -v name="\"$1\"" -v version="\"$2\"" '
        $1 == "name" { is = $3 == name } $1 == "version" { is = is && $3 == version }
        $1 == "checksum" && is { gsub(/"/, "", $3); print $3; exit }' Cargo.lock
}

notices() {
    local name version licence dir file sum
    local -A seen=()
    cat <<TEXT
Third-party notices of pgseal $project

pgseal itself is under Apache-2.0 or MIT, at your choice. The programs, the preloaded library and the
library of sealed columns contain the crates below. Each stands with its licence as an SPDX expression,
and with the texts that its package contains; a text that several packages contain stands once. They
also contain Rust's standard library under MIT or Apache-2.0.
TEXT
    while read -r name version licence; do
        dir=$(source_of "$name" "$version")
        printf '\n%s\n%s %s\nLicence: %s\nSource: pkg:cargo/%s@%s\n' \
            "$RULE" "$name" "$version" "$licence" "$name" "$version"
        while IFS= read -r file; do
            [ -n "$file" ] || continue
            sum=$(tr -d '\r' <"$file" | sha256sum)
            if [ -n "${seen[$sum]:-}" ]; then
                printf '\n---- %s: the text of %s\n' "${file#"$dir/"}" "${seen[$sum]}"
                continue
            fi
            seen[$sum]="${file#"$dir/"} of $name $version"
            printf '\n---- %s\n\n' "${file#"$dir/"}"
            tr -d '\r' <"$file"
        done < <(texts_of "$dir")
        if [[ $name =~ $WITHOUT_TEXT ]]; then printf '\nThe package has no licence text; see "Apache-2.0" at the end.\n'; fi
        if [[ $name =~ $MIT_WITHOUT_TEXT ]]; then
            printf '\nCopyright (c) the authors of %s. The package has no licence text; see "MIT" at the end.\n' "$name"
        fi
    done <"$out/crates"
    printf '\n%s\nApache-2.0\n\n' "$RULE"
    cat LICENSE-APACHE
    printf '\n%s\nMIT\n\n' "$RULE"
    grep -v '^Copyright' LICENSE-MIT
}

# The values contain no character that JSON would escape: names and versions of crates, SPDX
# expressions.
bill() {
    local name version licence comma=''
    cat <<JSON
{
  "bomFormat": "CycloneDX",
  "specVersion": "1.5",
  "version": 1,
  "metadata": {
    "component": {
      "type": "application", "bom-ref": "pgseal", "name": "pgseal", "version": "$project",
      "licenses": [{"expression": "Apache-2.0 OR MIT"}]
    }
  },
  "components": [
JSON
    while read -r name version licence; do
        printf '%s    {"type": "library", "bom-ref": "pkg:cargo/%s@%s", "name": "%s", "version": "%s",\n' \
            "$comma" "$name" "$version" "$name" "$version"
        printf '     "licenses": [{"expression": "%s"}],\n' "$licence"
        printf '     "hashes": [{"alg": "SHA-256", "content": "%s"}],\n' "$(checksum_of "$name" "$version")"
        printf '     "purl": "pkg:cargo/%s@%s"}' "$name" "$version"
        comma=$',\n'
    done <"$out/crates"
    printf '\n  ]\n}\n'
}

check() {
    local name version licence failed=no
    while read -r name version licence; do
        [ -n "$licence" ] || { warn "$name $version names no licence" && failed=yes; }
        [[ ! $licence =~ [\"\\] ]] || { warn "$name $version: JSON cannot hold its licence as it is" && failed=yes; }
        [[ $(checksum_of "$name" "$version") =~ ^[0-9a-f]{64}$ ]] ||
            { warn "Cargo.lock has no checksum of $name $version" && failed=yes; }
        if [ -n "$(texts_of "$(source_of "$name" "$version")")" ]; then
            [[ ! $name =~ $WITHOUT_TEXT && ! $name =~ $MIT_WITHOUT_TEXT ]] ||
                { warn "$name $version has a licence text now" && failed=yes; }
        elif [[ $name =~ $WITHOUT_TEXT && $licence == *Apache-2.0* ]]; then
            continue
        elif [[ $name =~ $MIT_WITHOUT_TEXT && $licence == MIT ]]; then
            continue
        else
            warn "$name $version has no licence text in its package"
            failed=yes
        fi
    done <"$out/crates"
    [ "$failed" = no ] || die "add the text, or the crate to WITHOUT_TEXT if Apache-2.0 is offered"
    say "notices: $(wc -l <"$out/crates") crates, each with its licence"
}

case "${1:-}" in
write | check) ;;
-h | --help)
    usage
    exit 0
    ;;
*) die "write or check?" ;;
esac
mkdir -p "$out"
crates >"$out/crates.new"
# Crates of this workspace have no source but this one.
grep -v '^pgseal-' "$out/crates.new" >"$out/crates" || die "no crates?"
rm "$out/crates.new"
[ "$(wc -l <"$out/crates")" -ge 20 ] || die "cargo tree lists too few crates: $(cat "$out/crates")"
check
if [ "$1" = write ]; then
    notices >"$out/THIRD-PARTY-NOTICES.txt.new"
    bill >"$out/pgseal.cdx.json.new"
    mv "$out/THIRD-PARTY-NOTICES.txt.new" "$out/THIRD-PARTY-NOTICES.txt"
    mv "$out/pgseal.cdx.json.new" "$out/pgseal.cdx.json"
fi
