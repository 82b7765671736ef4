#!/usr/bin/env bash
# check-deps.sh: proves that nothing but the crates in scripts/preload-deps.tsv is linked into the preloaded
# library, so that no network, TLS or async code can be in a database server's process because of pgseal.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

allowed=scripts/preload-deps.tsv
forbidden='^(tokio|async-|smol|mio$|futures|reqwest|hyper|h2$|http|ureq|curl|isahc|tonic|quinn|rustls|native-tls|openssl|webpki|socket2|hickory|trust-dns|tungstenite|aws-sdk|aws-smithy|nix$)'

if names=$(grep -v '^#' "$allowed" | cut -f 1 | grep -E "$forbidden"); then
    die "$allowed names crates that must never be in the library: $names"
fi
# The lock file decides what is built; a tree that would need another one is no proof.
tree=$(cargo tree --locked -p pgseal-preload -e normal --target all --prefix none --format '{p}' |
    cut -d ' ' -f 1 | sort -u)
extra=$(comm -23 <(printf '%s\n' "$tree") <(grep -v '^#' "$allowed" | cut -f 1 | sort -u))
if [ -n "$extra" ]; then
    for crate in $extra; do
        warn "$crate is in the tree of pgseal-preload and not in $allowed"
    done
    die "see 'cargo tree -p pgseal-preload -e normal -i CRATE'; add it with its reason, or keep it out"
fi
say "preloaded library: $(wc -l <<<"$tree") crates, all of them in $allowed; no network, TLS or async crate"
