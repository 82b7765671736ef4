#!/bin/sh
# Healthcheck of the container image: succeeds if the server takes connections. Asks it where it
# listens, whatever its arguments were. During the first start it fails, because that server is only
# for the scripts.
set -eu
[ ! -e "$PGDATA/first-start-unfinished" ] || {
    echo "the first start has not ended"
    exit 1
}
[ -r "$PGDATA/postmaster.pid" ] || {
    echo "no server runs"
    exit 1
}
# Lines of the file: 4 the port, 5 the directory of the socket, 6 the address.
port=$(sed -n 4p "$PGDATA/postmaster.pid")
host=$(sed -n 5p "$PGDATA/postmaster.pid")
[ -n "$host" ] || host=$(sed -n 6p "$PGDATA/postmaster.pid")
# With a role and a database that exist: for others the server would write a line into its log each
# time.
exec pg_isready -h "$host" -p "$port" -U "${POSTGRES_USER:-postgres}" -d postgres
