#!/bin/bash
# Makes the directory `db`, `schema.sql` and `answers.txt` anew: what MariaDB with MyRocks writes for `tables.sql`, and what
# it answers to `queries.sql`. Needs mariadb-server and mariadb-plugin-rocksdb.
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
user=$(id -un)
mariadb-install-db --no-defaults --user="$user" --datadir="$work/data" --auth-root-authentication-method=normal >"$work/log" 2>&1
mariadbd --no-defaults --user="$user" --datadir="$work/data" --socket="$work/socket" --skip-networking \
  --plugin-load-add=ha_rocksdb --default-time-zone=+00:00 >>"$work/log" 2>&1 &
server=$!
client() { mariadb --no-defaults --default-character-set=utf8mb4 --socket="$work/socket" -N --raw "$@"; }
for _ in $(seq 60); do client -e "select 1" >/dev/null 2>&1 && break || sleep 1; done
client -e "select 1" >/dev/null || { cat "$work/log"; exit 1; }
client <tables.sql
: >schema.sql
for table in ints words bytes hidden texts times lat lat_key uniq uniq_second uniq_prefix ai en zf comp part täble; do
  client shop -e "show create table \`$table\`" | cut -f2- >>schema.sql
  echo ';' >>schema.sql
done
while read -r query; do
  echo "$query"
  client --init-command="set sql_mode = 'pipes_as_concat'" shop -e "$query" | sed 's/^/  /'
done <queries.sql >answers.txt
# The server runs, so that some rows are in the log alone.
rm -rf db && mkdir db
cp "$work/data/#rocksdb/"{CURRENT,MANIFEST-*,OPTIONS-*,*.sst,*.log} db
truncate_log() { for log in db/*.log; do [ -s "$log" ] || rm "$log"; done; }
truncate_log
