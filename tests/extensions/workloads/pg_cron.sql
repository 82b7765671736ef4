-- tried: jobs of the scheduler, run by background workers, that write rows; one that fails; unschedule
-- extensions: pg_cron
-- preload: pg_cron
-- setting: cron.database_name = 'w'
-- setting: cron.use_background_workers = on
-- ignore: ^cron\.job_run_details$|^public\.ticks$
CREATE EXTENSION pg_cron;
CREATE TABLE ticks (at timestamptz DEFAULT now(), v text);
CREATE TABLE facts (v text UNIQUE);
SELECT cron.schedule('tick', '* * * * *', $$INSERT INTO ticks (v) VALUES ('canary-pg_cron-Zq7x tick')$$);
SELECT cron.schedule('once', '* * * * *', $$INSERT INTO facts VALUES ('canary-pg_cron-Zq7x fact') ON CONFLICT DO NOTHING$$);
SELECT cron.schedule('fails', '* * * * *', 'SELECT 1/0');
DO $$ BEGIN
    FOR i IN 1 .. 900 LOOP
        PERFORM pg_stat_clear_snapshot();
        EXIT WHEN (SELECT count(*) FROM ticks) > 0 AND (SELECT count(*) FROM facts) > 0
            AND (SELECT count(*) FROM cron.job_run_details WHERE status = 'failed') > 0;
        PERFORM pg_sleep(0.1);
        COMMIT;
    END LOOP;
END $$;
SELECT jobname, schedule, command, active FROM cron.job ORDER BY jobname;
SELECT DISTINCT jobid, status, return_message FROM cron.job_run_details WHERE status IN ('succeeded', 'failed') ORDER BY 1, 2, 3;
SELECT cron.unschedule('tick'), cron.unschedule('fails');
SELECT v, count(*) > 0 FROM ticks GROUP BY v;
-- after kill -9
SELECT jobname, schedule, command FROM cron.job ORDER BY jobname;
SELECT DISTINCT v FROM ticks;
SELECT v FROM facts;
