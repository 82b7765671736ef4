#!/usr/bin/env bash
# image-test.sh MAJOR   runs build/image/MAJOR (scripts/image.sh) in containers, as an engine would
#
# umoci unpacks the image; runc runs it, with the image's own environment, user, entrypoint and
# working directory, a layer of its own for each container, own processes and an own network without
# a way out, and the capabilities that Docker gives. Needs root. If the image has an older server
# too (UPGRADE_FROM), that one's clusters are upgraded. At the end everything that the containers
# wrote is searched for rows and keys.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

read_options "" "$@"
major=${REST[0]:-}
[ -n "$major" ] || die "which major version?"
layout=$PGSEAL_ROOT/build/image/$major
[ "$(id -u)" = 0 ] || die "containers can only be made as root: sudo make test-image"
[ -e "$layout/index.json" ] || die "there is no image: run 'make image MAJOR=$major' first"
for program in umoci runc jq openssl; do command -v "$program" >/dev/null || die "$program is missing; run scripts/setup.sh test-image"; done

POSTGRES=999
SECRET=/run/secrets/pgseal.key
CANARY=canary-image-Lw8q
work=$(mktemp -d "${TMPDIR:-/tmp}/pgseal-image-test.XXXXXX")
chmod 755 "$work"
# Each container has a name of its own on the machine.
prefix=pgseal-test-$$
declare -A running=()
store=

step() { say "test-image: $*"; }
clean() {
    local status=$? name
    trap - EXIT
    for name in "${!running[@]}"; do
        runc delete --force "$prefix-$name" >/dev/null 2>&1 || true
    done
    [ -z "$store" ] || kill "$store" 2>/dev/null || true
    for name in "$work"/containers/*/rootfs "$work/newer/rootfs"; do umount "$name" 2>/dev/null || true; done
    [ "$status" = 0 ] || [ ! -e "$work/last.log" ] || tail -n 15 "$work/last.log" >&2
    rm -rf --one-file-system "$work"
    exit "$status"
}
trap clean EXIT
trap 'exit 130' INT TERM

# The capabilities of a container that Docker starts.
CAPABILITIES='["CAP_CHOWN","CAP_DAC_OVERRIDE","CAP_FOWNER","CAP_FSETID","CAP_KILL","CAP_MKNOD","CAP_NET_BIND_SERVICE","CAP_NET_RAW","CAP_SETFCAP","CAP_SETGID","CAP_SETPCAP","CAP_SETUID","CAP_SYS_CHROOT","CAP_AUDIT_WRITE"]'

# unpack LAYOUT DIR: the image's root in DIR/rootfs, and DIR/config.json with what it says of
# itself.
unpack() { umoci unpack --image "$1:$(jq -r '.manifests[0].annotations["org.opencontainers.image.ref.name"]' "$1/index.json")" "$2" >"$work/last.log" 2>&1; }

# prepare NAME [OPTION...] [-- ARGUMENT...]: a container in $work/containers/NAME. Options are those
# of docker run: -e NAME=VALUE, -v SOURCE:PLACE[:ro], -u UID:GID, --read-only, --tmpfs PLACE,
# --network host; and -i BUNDLE.
prepare() {
    local name=$1 image=$work/image user='' readonly=false network='' environment=() mounts=() config=$work/containers/$1
    shift
    while [ $# -gt 0 ]; do
        case $1 in
        -e) environment+=("$2") && shift 2 ;;
        -v)
            mounts+=("$(jq -n --arg all "$2" '($all | split(":")) as $m | { source: $m[0], destination: $m[1], type: "none",
                options: ["rbind", ($m[2] // "rw")] }')") && shift 2
            ;;
        -u) user=$2 && shift 2 ;;
        -i) image=$2 && shift 2 ;;
        --read-only) readonly=true && shift ;;
        --tmpfs)
            mounts+=("$(jq -n --arg place "$2" '{ source: "tmpfs", destination: $place, type: "tmpfs", options: ["mode=1777", "nosuid", "nodev"] }')")
            shift 2
            ;;
        --network) network=$2 && shift 2 ;;
        --) shift && break ;;
        esac
    done
    umount "$config/rootfs" 2>/dev/null || true
    # What the last container of this name wrote beside its volumes is searched at the end, too.
    if [ -e "$config" ]; then mv "$config" "$config.$(find "$work/containers" -maxdepth 1 | wc -l)"; fi
    mkdir -p "$config/upper" "$config/work" "$config/rootfs"
    mount -t overlay overlay -o "lowerdir=$image/rootfs,upperdir=$config/upper,workdir=$config/work" "$config/rootfs"
    jq --arg user "$user" --argjson readonly "$readonly" --arg network "$network" --argjson capabilities "$CAPABILITIES" \
        --argjson mounts "$(printf '%s\n' ${mounts[@]+"${mounts[@]}"} | jq -s .)" \
        --argjson environment "$(jq -n '$ARGS.positional' --args ${environment[@]+"${environment[@]}"})" \
        --argjson settings "$(image_config "$image")" '
        $ARGS.positional as $arguments
        | ($mounts | map(.destination)) as $places
        | .process.terminal = false
        | .process.args = $settings.Entrypoint + (if $arguments == [] then $settings.Cmd else $arguments end)
        | .process.env = $settings.Env + $environment
        | .process.cwd = $settings.WorkingDir
        | if $user != "" then .process.user = ($user | split(":") | { uid: .[0] | tonumber, gid: (.[1] // "0") | tonumber }) else . end
        | (if .process.user.uid == 0 then $capabilities else [] end) as $caps
        | .process.capabilities = { bounding: $caps, effective: $caps, permitted: $caps }
        | .process.noNewPrivileges = true
        | .root = { path: "rootfs", readonly: $readonly }
        | .mounts = ([.mounts[] | select([.destination] | inside($places) | not)] + $mounts)
        | if $network == "host" then .linux.namespaces |= map(select(.type != "network")) else . end' \
        --args -- "$@" <"$image/config.json" >"$config/config.json"
}

# image_config BUNDLE: what the image says of how it runs.
image_config() { cat "$1/image.json"; }

# start NAME ...: a container in the background, as prepare; its log is in $work/NAME.log.
start() {
    local name=$1
    prepare "$@"
    ln -sfn "$work/$name.log" "$work/last.log"
    runc run --bundle "$work/containers/$name" "$prefix-$name" >"$work/$name.log" 2>&1 </dev/null &
    running[$name]=$!
}

# healthy NAME: waits until its healthcheck succeeds.
healthy() {
    local name=$1 _
    for _ in $(seq 300); do
        if runc exec "$prefix-$name" /usr/local/bin/pgseal-healthcheck >/dev/null 2>&1; then return; fi
        kill -0 "${running[$name]}" 2>/dev/null || die "the container $name has ended"
        sleep 0.2
    done
    die "the container $name does not become healthy"
}

# stop NAME [SIGNAL]: sends the image's signal or another one, waits, and sets "ended" to the exit
# status.
stop() {
    local name=$1
    runc kill "$prefix-$name" "${2:-$(image_config "$work/image" | jq -r .StopSignal)}"
    ended=0
    wait "${running[$name]}" || ended=$?
    runc delete --force "$prefix-$name" >/dev/null 2>&1 || true
    unset "running[$name]"
}

# once NAME ...: a container in the foreground, as prepare; its output in $work/NAME.log.
once() {
    local name=$1 status=0
    prepare "$@"
    ln -sfn "$work/$name.log" "$work/last.log"
    timeout 120 runc run --bundle "$work/containers/$name" "$prefix-$name" >"$work/$name.log" 2>&1 </dev/null || status=$?
    runc delete --force "$prefix-$name" >/dev/null 2>&1 || true
    return $status
}

# refused TEXT NAME ...: a container that has to fail, and to say that.
refused() {
    local text=$1
    shift
    if once "$@"; then die "$1: it starts"; fi
    grep -qE -- "$text" "$work/$1.log" || die "$1: it does not say \"$text\""
}

inside() { runc exec ${user:+--user "$user"} "$prefix-$1" "${@:2}"; }
sql() { user=$POSTGRES inside "$1" psql -X -A -t -q -v ON_ERROR_STOP=1 -U "${3:-postgres}" -d "${4:-postgres}" -c "$2"; }
expect() { [ "$2" = "$3" ] || die "$1: \"$2\" in place of \"$3\""; }

# package_version IMAGE PACKAGE
package_version() {
    # shellcheck disable=SC2016 # dpkg's own placeholder
    dpkg-query --admindir="$work/$1/rootfs/var/lib/dpkg" -W -f '${Version}' "$2"
}

# knows_attver MAJOR: whether this server of the image is of a minor release since November 2026.
knows_attver() { grep -qaF pg_attver "$work/image/rootfs/usr/lib/postgresql/$1/bin/postgres"; }

# volume NAME: an empty one, as an engine makes it. Later content is that of the containers.
volume() { mkdir -p "$work/volumes/$1" && say "$work/volumes/$1"; }
is_empty() { [ -z "$(find "$1" -type f)" ] || die "$2 left files: $(find "$1" -type f | head -n 3)"; }
key() {
    "$work/image/rootfs/usr/bin/pgseal" key new -o "$work/keys/$1" >/dev/null
    chown "${2:-$POSTGRES}:${2:-$POSTGRES}" "$work/keys/$1"
    chmod "${3:-400}" "$work/keys/$1"
}
count() { say "create table $1 as select '$CANARY' || g as v from generate_series(1, 500) g;"; }

step "unpack the image"
unpack "$layout" "$work/image" || die "umoci does not unpack the image"
manifest=$(jq -r '.manifests[0].digest' "$layout/index.json")
jq -c .config "$layout/blobs/sha256/$(jq -r .config.digest "$layout/blobs/sha256/${manifest#*:}" | cut -d : -f 2)" >"$work/image/image.json"
data=$(jq -r '.Env[] | select(startswith("PGDATA=")) | sub("PGDATA="; "")' "$work/image/image.json")
mounted=$(jq -r '.Volumes | keys[0]' "$work/image/image.json")
below=${data#"$mounted"}
for file in usr/share/doc/pgseal/THIRD-PARTY-NOTICES.txt usr/share/doc/pgseal/copyright usr/share/doc/postgresql-"$major"/copyright; do
    [ -e "$work/image/rootfs/$file" ] || die "the image has no /$file"
done
for pack in "postgresql-$major" pgseal "postgresql-$major-pgseal" libssl3; do
    jq -e --arg pack "$pack" '.components[] | select(.name | startswith($pack))' "$work/image/rootfs/usr/share/sbom/image.cdx.json" >/dev/null ||
        die "the bill of materials does not name $pack"
done
zcat -f "$work/image/rootfs/usr/share/doc/pgseal/pgseal.cdx.json"* | jq -e '.components[] | select(.name == "aws-lc-sys")' >/dev/null ||
    die "the list of crates does not name AWS-LC"
if grep -rl -- '-----BEGIN.*PRIVATE KEY' "$work/image/rootfs/etc" "$work/image/rootfs/usr/local" "$work/image/rootfs/var"; then die "the image has a private key"; fi
if [ -n "$(ls "$work/image/rootfs/var/lib/apt/lists")$(cat "$work/image/rootfs/etc/machine-id")" ]; then die "the image has something of the machine"; fi
expect "archives of packages" "$(grep -rhoE 'https?://[^ ]+ [^ ]+' "$work/image/rootfs/etc/apt" | sort)" ""

mkdir "$work/keys" "$work/scripts" "$work/containers" "$work/volumes"
key main
key other
key of-root 0
printf 'a word of the superuser' >"$work/keys/password"
chown $POSTGRES "$work/keys/password" && chmod 400 "$work/keys/password"
count from_sql >"$work/scripts/1.sql"
count from_gz | gzip >"$work/scripts/2.sql.gz"
count from_xz | xz >"$work/scripts/3.sql.xz"
# shellcheck disable=SC2016 # the script expands them
printf '#!/bin/sh -eu\n! pgseal-healthcheck\npsql -X -q -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d "$POSTGRES_DB" -c "%s"\n' "$(count from_sh)" >"$work/scripts/4.sh"
chmod 755 "$work/scripts/4.sh"
printf 'echo "$NOT_SET_AT_ALL" "%s" | docker_process_sql\n' "$(count from_source)" >"$work/scripts/5.sh"
echo nothing >"$work/scripts/6.txt"
password=(-e POSTGRES_PASSWORD=secret)
secret=(-v "$work/keys/main:$SECRET:ro")

step "what a first start refuses"
v=$(volume refused)
refused 'there is no key: /run/secrets' refused -v "$v:$mounted" "${password[@]}"
refused 'makes no plain data directory' refused -v "$v:$mounted" "${password[@]}" -e PGSEAL_PROVIDER=
refused 'needs a password' refused -v "$v:$mounted" "${secret[@]}"
refused 'cannot be read by the user 999' refused -v "$v:$mounted" "${password[@]}" -v "$work/keys/of-root:$SECRET:ro"
refused 'POSTGRES_PASSWORD and POSTGRES_PASSWORD_FILE are both set' refused -v "$v:$mounted" "${secret[@]}" "${password[@]}" -e POSTGRES_PASSWORD_FILE=/x
refused 'pgseal: ' refused -v "$v:$mounted" "${password[@]}" -v "$work/keys/password:$SECRET:ro"
is_empty "$v" "a refused first start"
once other "${secret[@]}" -- postgres --version || die "postgres --version"
grep -q "^postgres (PostgreSQL) $major" "$work/other.log" || die "another version"
once other -- sh -c 'id -u; echo "$PGDATA"' || die "another command"
expect "another command" "$(cat "$work/other.log")" $'0\n'"$data"
if [ "$major" -ge 18 ]; then
    refused 'there is a volume at /var/lib/postgresql/data' old -v "$v:/var/lib/postgresql/data" "${secret[@]}" "${password[@]}"
    is_empty "$v" "a volume at the old place"
fi

step "first start: password from a file, a user, a database, scripts of each kind, arguments"
v=$(volume main)
start main -v "$v:$mounted" "${secret[@]}" -v "$work/keys/password:/run/secrets/password:ro" -v "$work/scripts:/docker-entrypoint-initdb.d:ro" \
    -e POSTGRES_PASSWORD_FILE=/run/secrets/password -e POSTGRES_USER=app -e POSTGRES_DB=shop -- -c max_connections=37
healthy main
for table in from_sql from_gz from_xz from_sh from_source; do
    expect "rows of $table" "$(sql main "select count(*) from $table" app shop)" 500
done
expect "an argument" "$(sql main "show max_connections" app shop)" 37
expect "checksums" "$(sql main "show data_checksums" app shop)" on
pid=$(runc state "$prefix-main" | jq .pid)
expect "the first process" "$(readlink "/proc/$pid/exe")" "/usr/lib/postgresql/$major/bin/postgres"
expect "its user" "$(awk '/^Uid:/ { print $2 }' "/proc/$pid/status")" $POSTGRES
expect "core files" "$(awk '/core file/ { print $5 }' "/proc/$pid/limits")" 0
if tr '\0' '\n' <"/proc/$pid/environ" | grep POSTGRES_PASSWORD; then die "the server's environment has the password"; fi
# An address from outside, as seen by the server: on its own network, and of those that are for
# documentation.
nsenter -t "$pid" -n ip address add 192.0.2.1/32 dev lo
expect "over TCP" "$(inside main env PGPASSWORD="$(cat "$work/keys/password")" psql -X -A -t -h 192.0.2.1 -U app -d shop -c "select count(*) from from_sql")" 500
if inside main env PGPASSWORD=wrong psql -X -h 192.0.2.1 -U app -d shop -c "select 1" >/dev/null 2>&1; then die "a wrong password is let in"; fi
user=$POSTGRES inside main pgseal status "$data" >"$work/status.log" || die "pgseal status"
user=$POSTGRES inside main pgseal verify "$data" >"$work/verify.log" 2>&1 || die "pgseal verify: $(tail -n 5 "$work/verify.log")"
identity=$("$work/image/rootfs/usr/bin/pgseal" key show --json "$v$below" | jq -r .keyring_id)
grep -qF "$identity" "$work/main.log" || die "the log does not name the identity"

step "stop, and start again, pinned"
stop main
expect "exit status of SIGINT" "$ended" 0
[ -e "$v$below/pgseal/manifest" ] || die "the stop wrote no manifest"
manifest_before=$(sha256sum <"$v$below/pgseal/manifest")
pinned=(-v "$v:$mounted" "${secret[@]}" -e "PGSEAL_KEYRING_ID=$identity")
start main "${pinned[@]}"
healthy main
expect "rows after the restart" "$(sql main "select count(*) from from_sh" app shop)" 500
sql main "create table later as select '$CANARY-later' || g as v from generate_series(1, 500) g" app shop
# A client that stays: SIGTERM waits for it. No session: it ends at once.
stop main TERM
expect "exit status of SIGTERM" "$ended" 0
once control "${pinned[@]}" -u $POSTGRES -- pg_controldata "$data" || die "pg_controldata"
grep -q 'cluster state: *shut down$' "$work/control.log" || die "SIGTERM did not stop the server cleanly"
[ "$(sha256sum <"$v$below/pgseal/manifest")" != "$manifest_before" ] || die "SIGTERM wrote no manifest"

step "wrong key, no key, another cluster, and the right key again"
before=$(cd "$v$below" && find . -type f -newer "$work/control.log" | wc -l)
refused 'does not open|wrong key|another key' wrong -v "$v:$mounted" -v "$work/keys/other:$SECRET:ro"
refused 'there is no key: /run/secrets' missing -v "$v:$mounted"
refused 'keyring' identity -v "$v:$mounted" "${secret[@]}" -e PGSEAL_KEYRING_ID=00000000000000000000000000000000
expect "changed files" "$(cd "$v$below" && find . -type f -newer "$work/control.log" | wc -l)" "$before"
start main "${pinned[@]}"
healthy main
expect "rows with the right key" "$(sql main "select count(*) from later" app shop)" 500

step "kill -9, and start again"
sql main "create table killed as select '$CANARY-killed' || g as v from generate_series(1, 5000) g" app shop
stop main KILL
expect "exit status of SIGKILL" "$ended" 137
start main "${pinned[@]}"
healthy main
grep -q 'not properly shut down' "$work/main.log" || die "no recovery"
expect "rows after kill -9" "$(sql main "select count(*) from killed" app shop)" 5000
stop main

step "the key named in /etc/pgseal/clusters.d"
mkdir "$work/clusters.d"
printf 'provider = file:/keys/main\n' >"$work/clusters.d/$identity.conf"
start main -v "$v:$mounted" -v "$work/clusters.d:/etc/pgseal/clusters.d:ro" -v "$work/keys/main:/keys/main:ro"
healthy main
expect "rows with the key of clusters.d" "$(sql main "select count(*) from killed" app shop)" 5000
stop main

step "a key in a file, the user postgres from the start, PGDATA elsewhere, without checksums"
v=$(volume file)
chown $POSTGRES:$POSTGRES "$v"
# Up to 17 there are no checksums without an option.
options=--locale=C
[ "$major" -lt 18 ] || options="--no-data-checksums --locale=C"
start file -u $POSTGRES:$POSTGRES -v "$v:/srv/pg" -v "$work/keys/main:/keys/main:ro" "${password[@]}" \
    -v "$work/scripts/1.sql:/docker-entrypoint-initdb.d/1.sql:ro" -e PGDATA=/srv/pg/data \
    -e PGSEAL_PROVIDER=file:/keys/main -e "POSTGRES_INITDB_ARGS=$options" -e PGSEAL_SUITE=aes-128-gcm
healthy file
expect "rows" "$(sql file "select count(*) from from_sql")" 500
expect "hint bits" "$(sql file "show wal_log_hints")" on
grep -q aes-128-gcm <("$work/image/rootfs/usr/bin/pgseal" key show "$v/data") || die "the suite of PGSEAL_SUITE"
stop file

step "a user that the image does not know, nothing writable but the volume and tmpfs, no capability"
v=$(volume unknown)
key unknown 12345
chown 12345:0 "$v"
unknown=(-u 12345:0 --read-only --tmpfs /tmp --tmpfs /var/run/postgresql -v "$v:$mounted" -v "$work/keys/unknown:$SECRET:ro")
start unknown "${unknown[@]}" "${password[@]}" -v "$work/scripts:/docker-entrypoint-initdb.d:ro"
healthy unknown
expect "rows" "$(user=12345 inside unknown psql -X -A -t -U postgres -c "select count(*) from from_source")" 500
stop unknown
expect "exit status" "$ended" 0
start unknown "${unknown[@]}"
healthy unknown
expect "rows after the restart" "$(user=12345 inside unknown psql -X -A -t -U postgres -c "select count(*) from from_gz")" 500
stop unknown

step "a key store: PyKMIP, over mutual TLS"
tests=$(key_stores_dir)/bin
[ -x "$tests/pykmip-server" ] || die "PyKMIP is missing; run scripts/setup.sh test-image"
kmip=$work/kmip
# The commands are those of docs/key-stores.md, with another port.
kmip_block() {
    awk -v wanted="$1" '/^## / { here = ($0 == "## KMIP") } here && /^```/ { within = !within; n += within; next }
        here && within && n == wanted' docs/key-stores.md | sed "s#5696#$port#g"
}
port=$((20000 + $$ % 20000))
HOME=$work PATH=$tests:$PATH bash -euc "$(kmip_block 1)
    echo \$! >$kmip/pid" >"$work/kmip.log" 2>&1 || die "PyKMIP: $(tail -n 3 "$work/kmip.log")"
store=$(cat "$kmip/pid")
for _ in $(seq 100); do
    if grep -qs "Loading policy: pgseal" "$kmip/log"; then break; fi
    sleep 0.2
done
HOME=$work PATH=$tests:$PATH bash -euc "$(kmip_block 2)" >"$work/kmip.log" 2>&1 || die "a key of PyKMIP: $(tail -n 3 "$work/kmip.log")"
chown $POSTGRES "$kmip"/{ca.pem,db.pem,db.key}
chmod 755 "$kmip"
v=$(volume store)
stored=(--network host -v "$v:$mounted" -v "$kmip:/kmip:ro" -e PGPORT=$((port + 1))
    -e "PGSEAL_PROVIDER=kmip:name=pgseal?address=127.0.0.1:$port&ca-file=/kmip/ca.pem&cert-file=/kmip/db.pem&cert-key-file=/kmip/db.key")
start store "${stored[@]}" "${password[@]}" -v "$work/scripts/1.sql:/docker-entrypoint-initdb.d/1.sql:ro" -- -c listen_addresses=
healthy store
expect "rows" "$(sql store "select count(*) from from_sql")" 500
stop store
kill "$store"
refused 'kmip' store "${stored[@]}" -e PGSEAL_PROVIDER_WAIT=1 -- -c listen_addresses=
store=

step "a plain directory, and a first start that did not end"
v=$(volume plain)
once plain -v "$v:$mounted" -- bash -c 'unset LD_PRELOAD PGSEAL_PROVIDER; mkdir -p "$PGDATA"; chown -R postgres: "$PGDATA"; setpriv --reuid=postgres --regid=postgres --init-groups initdb -D "$PGDATA"' || die "a plain initdb"
before=$(cd "$v" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum)
refused 'a cluster in which nothing is sealed' plain -v "$v:$mounted" "${secret[@]}"
expect "the plain directory" "$(cd "$v" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum)" "$before"
v=$(volume unfinished)
echo 'select 1 from no_such_table;' >"$work/scripts-wrong.sql"
refused 'no_such_table' unfinished -v "$v:$mounted" "${secret[@]}" "${password[@]}" -v "$work/scripts-wrong.sql:/docker-entrypoint-initdb.d/1.sql:ro"
refused 'the first start on .* did not end' unfinished -v "$v:$mounted" "${secret[@]}" "${password[@]}"

step "a newer build of the image on the same volume"
v=$work/volumes/main
mkdir -p "$work/newer/rootfs" "$work/newer/upper" "$work/newer/work"
cp "$work/image"/{config,image}.json "$work/newer/"
mount -t overlay overlay -o "lowerdir=$work/image/rootfs,upperdir=$work/newer/upper,workdir=$work/newer/work" "$work/newer/rootfs"
mkdir "$work/newer/rootfs/debs"
for deb in build/image/packages/pgseal_*.deb "build/image/packages/postgresql-$major-pgseal"_*.deb; do
    rm -rf "$work/deb"
    dpkg-deb -R "$deb" "$work/deb"
    sed -i -E 's/^(Version: .*)/\1+next/; s/(pgseal \(= [^)]*)\)/\1+next)/' "$work/deb/DEBIAN/control"
    dpkg-deb -b "$work/deb" "$work/newer/rootfs/debs/${deb##*/}" >/dev/null
done
chroot "$work/newer/rootfs" sh -c 'PATH=/usr/sbin:/usr/bin:/sbin:/bin dpkg -i /debs/*.deb' >"$work/next.log" 2>&1 || die "the newer packages: $(tail -n 3 "$work/next.log")"
start main -i "$work/newer" "${pinned[@]}"
healthy main
expect "the newer package" "$(inside main dpkg-query -W -f '${Version}' pgseal | grep -o '+next')" +next
expect "rows" "$(sql main "select count(*) from killed" app shop)" 5000
user=$POSTGRES inside main pgseal verify "$data" >"$work/verify.log" 2>&1 || die "pgseal verify: $(tail -n 5 "$work/verify.log")"
stop main

older=$(find "$work/image/rootfs/usr/lib/postgresql" -mindepth 1 -maxdepth 1 ! -name "$major" -printf '%f\n')
if [ -n "$older" ]; then
    step "a cluster of PostgreSQL $older, made by its own image, upgraded to $major"
    [ -e "build/image/$older/index.json" ] || die "there is no image of PostgreSQL $older: run 'make image MAJOR=$older' first"
    unpack "$PGSEAL_ROOT/build/image/$older" "$work/older" || die "umoci does not unpack the image of $older"
    # The same minor release in both, with its security updates.
    expect "PostgreSQL $older" "$(package_version image "postgresql-$older")" "$(package_version older "postgresql-$older")"
    jq -c '.Env |= map(gsub("/'"$major"'/"; "/'"$older"'/") | sub("PG_MAJOR=.*"; "PG_MAJOR='"$older"'")
        | sub("PGDATA=.*"; "PGDATA=/var/lib/postgresql/data"))' "$work/image/image.json" >"$work/older/image.json"
    old=$(volume old)
    start old -i "$work/older" -v "$old:/var/lib/postgresql/data" "${secret[@]}" "${password[@]}" -v "$work/scripts/1.sql:/docker-entrypoint-initdb.d/1.sql:ro"
    healthy old
    stop old
    refused "of PostgreSQL $older, and this image has $major" new -v "$old:$data" "${secret[@]}"
    new=$(volume upgrade-failed)
    upgrade=(new -v "$old:/old" "${secret[@]}")
    refused 'pg_upgrade failed' "${upgrade[@]}" -v "$new:$mounted" -e POSTGRES_USER=nobody -- pgseal-upgrade /old
    refused 'the upgrade into .* did not end' new -v "$new:$mounted" "${secret[@]}"
    if knows_attver "$older" && ! knows_attver "$major"; then
        # No older minor release of one, and no newer one of the other, can be had: docs/upgrade.md,
        # "Minor releases". What that option does not touch can be tested without it.
        step "this PostgreSQL $major does not know pg_attver, which is removed from the old cluster after a failure"
        refused 'does not know the$' "${upgrade[@]}" -v "$(volume upgrade-refused):$mounted" -- pgseal-upgrade /old
        start old -i "$work/older" -v "$old:/var/lib/postgresql/data" "${secret[@]}"
        healthy old
        sql old "update pg_attribute set attoptions = null where attrelid >= 16384 and attoptions::text like '{pg_attver=%'"
        stop old
    fi
    new=$(volume new)
    once "${upgrade[@]}" -v "$new:$mounted" -- pgseal-upgrade /old || die "the upgrade"
    start new -v "$new:$mounted" "${secret[@]}"
    healthy new
    expect "rows after the upgrade" "$(sql new "select count(*) from from_sql")" 500
    expect "who can connect" "$(sql new "show listen_addresses")" "*"
    expect "the version" "$(sql new "show server_version_num" | cut -c 1-2)" "$major"
    user=$POSTGRES inside new pgseal verify "$data" >"$work/verify.log" 2>&1 || die "pgseal verify: $(tail -n 5 "$work/verify.log")"
    stop new
fi

step "rows and keys in what the containers wrote"
[ "$(find "$work/volumes" -type f | wc -l)" -gt 3000 ] || die "the volumes are nearly empty"
for text in $CANARY "$(cat "$work/keys/main")" "$(cat "$work/keys/unknown")" "$(cat "$work/keys/password")"; do
    if grep -rlaF -- "$text" "$work/volumes" "$work/containers"/*/upper; then die "these files show a row or a key"; fi
done
# The search finds what is there.
grep -qaF "$CANARY" "$work/scripts/1.sql" || die "the search finds nothing at all"
step "passed: $(jq -r '.Labels["org.opencontainers.image.description"]' "$work/image/image.json")"
