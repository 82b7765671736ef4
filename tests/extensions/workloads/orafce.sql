-- tried: utl_file in the data directory, dbms_output, dbms_pipe, dbms_random, strings and dates, dual
-- extensions: orafce
-- normalise: s/orafce[0-9]+/orafceN/
CREATE EXTENSION orafce;
ALTER DATABASE w SET search_path = public, oracle;
\c -
CREATE TABLE t (id int, v varchar2(200));
INSERT INTO t SELECT g, 'canary-orafce-Zq7x ' || g FROM generate_series(1, 1000) g;
\! mkdir -p /srv/extensions/scratch/utl /srv/extensions/data/utl
INSERT INTO utl_file.utl_file_dir VALUES ('/srv/extensions/scratch/utl'), ('/srv/extensions/data/utl');
CREATE FUNCTION write_lines(dir text, how text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE f utl_file.file_type; n int := 0; line text;
BEGIN
    f := utl_file.fopen(dir, 'lines', how);
    FOR i IN 1 .. 1000 LOOP PERFORM utl_file.put_line(f, 'canary-orafce-Zq7x line ' || i); END LOOP;
    PERFORM utl_file.fflush(f);
    f := utl_file.fclose(f);
    f := utl_file.fopen(dir, 'lines', 'r');
    BEGIN
        LOOP line := utl_file.get_line(f); n := n + 1; END LOOP;
    EXCEPTION WHEN no_data_found THEN f := utl_file.fclose(f);
    END;
    PERFORM utl_file.fcopy(dir, 'lines', dir, 'copy');
    PERFORM utl_file.frename(dir, 'copy', dir, 'copy2', true);
    RETURN n;
END $$;
SELECT write_lines('/srv/extensions/data/utl', 'w');
SELECT write_lines('/srv/extensions/data/utl', 'a');
SELECT utl_file.fgetattr('/srv/extensions/data/utl', 'copy2');
SELECT dbms_pipe.pack_message('canary-orafce-Zq7x message'), dbms_pipe.send_message('p', 0, 10);
\c -
SELECT dbms_pipe.receive_message('p', 1), dbms_pipe.unpack_message_text();
SELECT dbms_output.enable(), dbms_output.put_line('hello');
SELECT dbms_output.get_line();
SELECT oracle.substr('hello', 2, 3), nvl(NULL::text, 'x'), oracle.to_date('2026-01-05', 'YYYY-MM-DD'), add_months('2026-01-31'::date, 1), dummy FROM dual;
SELECT dbms_random.initialize(5), round(dbms_random.value()::numeric, 6) BETWEEN 0 AND 1;
CHECKPOINT;
INSERT INTO t SELECT g, 'canary-orafce-Zq7x late ' || g FROM generate_series(1001, 1200) g;
-- after kill -9
SELECT count(*), md5(string_agg(v, ',' ORDER BY id)) FROM t;
SELECT write_lines('/srv/extensions/data/utl', 'a');
SELECT utl_file.fgetattr('/srv/extensions/data/utl', 'lines'), length(pg_read_file('utl/lines'));
