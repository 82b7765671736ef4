#!/bin/bash
# Entrypoint of the container image: makes a sealed data directory at the first start, and starts
# PostgreSQL.
#
# The variables, directories and arguments are those of the official image "postgres"
# (docs/containers.md lists them). What is different: there is no plain data directory. A first
# start without a key fails, and so does a start on a directory in which nothing is sealed.
#
# A script of /docker-entrypoint-initdb.d that cannot be executed is sourced by this one, as in the
# official image.
set -Eeuo pipefail

SECRET=/run/secrets/pgseal.key
CLUSTERS=${PGSEAL_CLUSTERS_DIR:-/etc/pgseal/clusters.d}
SCRIPTS=/docker-entrypoint-initdb.d
# While it is there, the first start has not ended; pgseal-healthcheck looks for it too.
UNFINISHED=first-start-unfinished

note() { printf 'entrypoint: %s\n' "$*"; }
die() {
    printf 'entrypoint: error: %s\n' "$1" >&2
    shift
    [ $# = 0 ] || printf '    %s\n' "$@" >&2
    exit 1
}

# from_file NAME [DEFAULT]: exports the variable NAME, from the file that NAME_FILE names, if that
# is set.
from_file() {
    local name=$1 file=${1}_FILE
    if [ -n "${!name:-}" ] && [ -n "${!file:-}" ]; then die "$name and $file are both set; unset one"; fi
    if [ -n "${!file:-}" ]; then
        [ -r "${!file}" ] || die "$file names ${!file}, which $(id -un 2>/dev/null || id -u) cannot read"
        printf -v "$name" %s "$(<"${!file}")"
    fi
    printf -v "$name" %s "${!name:-${2:-}}"
    export "${name?}"
    unset "$file"
}

# Whether the arguments of postgres make it print something and end.
only_prints() {
    local argument
    for argument; do
        case $argument in '-?' | --help | --describe-config | -V | --version) return 0 ;; esac
    done
    return 1
}

# As root: what the user postgres must own.
make_directories() {
    # A link that somebody put into the volume would lead what follows elsewhere.
    [ ! -L "$PGDATA" ] || die "$PGDATA is a symbolic link; set PGDATA to the directory itself"
    mkdir -p "$PGDATA"
    chmod 0700 "$PGDATA" || true
    mkdir -p /var/run/postgresql || true
    chmod 03775 /var/run/postgresql || true
    [ -z "${POSTGRES_INITDB_WALDIR:-}" ] || mkdir -p "$POSTGRES_INITDB_WALDIR"
    if [ "$(id -u)" = 0 ]; then
        find "$PGDATA" /var/run/postgresql ${POSTGRES_INITDB_WALDIR:+"$POSTGRES_INITDB_WALDIR"} \
            ! -user postgres -exec chown -h postgres: {} +
    fi
}

# From 18 on the directory has the major version in its path. A volume that is mounted at the old
# place would stay empty, and the rows would go into the container's own layer.
check_mounts() {
    local old=/var/lib/postgresql/data
    [ "$PGDATA" = "/var/lib/postgresql/$PG_MAJOR/docker" ] || return 0
    if [ -s $old/PG_VERSION ] || mountpoint -q $old; then
        die "PostgreSQL $PG_MAJOR keeps its data in $PGDATA, and there is a volume at $old" \
            "For a new cluster: mount the volume at /var/lib/postgresql." \
            "Data of an older major version has to be upgraded: docs/containers.md, \"A newer major version\"."
    fi
}

# What can be wrong with the key, said before PostgreSQL starts.
check_key() {
    case ${PGSEAL_PROVIDER:-} in
    "command:cat $SECRET")
        if [ ! -e $SECRET ]; then
            # Clusters that exist already may have their key named there.
            if [ "$1" = exists ] && ls "$CLUSTERS"/*.conf >/dev/null 2>&1; then
                unset PGSEAL_PROVIDER
                return
            fi
            die "there is no key: $SECRET does not exist" \
                "Make a key with \"pgseal key new -o pgseal.key\", keep a copy of it, and mount it there;" \
                "or set PGSEAL_PROVIDER to where the key comes from (file:, vault:, kmip:, ...): docs/containers.md."
        fi
        [ -r $SECRET ] || die "the key $SECRET cannot be read by the user $(id -u) (it has mode $(stat -Lc %a $SECRET) and belongs to $(stat -Lc %u:%g $SECRET))" \
            "Give the file to this user: \"chown $(id -u) pgseal.key; chmod 400 pgseal.key\" on the host," \
            "or uid and mode where the service names its secret."
        case $(stat -Lc %a $SECRET) in
        *[4-7]) note "warning: $SECRET can be read by everybody (mode $(stat -Lc %a $SECRET)); give it to user $(id -u), mode 0400" >&2 ;;
        esac
        ;;
    '')
        [ "$1" = exists ] || die "there is no key: PGSEAL_PROVIDER is empty" \
            "This image makes no plain data directory. Set PGSEAL_PROVIDER, or leave it as it is and mount" \
            "a key at $SECRET: docs/containers.md."
        ;;
    esac
}

# initdb asks the C library for its user's name. If the image does not know the user (docker run
# --user 12345, OpenShift), a library answers in its place, loaded behind that of pgseal.
with_a_name() {
    local wrapper names status=0
    if getent passwd "$(id -u)" >/dev/null; then
        "$@"
        return
    fi
    wrapper=$(ls /usr/lib/*/libnss_wrapper.so 2>/dev/null | head -n 1) || true
    [ -n "$wrapper" ] || die "the user $(id -u) is not in /etc/passwd, and the image has no libnss_wrapper.so"
    names=$(mktemp -d -p /dev/shm)
    printf 'postgres:x:%s:%s:PostgreSQL:%s:/bin/false\n' "$(id -u)" "$(id -g)" "$PGDATA" >"$names/passwd"
    printf 'postgres:x:%s:\n' "$(id -g)" >"$names/group"
    LD_PRELOAD=${LD_PRELOAD:-}:$wrapper NSS_WRAPPER_PASSWD=$names/passwd NSS_WRAPPER_GROUP=$names/group "$@" || status=$?
    rm -r "$names"
    return $status
}

check_password() {
    if [ -z "$POSTGRES_PASSWORD" ] && [ "${POSTGRES_HOST_AUTH_METHOD:-}" != trust ]; then
        die "the new cluster needs a password for its superuser" \
            "Set POSTGRES_PASSWORD_FILE to a mounted file, or POSTGRES_PASSWORD." \
            "POSTGRES_HOST_AUTH_METHOD=trust lets everybody in who reaches the port."
    fi
    if [ "${POSTGRES_HOST_AUTH_METHOD:-}" = trust ]; then
        note "warning: POSTGRES_HOST_AUTH_METHOD=trust: everybody who reaches the port is let in without a password" >&2
    fi
}

make_cluster() {
    local options=()
    # Quotes in this variable are those of the shell, as in the official image.
    eval "options=(${POSTGRES_INITDB_ARGS:-})"
    [ -z "${POSTGRES_INITDB_WALDIR:-}" ] || options+=(--waldir "$POSTGRES_INITDB_WALDIR")
    # With --json it tells no next steps, which are not those of a container.
    with_a_name pgseal initdb --json -K "$PGSEAL_PROVIDER" --suite "${PGSEAL_SUITE:-aes-256-gcm}" "$PGDATA" -- \
        --username="$POSTGRES_USER" --pwfile=<(printf '%s\n' "$POSTGRES_PASSWORD") "${options[@]}" >/dev/null
    : >"$PGDATA/$UNFINISHED"
    # The container's network decides who reaches it.
    printf "\n# by the entrypoint\nlisten_addresses = '*'\n" >>"$PGDATA/postgresql.conf"
}

# Whoever connects from outside is asked for a password in the form in which the server keeps it.
allow_hosts() {
    local method=${POSTGRES_HOST_AUTH_METHOD:-}
    [ -n "$method" ] || method=$(postgres -C password_encryption "$@")
    printf '\nhost all all all %s\n' "$method" >>"$PGDATA/pg_hba.conf"
}

# psql as the superuser, in the new database; the name is that of the official image, for scripts
# that call it.
docker_process_sql() {
    PGHOST='' PGHOSTADDR='' psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --no-password --no-psqlrc \
        ${POSTGRES_DB:+--dbname "$POSTGRES_DB"} "$@"
}

make_database() {
    [ "$POSTGRES_DB" != postgres ] || return 0
    # The last --dbname counts.
    docker_process_sql --quiet --dbname postgres --set db="$POSTGRES_DB" <<<'CREATE DATABASE :"db";'
}

run_scripts() {
    local script
    for script in "$SCRIPTS"/*; do
        case $script in
        *.sh)
            if [ -x "$script" ]; then
                note "runs $script"
                "$script"
            else
                note "sources $script"
                # They are written for a shell without this option.
                set +u
                # shellcheck disable=SC1090 # the user's
                . "$script"
                set -u
            fi
            ;;
        *.sql) note "runs $script" && docker_process_sql -f "$script" ;;
        *.sql.gz) note "runs $script" && gunzip -c "$script" | docker_process_sql ;;
        *.sql.xz) note "runs $script" && xzcat "$script" | docker_process_sql ;;
        *.sql.zst) note "runs $script" && zstd -dc "$script" | docker_process_sql ;;
        "$SCRIPTS/*") ;;
        *) note "ignores $script" ;;
        esac
    done
}

stop_first_server() { pg_ctl -s -D "$PGDATA" -m fast -w stop; }

# The first start: a server without TCP runs the scripts, and stops.
first_start() {
    check_password
    ls "$SCRIPTS" >/dev/null
    make_cluster
    allow_hosts "$@"
    export PGPASSWORD=${PGPASSWORD:-$POSTGRES_PASSWORD}
    # The first process of a container gets no signal that it does not handle.
    trap 'stop_first_server || true; exit 1' INT TERM
    NOTIFY_SOCKET='' PGUSER=$POSTGRES_USER pg_ctl -s -D "$PGDATA" \
        -o "$(printf '%q ' "$@" -c listen_addresses='' -p "${PGPORT:-5432}")" -w start
    make_database
    run_scripts
    stop_first_server
    trap - INT TERM
    unset PGPASSWORD
    rm "$PGDATA/$UNFINISHED"
    note "the cluster is made; it is sealed, and its keyring has the identity"
    note "    $(pgseal key show --json "$PGDATA" | sed -nE 's/^ *"keyring_id": "([^"]+)".*/\1/p')"
    note "Set PGSEAL_KEYRING_ID to it: the server then refuses a volume with another cluster."
}

existing() {
    [ ! -e "$PGDATA/$UNFINISHED" ] || die "the first start on $PGDATA did not end: a script failed, or it was interrupted" \
        "Nobody could connect from outside yet. Empty the volume and start again; or, if you have finished by hand" \
        "what the scripts in $SCRIPTS should do, remove the file $UNFINISHED from it."
    [ ! -e "$PGDATA/upgrade-unfinished" ] || die "the upgrade into $PGDATA did not end: pg_upgrade failed, or it was interrupted" \
        "Empty the volume, and run pgseal-upgrade again on the old one."
    [ -s "$PGDATA/pgseal/keyring" ] || die "$PGDATA has a cluster in which nothing is sealed; it was not changed" \
        "Encrypt it, stopped, with \"pgseal encrypt\" (docs/convert.md), or move its content to a new one (docs/migrate.md)."
    local major
    major=$(head -c 16 "$PGDATA/PG_VERSION")
    [ "$major" = "$PG_MAJOR" ] || die "$PGDATA is of PostgreSQL $major, and this image has $PG_MAJOR" \
        "docs/containers.md, \"A newer major version\", says how to upgrade."
}

main() {
    local state=new
    if [ "${1:0:1}" = - ]; then set -- postgres "$@"; fi
    if [ "$1" != postgres ] || only_prints "${@:2}"; then exec "$@"; fi

    make_directories
    if [ "$(id -u)" = 0 ]; then
        # Files that only root may read are read after this, by nobody: the server's user needs the
        # rights.
        HOME=/var/lib/postgresql exec setpriv --reuid=postgres --regid=postgres --init-groups -- "$0" "$@"
    fi
    # No key in a core dump; and in memory that is locked, as far as the container may.
    ulimit -c 0
    ulimit -l 65536 2>/dev/null || true

    [ ! -s "$PGDATA/PG_VERSION" ] || state=exists
    check_key "$state"
    if [ $state = new ]; then
        check_mounts
        from_file POSTGRES_PASSWORD
        from_file POSTGRES_USER postgres
        from_file POSTGRES_DB "$POSTGRES_USER"
        from_file POSTGRES_INITDB_ARGS
        first_start "${@:2}"
    else
        existing
    fi
    unset POSTGRES_PASSWORD POSTGRES_PASSWORD_FILE
    exec "$@"
}

main "$@"
