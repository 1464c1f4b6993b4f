select count(*), count(t), sum(t), sum(tu), sum(s), sum(su), sum(m), sum(mu), sum(i), sum(iu), min(b), max(b), min(bu), max(bu) from ints
select id, t, tu, s, su, m, mu, i, iu, b, bu from ints where id between -40 and 120 or id > 5200 or id < -2000 order by id
select count(*), sum(id) from ints where b < 0 and iu is not null
select t, count(*), sum(iu) from ints where m > 0 group by t order by count(*), t
select count(*), count(c), count(v), count(x), count(y), sum(octet_length(w)), sum(octet_length(v)), sum(octet_length(x)), sum(octet_length(y)), sum(octet_length(long_key)) from words
select n, '<' || w || '>', '<' || c || '>', v, '<' || x || '>', '<' || long_key || '>' from words where n < 60 or n > 590 order by n
select count(*) from words where w like 'a%' or v = 'changed'
select sum(n) from words where w like 'bbbbbb  '
select count(*), sum(d), sum(e), min(g), max(g), min(h), max(h), min(j), max(j), sum(octet_length(k)), sum(octet_length(z)) from bytes
select e, d, g, h, j from bytes where e between -20 and 20 order by e
select octet_length(k), count(*), sum(e) from bytes where d < 0 group by octet_length(k) order by octet_length(k)
select count(*), count(a), sum(a), min(b), max(b) from hidden
select a, b from hidden where a between 50 and 70 order by a
select count(*), count(body), sum(n), sum(p), min(d), max(d), sum(octet_length(u)), sum(octet_length(g)), sum(octet_length(l)) from texts
select n, '<' || u || '>', '<' || g || '>', l, d, p, body from texts where n < -150 or n > 900 order by n
select count(*), count(on_day), min(at), max(at), min(on_day), max(on_day), min(milli), max(milli), min(micro), max(micro), count(stamp) from times
select at, on_day, milli, micro from times where at < '1970-02-01 00:00:00' order by at
select count(*) from times where at >= '1970-03-01 00:00:00' and on_day < '1900-06-01'
select count(*), count(stamp), min(at), max(at) from times where stamp >= '2001-01-05 06:13:19.25' and stamp < '2001-01-25 22:23:03.75'
select id, e, '<' || c || '>', t, char_length(t) from lat order by id
select id, e from lat where e = 'für' order by id
select id from lat where e in ('für', 'Ü', 'zü') and c > '' order by id
select id, e from lat where e like 'f_r%' order by id
select count(*) from lat where t like '%€%' and char_length(t) < 20
select c, count(*) from lat where id in (1, 8) group by c order by count(*), max(id)
select n, '<' || w || '>', char_length(w) from lat_key order by n
select n from lat_key where w = 'größer als'
select a, b, n from uniq order by a
select b from uniq where a = 7
select a, b, c, d from uniq_second order by b, d
select d from uniq_second where b = 5 and c like 'y_'
select a, n from uniq_prefix order by n
select id, v from ai order by id
select id, n, m from en order by id
select count(*), sum(m) from en where n is not null
select id, z + 0, case when f * 4 = 5 then 1 else 0 end from zf order by id
select id, n from comp order by id
select id, v from täble order by id
