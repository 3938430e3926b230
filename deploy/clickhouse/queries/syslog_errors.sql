-- Which programs report errors: messages of severity `err` and worse in the last hour, by the host and program that they name.

SELECT
    hostname,
    app_name,
    count() AS messages,
    countIf(severity <= 2) AS critical,
    argMax(message, time) AS last_message,
    max(time) AS last
FROM datagrams
WHERE time >= now() - INTERVAL 1 HOUR AND severity <= 3
GROUP BY hostname, app_name
ORDER BY messages DESC
LIMIT 50;
