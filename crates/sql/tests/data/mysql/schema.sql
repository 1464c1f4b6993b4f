CREATE TABLE `ints` (
  `id` int(11) NOT NULL,
  `t` tinyint(4) DEFAULT NULL,
  `tu` tinyint(3) unsigned DEFAULT NULL,
  `s` smallint(6) NOT NULL,
  `su` smallint(5) unsigned DEFAULT NULL,
  `m` mediumint(9) DEFAULT NULL,
  `mu` mediumint(8) unsigned NOT NULL,
  `i` int(11) DEFAULT NULL,
  `iu` int(10) unsigned DEFAULT NULL,
  `b` bigint(20) DEFAULT NULL,
  `bu` bigint(20) unsigned DEFAULT NULL,
  PRIMARY KEY (`id`),
  KEY `i` (`i`),
  KEY `b` (`b`,`s`)
) ENGINE=ROCKSDB DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci
;
CREATE TABLE `words` (
  `w` varchar(40) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL,
  `n` mediumint(8) unsigned NOT NULL,
  `c` char(5) DEFAULT NULL,
  `v` varchar(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci DEFAULT NULL,
  `x` text DEFAULT NULL,
  `y` mediumblob DEFAULT NULL,
  `long_key` varchar(300) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL,
  PRIMARY KEY (`w`,`n`,`long_key`),
  KEY `v` (`v`(191))
) ENGINE=ROCKSDB DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci
;
CREATE TABLE `bytes` (
  `k` varbinary(50) NOT NULL,
  `f` binary(3) NOT NULL,
  `d` decimal(20,5) DEFAULT NULL,
  `e` decimal(15,2) NOT NULL,
  `g` decimal(38,0) DEFAULT NULL,
  `h` double DEFAULT NULL,
  `j` float DEFAULT NULL,
  `z` varbinary(70) DEFAULT NULL,
  PRIMARY KEY (`f`,`k`)
) ENGINE=ROCKSDB DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci
;
CREATE TABLE `hidden` (
  `a` int(11) DEFAULT NULL,
  `b` varchar(20) NOT NULL
) ENGINE=ROCKSDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci
;
CREATE TABLE `texts` (
  `u` varchar(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `g` char(4) NOT NULL,
  `l` varchar(20) CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci NOT NULL,
  `d` date NOT NULL,
  `p` decimal(9,3) NOT NULL,
  `n` bigint(20) NOT NULL,
  `body` varchar(80) DEFAULT NULL,
  PRIMARY KEY (`u`,`g`,`l`,`d`,`p`,`n`),
  UNIQUE KEY `n` (`n`)
) ENGINE=ROCKSDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci
;
CREATE TABLE `times` (
  `at` datetime NOT NULL,
  `on_day` date DEFAULT NULL,
  `milli` datetime(3) DEFAULT NULL,
  `micro` datetime(6) DEFAULT NULL,
  `stamp` timestamp(2) NULL DEFAULT NULL,
  PRIMARY KEY (`at`)
) ENGINE=ROCKSDB DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci
;
CREATE TABLE `lat` (
  `id` int(11) NOT NULL,
  `e` varchar(10) DEFAULT NULL,
  `c` char(6) NOT NULL,
  `t` text DEFAULT NULL,
  PRIMARY KEY (`id`)
) ENGINE=ROCKSDB DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci
;
CREATE TABLE `lat_key` (
  `w` varchar(12) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL,
  `n` int(11) DEFAULT NULL,
  PRIMARY KEY (`w`)
) ENGINE=ROCKSDB DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci
;
CREATE TABLE `uniq` (
  `a` int(11) NOT NULL,
  `b` varchar(10) NOT NULL,
  `n` int(11) DEFAULT NULL,
  UNIQUE KEY `a` (`a`)
) ENGINE=ROCKSDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci
;
CREATE TABLE `uniq_second` (
  `a` int(11) DEFAULT NULL,
  `b` bigint(20) NOT NULL,
  `c` varchar(9) NOT NULL,
  `d` int(11) DEFAULT NULL,
  UNIQUE KEY `c` (`c`,`b`),
  UNIQUE KEY `a` (`a`)
) ENGINE=ROCKSDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci
;
CREATE TABLE `uniq_prefix` (
  `a` varchar(20) NOT NULL,
  `n` int(11) DEFAULT NULL,
  UNIQUE KEY `a` (`a`(5))
) ENGINE=ROCKSDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci
;
CREATE TABLE `ai` (
  `id` int(11) NOT NULL AUTO_INCREMENT,
  `v` int(11) DEFAULT NULL,
  PRIMARY KEY (`id`)
) ENGINE=ROCKSDB AUTO_INCREMENT=5 DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci
;
CREATE TABLE `en` (
  `id` int(11) NOT NULL,
  `e` enum('a','b') DEFAULT NULL,
  `n` int(11) DEFAULT NULL,
  `s` set('x','y','z') NOT NULL,
  `t` time(3) DEFAULT NULL,
  `y` year(4) DEFAULT NULL,
  `d` decimal(50,3) DEFAULT NULL,
  `b` bit(10) DEFAULT NULL,
  `u` char(4) CHARACTER SET ucs2 COLLATE ucs2_general_ci DEFAULT NULL,
  `m` int(11) DEFAULT NULL,
  PRIMARY KEY (`id`)
) ENGINE=ROCKSDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci
;
CREATE TABLE `zf` (
  `id` int(11) NOT NULL,
  `z` int(5) unsigned zerofill DEFAULT NULL,
  `f` float(7,2) DEFAULT NULL,
  PRIMARY KEY (`id`)
) ENGINE=ROCKSDB DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci
;
CREATE TABLE `comp` (
  `id` int(11) NOT NULL,
  `e` varchar(255) /*M!100301 COMPRESSED*/ DEFAULT NULL,
  `b` blob /*M!100301 COMPRESSED*/ DEFAULT NULL,
  `t` tinytext /*M!100301 COMPRESSED*/ NOT NULL DEFAULT '',
  `n` int(11) DEFAULT NULL,
  PRIMARY KEY (`id`)
) ENGINE=ROCKSDB DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci
;
CREATE TABLE `part` (
  `a` int(11) NOT NULL,
  `b` int(11) DEFAULT NULL,
  PRIMARY KEY (`a`)
) ENGINE=ROCKSDB DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci
 PARTITION BY HASH (`a`)
PARTITIONS 2
;
CREATE TABLE `täble` (
  `id` int(11) NOT NULL,
  `v` int(11) DEFAULT NULL,
  PRIMARY KEY (`id`)
) ENGINE=ROCKSDB DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci
;
