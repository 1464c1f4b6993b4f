#!/usr/bin/env bash
# MyRocks against `rockmill sql --mysql` over the same directory: queries of TPC-H, JSON to OUT.
#
#   dev/bench/myrocks.sh OUT [SCALE [DIR [ROCKMILL]]]     scale 1 takes some five minutes; /dev/shm is the default for DIR
#
# Needs mariadb-server and mariadb-plugin-rocksdb. The files are uncompressed, and in memory. MyRocks runs each query on
# one thread; Rockmill has one thread, and then all. Its times include the start of the process. Each row is the median
# of three runs after one that does not count.
set -euo pipefail

out=$1
scale=${2:-1}
dir=${3:-/dev/shm}
rockmill=${4:-${CARGO_TARGET_DIR:-target/make}/release/rockmill}
cores=$(nproc)
work=$(mktemp -d "$dir/myrocks.XXXXXX")
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; wait; rm -rf "$work"' EXIT

cat >"$work/schema.sql" <<'SQL'
create table lineitem (
  l_orderkey bigint not null, l_linenumber int not null, l_partkey bigint not null, l_suppkey bigint not null,
  l_quantity decimal(15, 2) not null, l_extendedprice decimal(15, 2) not null, l_discount decimal(15, 2) not null,
  l_tax decimal(15, 2) not null, l_returnflag char(1) not null, l_linestatus char(1) not null, l_shipdate date not null,
  l_commitdate date not null, l_receiptdate date not null, l_shipinstruct varchar(25) not null,
  l_shipmode varchar(10) not null, l_comment varchar(44) not null, primary key (l_orderkey, l_linenumber)
) engine = rocksdb default charset = latin1 collate = latin1_bin;
create table orders (
  o_orderkey bigint not null, o_custkey bigint not null, o_orderstatus char(1) not null, o_totalprice decimal(15, 2) not null,
  o_orderdate date not null, o_orderpriority varchar(15) not null, o_clerk varchar(15) not null, o_shippriority int not null,
  o_comment varchar(79) not null, primary key (o_orderkey)
) engine = rocksdb default charset = latin1 collate = latin1_bin;
create table part (
  p_partkey bigint not null, p_name varchar(55) not null, p_mfgr varchar(25) not null, p_brand varchar(10) not null,
  p_type varchar(25) not null, p_size int not null, p_container varchar(10) not null, p_retailprice decimal(15, 2) not null,
  p_comment varchar(23) not null, primary key (p_partkey)
) engine = rocksdb default charset = latin1 collate = latin1_bin;
SQL
declare -A queries=(
  [filter-int]="select count(*), min(p_partkey), max(p_name) from part where p_size < 15"
  [filter-string]="select count(*), min(p_partkey), max(p_name) from part where p_type = 'SMALL PLATED BRASS'"
  [q1]="select l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), sum(l_extendedprice * (1 - l_discount)),
    sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
    from lineitem where l_shipdate <= date '1998-12-01' - interval '90' day
    group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus"
  [q4]="select o_orderpriority, count(*) from orders where o_orderdate >= date '1993-07-01' and o_orderdate < date '1993-10-01'
    and exists (select * from lineitem where l_orderkey = o_orderkey and l_commitdate < l_receiptdate)
    group by o_orderpriority order by o_orderpriority"
  [q6]="select sum(l_extendedprice * l_discount) from lineitem where l_shipdate >= date '1994-01-01'
    and l_shipdate < date '1995-01-01' and l_discount between 0.05 and 0.07 and l_quantity < 24"
)

echo "== load" >&2
"$rockmill" load tpch --scale "$scale" --db "$work/tpch" >/dev/null
mkdir "$work/data"
user=$(id -un)
mariadb-install-db --no-defaults --user="$user" --datadir="$work/data" --auth-root-authentication-method=normal >"$work/log" 2>&1
mariadbd --no-defaults --user="$user" --datadir="$work/data" --socket="$work/socket" --skip-networking --local-infile=1 \
  --plugin-load-add=ha_rocksdb --rocksdb-default-cf-options='compression=kNoCompression;bottommost_compression=kNoCompression' \
  --rocksdb-block-cache-size=2G >>"$work/log" 2>&1 &
server=$!
client() { mariadb --no-defaults --socket="$work/socket" --local-infile=1 -N --raw "$@"; }
for _ in $(seq 60); do client -e "select 1" >/dev/null 2>&1 && break || sleep 1; done
client -e "select 1" >/dev/null || { cat "$work/log" >&2; exit 1; }
client -e "create database tpch"
client tpch <"$work/schema.sql"
for table in lineitem orders part; do
    keys=$(client -e "select group_concat(column_name order by ordinal_position) from information_schema.key_column_usage
      where table_name = '$table'")
    columns=$(client -e "select group_concat(column_name order by ordinal_position) from information_schema.columns
      where table_name = '$table'")
    "$rockmill" sql "$work/tpch" "copy (select $columns from $table order by $keys) to '$work/$table.csv'" >/dev/null
    client tpch -e "set rocksdb_bulk_load = 1; load data local infile '$work/$table.csv' into table $table
      fields terminated by ',' optionally enclosed by '\"' ignore 1 lines; set rocksdb_bulk_load = 0"
    rm "$work/$table.csv"
done
client -e "set global rocksdb_force_flush_memtable_now = 1; set global rocksdb_compact_cf = 'default'"
rm -r "$work/tpch"

ticks() { awk '{print $14 + $15}' "/proc/$server/stat"; }
ask_server() { client tpch -e "$1"; }
ask_rockmill() { "$rockmill" sql "$work/data/#rocksdb" --mysql "$work/schema.sql" --threads "$2" --format csv "$1" | tail -n +2; }
# Numbers to four digits behind the point, since averages are rounded otherwise.
normal() { tr ',\t' '\n\n' | awk '/^-?[0-9.]+$/ {printf "%.4f\n", $0; next} {print}'; }

echo "[" >"$out"
comma=
for name in filter-int filter-string q1 q4 q6; do
    query=$(tr -s ' \n' ' ' <<<"${queries[$name]}")
    expected=$(ask_server "$query" | normal)
    for threads in 0 1 "$cores"; do
        [ "$threads" = 0 ] && system=myrocks || system="rockmill, $threads threads"
        echo "== $name: $system" >&2
        runs=()
        for _ in 0 1 2 3; do
            began=$EPOCHREALTIME
            if [ "$threads" = 0 ]; then
                before=$(ticks)
                answer=$(ask_server "$query" | normal)
                cpu=$(awk "BEGIN {print ($(ticks) - $before) / $(getconf CLK_TCK)}")
            else
                TIMEFORMAT='%U %S'
                { time ask_rockmill "$query" "$threads" >"$work/answer"; } 2>"$work/time"
                cpu=$(awk '{print $1 + $2}' "$work/time")
                answer=$(normal <"$work/answer")
            fi
            runs+=("$(awk "BEGIN {print $EPOCHREALTIME - $began}") $cpu")
            [ "$answer" = "$expected" ] || { echo "$system answers $name with other rows" >&2; exit 3; }
        done
        read -r wall cpu <<<"$(printf '%s\n' "${runs[@]:1}" | sort -n | sed -n 2p)"
        printf '%s{"experiment": "%s", "scale": %s, "system": "%s", "wall_s": %s, "cpu_s": %s, "same": true}' \
            "$comma" "$name" "$scale" "$system" "$wall" "$cpu" >>"$out"
        comma=$',\n'
    done
done
printf '\n]\n' >>"$out"
cat "$out"
