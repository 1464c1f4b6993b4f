create database shop;
create database other;
create table other.ints (id int primary key) engine = rocksdb;
create table other.alone (id int primary key) engine = rocksdb;
use shop;
set sql_mode = 'no_unsigned_subtraction';
create table ints (
  id int not null, t tinyint, tu tinyint unsigned, s smallint not null, su smallint unsigned, m mediumint,
  mu mediumint unsigned not null, i int, iu int unsigned, b bigint, bu bigint unsigned, primary key (id), key (i), key (b, s)
) engine = rocksdb default charset = latin1;
create table words (
  w varchar(40) collate latin1_bin not null, n mediumint unsigned not null, c char(5), v varchar(300) character set utf8mb4,
  x text, y mediumblob, long_key varchar(300) collate latin1_bin not null, primary key (w, n, long_key), key (v)
) engine = rocksdb default charset = latin1;
create table bytes (
  k varbinary(50) not null, f binary(3) not null, d decimal(20, 5), e decimal(15, 2) not null, g decimal(38, 0), h double,
  j float, z varbinary(70), primary key (f, k)
) engine = rocksdb;
create table hidden (a int, b varchar(20) not null) engine = rocksdb default charset = utf8mb4;
create table texts (
  u varchar(30) character set utf8mb4 collate utf8mb4_bin not null, g char(4) character set utf8mb4 not null,
  l varchar(20) character set utf8 not null, d date not null, p decimal(9, 3) not null, n bigint not null, body varchar(80),
  primary key (u, g, l, d, p, n), unique key (n)
) engine = rocksdb default charset = utf8mb4;
create table times (
  at datetime not null, on_day date, milli datetime(3), micro datetime(6), stamp timestamp(2) null, primary key (at)
) engine = rocksdb;
create table lat (
  id int not null, e varchar(10), c char(6) not null, t text, primary key (id)
) engine = rocksdb default charset = latin1;
create table lat_key (w varchar(12) collate latin1_bin not null, n int, primary key (w)) engine = rocksdb default charset = latin1;
create table uniq (a int not null, b varchar(10) not null, n int, unique key (a)) engine = rocksdb default charset = utf8mb4;
create table uniq_second (a int, b bigint not null, c varchar(9) not null, d int, unique key (a), unique key (c, b))
  engine = rocksdb default charset = utf8mb4;
create table uniq_prefix (a varchar(20) not null, n int, unique key (a(5))) engine = rocksdb default charset = utf8mb4;
create table ai (id int not null auto_increment primary key, v int) engine = rocksdb;
create table en (
  id int primary key, e enum('a', 'b'), n int, s set('x', 'y', 'z') not null, t time(3), y year, d decimal(50, 3), b bit(10),
  u char(4) character set ucs2, m int
) engine = rocksdb default charset = utf8mb4;
create table zf (id int primary key, z int(5) unsigned zerofill, f float(7, 2)) engine = rocksdb;
create table comp (
  id int primary key, e varchar(255) compressed, b blob compressed, t tinytext compressed not null, n int
) engine = rocksdb default charset = latin1;
create table part (a int primary key, b int) engine = rocksdb partition by hash (a) partitions 2;
create table `täble` (id int primary key, v int) engine = rocksdb;
create database `täst`;
create table `täst`.`täble` (id int primary key, v int) engine = rocksdb;
insert into ints select seq * 7 - 1700, if(seq % 5, seq % 200 - 100, null), if(seq % 7, seq % 256, null), seq * 60 - 30000,
  if(seq % 11, seq * 65, null), if(seq % 3, seq * 16000 - 8000000, null), seq * 16000, if(seq % 13, seq * 4000000 - 2000000000, null),
  if(seq % 17, seq * 4200000, null), if(seq % 2, (seq - 500) * 9000000000000000, null), if(seq % 4, seq * 18000000000000000, null)
  from seq_1_to_1000;
insert into words select concat(repeat(char(97 + seq % 26), seq % 23), repeat(' ', seq % 3)), seq, if(seq % 4, concat('c', seq % 1000), null),
  if(seq % 5, repeat('hä', seq % 60), null), if(seq % 6, repeat('text ', seq % 9), null), if(seq % 3, repeat(x'00ff', seq % 7), null),
  concat('k', seq % 3, repeat(' ', seq % 4))
  from seq_1_to_600;
insert into bytes select repeat(char(seq % 256), if(seq > 30 and seq % 27 = 0, 27, seq % 27)), concat(char(seq % 5), 'x'), if(seq % 3, (seq - 300) * 1234567.00089, null),
  (300 - seq) * 1.25, if(seq % 4, (seq - 300) * 123456789012345678901234567890123456, null), if(seq % 2, (seq - 300) / 8 + 0.0625, null),
  if(seq % 5, (seq - 300) / 4 + 0.125, null), if(seq % 7, repeat('z', seq % 70), null)
  from seq_1_to_600;
insert into hidden select if(seq % 3, seq, null), concat('row ', seq) from seq_1_to_300;
insert into texts select concat(char(97 + seq % 5), repeat('ä', seq % 9), repeat(' ', seq % 2)), elt(seq % 3 + 1, 'G', 'ßs', ''),
  repeat('ö', seq % 20), date '1999-12-25' + interval seq day, (seq - 200) * 1.125, seq - 200, if(seq % 4, concat('body ', seq), null)
  from seq_1_to_400;
insert into times select timestamp '1969-12-31 23:00:00' + interval seq * 3601 * 25 second, if(seq % 5, date '1900-02-27' + interval seq day, null),
  if(seq % 3, timestamp '1990-01-01 00:00:00.125' + interval seq * 777 second, null),
  if(seq % 4, timestamp '2020-02-28 00:00:00.123456' + interval seq * 7777 second, null),
  if(seq % 6, timestamp '2001-01-01 00:00:00.25' + interval seq * 9999 second, null) from seq_1_to_300;
insert into lat values (1, 'für', 'größe', 'Ein Maß: 5 €'), (2, 'abc', 'abc', 'abc'), (3, null, '', null), (4, 'zü', '¥ ÿ', ''),
  (5, 'za', 'ŽžŒœŸ', 'naïve – “façade”'), (6, 'f r', '×÷', 'fr'), (7, 'Ü', 'ü', repeat('ä', 300));
insert into lat_key values ('für', 1), ('größer als', 2), ('fur', 3), ('', 4), ('€ ', 5), ('zzzzzzzz', 6), ('ääääääää', 7), ('ääääääää ö', 8);
insert into uniq values (7, 'sieben', null), (-1, '', 1), (1, 'eins', 2);
insert into uniq_second values (null, 5, 'x', 1), (null, 5, 'y ', 2), (1, -3, 'y', 3), (2, 6, 'ä', null);
insert into uniq_prefix values ('abcde', 1), ('bbbbbbb', 2);
insert into ai (v) values (1), (2), (3);
insert into en values (1, 'b', 5, 'x,z', '12:13:14.5', 2024, 1.5, 513, 'ab', 6), (2, null, null, '', null, null, null, null, null, 7),
  (3, 'a', -1, 'y', '-01:00:00', 1999, -2.25, 1, '', null);
insert into zf values (1, 7, 1.25), (2, null, null), (3, 123456, -7.5);
insert into comp values (1, 'abc', 'xyz', '', 1), (2, repeat('abc', 80), repeat('xyz', 90), repeat('t', 200), 2), (3, null, null, 'u', null);
insert into part values (1, 2), (2, 3);
insert into `täble` values (1, 5), (2, null);
insert into `täst`.`täble` values (3, 7);
set global rocksdb_force_flush_memtable_now = 1;
update ints set b = -b, t = null where id % 3 = 0;
delete from ints where id % 10 = 1;
update words set v = 'changed', x = null where n % 9 = 0;
delete from words where n between 100 and 130;
delete from hidden where a % 7 = 0;
update texts set body = null where n % 3 = 0;
update texts set n = n + 1000 where n % 50 = 0;
set global rocksdb_force_flush_memtable_now = 1;
-- These rows stay in the log.
insert into ai (v) values (4);
insert into lat values (8, 'fürs', 'ß', '€');
update ints set iu = 5 where id between 0 and 100;
delete from ints where id between 200 and 300;
insert into ints (id, s, mu) values (2147483647, 32767, 16777215), (-2147483648, -32768, 0);
insert into words (w, n, c, long_key) values ('', 0, '', ''), ('zz', 16777215, 'c  ', 'y');
insert into times (at, on_day) values ('9999-12-31 23:59:59', '9999-12-31'), ('1000-01-01 00:00:00', '1000-01-01'),
  ('1600-02-29 12:34:56', '1600-02-29');
insert into times (at, on_day, stamp) values ('0000-00-00 00:00:00', '0000-00-00', '0000-00-00 00:00:00');
delete from times where at = '0000-00-00 00:00:00';
