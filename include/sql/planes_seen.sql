SELECT origin, APPROX_COUNT_DISTINCT(tailnum) AS planes
FROM flights_cube
GROUP BY origin
ORDER BY planes DESC;
