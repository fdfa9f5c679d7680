-- The database of what model calls cost, in US dollars (spending.py).

-- The booked calls, summed. `known` is 1 for those whose tokens the server reported, else 0.
CREATE TABLE IF NOT EXISTS spent (
    system TEXT, model TEXT, known INTEGER, calls INTEGER, prompt_tokens INTEGER, completion_tokens INTEGER, usd REAL,
    PRIMARY KEY (system, model, known));

-- A row for each call that is not booked, and the process that holds it. `until` is a time in seconds since 1970.
CREATE TABLE IF NOT EXISTS reserved (
    id INTEGER PRIMARY KEY AUTOINCREMENT, system TEXT, model TEXT, usd REAL, until REAL);
CREATE TABLE IF NOT EXISTS holders (id INTEGER PRIMARY KEY, process TEXT);

-- All calls as one table. Until its time `until` a reservation counts as `reserved`, since its call is in progress; then
-- as one spent call whose usage is not known. A true comparison is 1, a false one 0.
CREATE TEMP VIEW IF NOT EXISTS costs AS
WITH clock AS (SELECT (julianday('now') - julianday('1970-01-01')) * 86400.0 AS now)
SELECT system, model, known, calls, prompt_tokens, completion_tokens, usd, 0 AS reserved FROM spent UNION ALL
SELECT system, model, 0, until < now, 0, 0, usd * (until < now), usd * (until >= now) FROM reserved, clock;

-- What each system spent on each model: the columns of `spending.spent`.
CREATE TEMP VIEW IF NOT EXISTS bills AS
SELECT system, model, SUM(known * calls), SUM(prompt_tokens), SUM(completion_tokens), TOTAL(usd),
SUM((1 - known) * calls), TOTAL((1 - known) * usd), TOTAL(reserved)
FROM costs GROUP BY system, model ORDER BY system, model;
