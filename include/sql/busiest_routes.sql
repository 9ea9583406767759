-- The ten busiest routes, with the exact distance flown.
SELECT origin, dest, COUNT(*) AS flights, SUM(distance_km) AS km
FROM flights_cube
GROUP BY origin, dest
ORDER BY flights DESC, origin, dest
LIMIT 10;
