"""What Metabase, DBeaver, Grafana and Superset ask a MySQL server for: on connect, to list, for charts.

Each statement is of the kind that the tool or its driver sends, over the cube `flights`. What some of them ask of
a server that is no MySQL (its engines, its privileges) may be an empty list, and is never an error.
"""

# ruff: noqa: E501 - a statement is one line
from __future__ import annotations

METABASE = (
    # MariaDB's Java driver, and the connection's session
    "set autocommit=1, sql_mode = concat(@@sql_mode,',STRICT_TRANS_TABLES')",
    "select @@version_comment, @@max_allowed_packet, @@wait_timeout",
    "SET SESSION TRANSACTION READ WRITE",
    "SET @@session.time_zone = 'UTC'",
    "SELECT @@GLOBAL.time_zone AS global_tz, @@system_time_zone AS system_tz, time_format(timediff("
    "now(), convert_tz(now(), @@GLOBAL.time_zone, '+00:00')), '%H:%i') AS 'offset'",
    # sync
    "SELECT DATABASE()",
    "SELECT TABLE_NAME, TABLE_SCHEMA, TABLE_COMMENT FROM information_schema.tables WHERE table_schema = 'rtolap'",
    "SELECT c.column_name AS name, c.ordinal_position - 1 AS position, c.table_name AS `table-name`, "
    "upper(c.data_type) AS `database-type`, c.extra = 'auto_increment' AS `database-is-auto-increment`, "
    "c.column_key = 'PRI' AS `pk?`, nullif(c.column_comment, '') AS `field-comment` "
    "FROM information_schema.columns c WHERE c.table_schema NOT IN ('information_schema', 'performance_schema', "
    "'sys', 'mysql') AND c.table_name IN ('flights') ORDER BY `table-name`, position",
    "SELECT TRUE AS _ FROM `flights` WHERE 1 <> 1 LIMIT 0",
    "SHOW GRANTS FOR CURRENT_USER()",
    "SELECT k.table_name, k.column_name, k.referenced_table_name FROM information_schema.key_column_usage k "
    "WHERE k.referenced_table_name IS NOT NULL AND k.table_schema = 'rtolap'",
    # charts, by each unit that it truncates to
    "SELECT str_to_date(date_format(`flights`.`hour_start`, '%Y-%m-%d %H:%i'), '%Y-%m-%d %H:%i') AS `t`, "
    "count(*) AS `count` FROM `flights` GROUP BY str_to_date(date_format(`flights`.`hour_start`, "
    "'%Y-%m-%d %H:%i'), '%Y-%m-%d %H:%i') ORDER BY str_to_date(date_format(`flights`.`hour_start`, "
    "'%Y-%m-%d %H:%i'), '%Y-%m-%d %H:%i') ASC",
    "SELECT str_to_date(date_format(`flights`.`ts`, '%Y-%m-%d %H'), '%Y-%m-%d %H') AS `ts`, count(*) AS `count` "
    "FROM `flights` GROUP BY 1 ORDER BY 1 ASC",
    "SELECT date(`flights`.`ts`) AS `ts`, sum(`flights`.`distance`) AS `sum` FROM `flights` "
    "GROUP BY date(`flights`.`ts`) ORDER BY date(`flights`.`ts`) ASC",
    "SELECT str_to_date(concat(yearweek(`flights`.`ts`), ' Sunday'), '%X%V %W') AS `ts`, count(*) AS `count` "
    "FROM `flights` GROUP BY str_to_date(concat(yearweek(`flights`.`ts`), ' Sunday'), '%X%V %W') ORDER BY 1",
    "SELECT str_to_date(concat(date_format(`flights`.`ts`, '%Y-%m'), '-01'), '%Y-%m-%d') AS `ts`, count(*) AS "
    "`count` FROM `flights` GROUP BY 1 ORDER BY 1 ASC",
    "SELECT str_to_date(concat(year(`flights`.`ts`), '-', ((quarter(`flights`.`ts`) * 3) - 2), '-01'), "
    "'%Y-%m-%d') AS `ts`, count(*) AS `count` FROM `flights` GROUP BY 1 ORDER BY 1 ASC",
    "SELECT makedate(year(`flights`.`ts`), 1) AS `ts`, count(*) AS `count` FROM `flights` GROUP BY "
    "makedate(year(`flights`.`ts`), 1) ORDER BY makedate(year(`flights`.`ts`), 1) ASC",
    "SELECT dayofweek(`flights`.`ts`) AS `d`, hour(`flights`.`ts`) AS `h`, count(*) AS `count` FROM `flights` "
    "GROUP BY dayofweek(`flights`.`ts`), hour(`flights`.`ts`) ORDER BY 1, 2",
    "SELECT count(*) AS `count` FROM `flights` WHERE (`flights`.`ts` >= date(date_add(now(6), INTERVAL -30 day))) "
    "AND (`flights`.`ts` < date(now(6)))",
    "SELECT `flights`.`carrier` AS `carrier`, count(distinct `flights`.`origin`) AS `count` FROM `flights` "
    "WHERE lower(`flights`.`carrier`) LIKE '%a%' GROUP BY `flights`.`carrier` ORDER BY `count` DESC LIMIT 10",
    "SELECT `source`.`carrier`, avg(`source`.`n`) FROM (SELECT `flights`.`carrier` AS `carrier`, date(`flights`.`ts`) "
    "AS `day`, count(*) AS `n` FROM `flights` GROUP BY `flights`.`carrier`, date(`flights`.`ts`)) AS `source` "
    "GROUP BY `source`.`carrier`",
    "SELECT FLOOR(((`flights`.`gate` - 0.0) / 25.0)) * 25.0 + 0.0 AS `gate`, count(*) AS `count` FROM "
    "`flights` GROUP BY FLOOR(((`flights`.`gate` - 0.0) / 25.0)) * 25.0 + 0.0 ORDER BY 1 ASC",
)
DBEAVER = (
    "/* mysql-connector-j-8.0.33 */SELECT  @@session.auto_increment_increment AS auto_increment_increment, "
    "@@character_set_client AS character_set_client, @@character_set_connection AS character_set_connection, "
    "@@character_set_results AS character_set_results, @@character_set_server AS character_set_server, "
    "@@collation_server AS collation_server, @@collation_connection AS collation_connection, @@init_connect AS "
    "init_connect, @@interactive_timeout AS interactive_timeout, @@license AS license, @@lower_case_table_names AS "
    "lower_case_table_names, @@max_allowed_packet AS max_allowed_packet, @@net_write_timeout AS net_write_timeout, "
    "@@performance_schema AS performance_schema, @@sql_mode AS sql_mode, @@system_time_zone AS system_time_zone, "
    "@@time_zone AS time_zone, @@transaction_isolation AS transaction_isolation, @@wait_timeout AS wait_timeout",
    "SET SQL_SAFE_UPDATES=1",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SELECT DATABASE()",
    "SHOW WARNINGS",
    "SHOW ENGINES",
    "SHOW CHARSET",
    "SHOW COLLATION",
    "SHOW PLUGINS",
    "SHOW PRIVILEGES",
    "SHOW DATABASES",
    "SELECT * FROM information_schema.SCHEMATA",
    "SHOW FULL TABLES FROM `rtolap`",
    "SELECT * FROM information_schema.TABLES t WHERE t.TABLE_SCHEMA = 'information_schema' AND t.TABLE_NAME = 'CHECK_CONSTRAINTS'",
    "SHOW TABLE STATUS FROM `rtolap`",
    "SHOW TABLE STATUS FROM `rtolap` LIKE 'flights'",
    "SELECT * FROM information_schema.COLUMNS WHERE TABLE_SCHEMA='rtolap' AND TABLE_NAME='flights' ORDER BY ORDINAL_POSITION",
    "SHOW FULL COLUMNS FROM `rtolap`.`flights`",
    "SHOW INDEX FROM `flights` FROM `rtolap`",
    "SELECT * FROM information_schema.STATISTICS WHERE TABLE_SCHEMA='rtolap' AND TABLE_NAME='flights' ORDER BY INDEX_NAME, SEQ_IN_INDEX",
    "SELECT * FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA='rtolap' AND REFERENCED_TABLE_NAME IS NOT NULL",
    "SELECT * FROM information_schema.TABLE_CONSTRAINTS WHERE TABLE_SCHEMA='rtolap' AND TABLE_NAME='flights'",
    "SELECT * FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA='rtolap'",
    "SELECT * FROM information_schema.VIEWS WHERE TABLE_SCHEMA='rtolap'",
    "SELECT * FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA='rtolap' ORDER BY ROUTINE_NAME",
    "SHOW TRIGGERS FROM `rtolap`",
    "SHOW EVENTS FROM `rtolap`",
    "SHOW CREATE TABLE `rtolap`.`flights`",
    "SHOW STATUS",
    "SHOW GLOBAL STATUS",
    "SHOW VARIABLES",
    "SHOW GLOBAL VARIABLES",
    "SHOW VARIABLES LIKE 'aurora_version'",
    "SHOW FULL PROCESSLIST",
    "SELECT carrier, origin, delay\nFROM rtolap.flights\nLIMIT 0, 200",
    "SELECT count(*) FROM rtolap.flights",
    "EXPLAIN SELECT carrier, count(*) FROM rtolap.flights GROUP BY carrier",
)
GRAFANA = (
    "SELECT 1",
    "SET time_zone = '+00:00'",
    "SELECT table_name FROM information_schema.tables WHERE table_schema = database() ORDER BY table_name",
    "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = database() AND table_name = 'flights'",
    "SELECT DISTINCT TABLE_SCHEMA from information_schema.TABLES where TABLE_TYPE != 'SYSTEM VIEW' ORDER BY TABLE_SCHEMA",
    'SELECT cast(cast(UNIX_TIMESTAMP(hour_start)/(3600) as signed)*3600 as signed) AS "time", sum(distance) AS '
    '"distance" FROM flights WHERE hour_start BETWEEN FROM_UNIXTIME(1356998400) AND FROM_UNIXTIME(1388534400) '
    "GROUP BY 1 ORDER BY 1",
    "SELECT UNIX_TIMESTAMP(hour_start) DIV 300 * 300 AS `time`, carrier AS metric, count(*) AS `value` FROM flights "
    "WHERE hour_start BETWEEN FROM_UNIXTIME(1356998400) AND FROM_UNIXTIME(1388534400) "
    "GROUP BY UNIX_TIMESTAMP(hour_start) DIV 300 * 300, carrier ORDER BY UNIX_TIMESTAMP(hour_start) DIV 300 * 300",
    "SELECT UNIX_TIMESTAMP(hour_start) as time_sec, avg(delay) as value FROM flights WHERE ts >= "
    "FROM_UNIXTIME(1356998400) AND ts < FROM_UNIXTIME(1388534400) GROUP BY hour_start ORDER BY 1",
    "SELECT hour_start AS 'time', COUNT(*) FROM `rtolap`.`flights` WHERE (`hour_start` BETWEEN "
    "FROM_UNIXTIME(1356998400) AND FROM_UNIXTIME(1388534400)) GROUP BY `hour_start` ORDER BY `hour_start` LIMIT 50",
    "SELECT carrier AS __text, origin AS __value FROM flights GROUP BY carrier, origin LIMIT 100",
)
SUPERSET = (
    "SELECT DATE(hour_start) AS __timestamp, COUNT(*) AS count FROM rtolap.flights WHERE hour_start >= "
    "STR_TO_DATE('2013-01-01 00:00:00.000000', '%Y-%m-%d %H:%i:%s.%f') AND hour_start < "
    "STR_TO_DATE('2014-01-01 00:00:00.000000', '%Y-%m-%d %H:%i:%s.%f') GROUP BY DATE(hour_start) "
    "ORDER BY count DESC LIMIT 10000",
    "SELECT DATE_ADD(DATE(ts), INTERVAL HOUR(ts) HOUR) AS __timestamp, sum(distance) AS s FROM rtolap.flights "
    "GROUP BY DATE_ADD(DATE(ts), INTERVAL HOUR(ts) HOUR)",
    "SELECT DATE(DATE_SUB(day_start, INTERVAL DAYOFWEEK(day_start) - 1 DAY)) AS __timestamp, COUNT(*) AS count FROM "
    "rtolap.flights GROUP BY DATE(DATE_SUB(day_start, INTERVAL DAYOFWEEK(day_start) - 1 DAY))",
    "SELECT DATE(DATE_SUB(day_start, INTERVAL DAYOFMONTH(day_start) - 1 DAY)) AS __timestamp, COUNT(*) AS count "
    "FROM rtolap.flights GROUP BY DATE(DATE_SUB(day_start, INTERVAL DAYOFMONTH(day_start) - 1 DAY))",
    "SELECT MAKEDATE(YEAR(day_start), 1) + INTERVAL QUARTER(day_start) QUARTER - INTERVAL 1 QUARTER AS __timestamp, "
    "COUNT(*) FROM rtolap.flights GROUP BY MAKEDATE(YEAR(day_start), 1) + INTERVAL QUARTER(day_start) QUARTER - "
    "INTERVAL 1 QUARTER",
    "SELECT DATE(DATE_SUB(day_start, INTERVAL DAYOFWEEK(DATE_SUB(day_start, INTERVAL 1 DAY)) - 1 DAY)) AS t, "
    "COUNT(*) FROM rtolap.flights GROUP BY 1",
)
STATEMENTS = {"metabase": METABASE, "dbeaver": DBEAVER, "grafana": GRAFANA, "superset": SUPERSET}
