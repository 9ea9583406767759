-- Departures by hour of one day; EXPLAIN shows the cuboid, the segments and the receivers that answer.
SELECT hour_start, COUNT(*) AS flights, MAX(dep_delay) AS worst
FROM flights_cube
WHERE day_start = '2013-01-02'
GROUP BY hour_start
HAVING COUNT(*) > 10
ORDER BY hour_start;
