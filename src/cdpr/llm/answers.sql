-- The database of recorded answers (recording.py).

-- The answers, by the key of their question. `asked` is the question, `answer` the answer, both as JSON.
CREATE TABLE IF NOT EXISTS answers (
    question TEXT PRIMARY KEY, model TEXT NOT NULL, asked TEXT NOT NULL, answer TEXT NOT NULL, date TEXT NOT NULL);

-- Which systems (agents, judges, matchers) use an answer, and about cases of which data sets its question was asked.
CREATE TABLE IF NOT EXISTS uses (system TEXT, question TEXT, PRIMARY KEY (system, question)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sources (dataset TEXT, question TEXT, PRIMARY KEY (dataset, question)) WITHOUT ROWID;

-- For archives: each answer that a system uses, with all these systems and data sets as lists in JSON; no list of data
-- sets where none was recorded.
CREATE TEMP VIEW IF NOT EXISTS answers_with_uses AS
SELECT answers.*, systems, datasets FROM answers
JOIN (SELECT question, json_group_array(system) AS systems FROM uses GROUP BY question) USING (question)
LEFT JOIN (SELECT question, json_group_array(dataset) AS datasets FROM sources WHERE dataset != '' GROUP BY question)
USING (question) ORDER BY question;
