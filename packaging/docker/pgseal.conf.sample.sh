#!/bin/sh
# In the image's build: initdb copies postgresql.conf.sample, so every new cluster loads the guard module.
set -eu
sample=/usr/share/postgresql/postgresql.conf.sample
[ -e "$sample" ] || sample=/usr/share/postgresql/$PG_MAJOR/postgresql.conf.sample
echo "shared_preload_libraries = 'pgseal_guard'" >>"$sample"
