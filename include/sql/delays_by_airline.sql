-- Mean delay on arrival, worst first; cancelled flights have none and do not count.
SELECT a.name AS airline, COUNT(*) AS flights, AVG(f.arr_delay) AS mean_delay
FROM flights_cube f
JOIN airlines a ON f.carrier = a.carrier
GROUP BY a.name
ORDER BY mean_delay DESC;
