#!/usr/bin/env bash
# vault-server.sh build: builds target/vault-server/vault-server, with which the plugin vault: is
# tested, from tests/vault-server and the modules that its go.mod names. Downloads about 1 GB of
# sources the first time. Needs Go 1.21 or later, which fetches a later one by itself if go.mod
# wants it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

if [ "${1:-}" != build ]; then
    usage
    exit 1
fi
command -v go >/dev/null || die "go is not here: install Go 1.21 or later (https://go.dev/dl)"
dir=target/vault-server
mkdir -p "$dir"
# In a copy, because go completes go.mod and writes go.sum: 3500 lines that follow from our three.
# Go checks every module against the public checksum database.
cp tests/vault-server/go.mod tests/vault-server/*.go "$dir/"
cd "$dir"
unformatted=$(gofmt -l .)
[ -z "$unformatted" ] || die "gofmt tests/vault-server: $unformatted"
GOFLAGS=-mod=mod go vet .
GOFLAGS=-mod=mod go build -buildvcs=false -o vault-server .
say "built $dir/vault-server"
