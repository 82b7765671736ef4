-- tried: system with input, output and timeout, pipe, parallel::mclapply, file and gzfile connections, saveRDS, pdf, files of one's own in the data directory
-- extensions: plr
CREATE EXTENSION plr;
CREATE TABLE shared (id int PRIMARY KEY, v text);
INSERT INTO shared SELECT g, 'canary-plr-Zq7x ' || g || repeat('x', 50) FROM generate_series(1, 5000) g;
CREATE FUNCTION r_system() RETURNS text LANGUAGE plr AS $$ system("echo hello", intern = TRUE) $$;
CREATE FUNCTION r_system2() RETURNS text LANGUAGE plr AS $$ paste(system2("/bin/echo", c("a", "b"), stdout = TRUE), collapse = " ") $$;
CREATE FUNCTION r_system_status() RETURNS int LANGUAGE plr AS $$ as.integer(system("exit 3")) $$;
CREATE FUNCTION r_system_input() RETURNS text LANGUAGE plr AS $$ system("wc -l", input = rep("x", 1000), intern = TRUE) $$;
CREATE FUNCTION r_system_timeout() RETURNS int LANGUAGE plr AS $$ as.integer(suppressWarnings(system("sleep 20", timeout = 1))) $$;
CREATE FUNCTION r_pipe() RETURNS text LANGUAGE plr AS $$ p <- pipe("printf 'b\\na\\n' | sort"); x <- readLines(p); close(p); paste(x, collapse = " ") $$;
CREATE FUNCTION r_pipe_write() RETURNS int LANGUAGE plr AS $$ p <- pipe("cat > /dev/null", "w"); writeLines(rep("x", 10000), p); close(p); 1L $$;
CREATE FUNCTION r_parallel() RETURNS int LANGUAGE plr AS $$ sum(unlist(parallel::mclapply(1:20, function(n) n * n, mc.cores = 2))) $$;
CREATE FUNCTION r_files() RETURNS text LANGUAGE plr AS $$
f <- tempfile(tmpdir = "/srv/extensions/scratch"); writeLines(c("a", "b"), f); g <- paste0(f, ".gz")
z <- gzfile(g, "w"); writeLines(readLines(f), z); close(z); x <- readLines(g); unlink(c(f, g)); paste(x, collapse = " ")
$$;
CREATE FUNCTION r_rds() RETURNS text LANGUAGE plr AS $$
f <- tempfile(tmpdir = "/srv/extensions/scratch"); saveRDS(list(a = 1:3), f); x <- readRDS(f)$a; unlink(f); paste(x, collapse = " ")
$$;
CREATE FUNCTION r_pdf() RETURNS bool LANGUAGE plr AS $$ f <- "/srv/extensions/scratch/p.pdf"; pdf(f); plot(1:10); dev.off(); file.size(f) > 1000 $$;
CREATE FUNCTION r_copy() RETURNS bool LANGUAGE plr AS $$ file.copy("PG_VERSION", "/srv/extensions/scratch/v", overwrite = TRUE) && readLines("/srv/extensions/scratch/v") == "15" $$;
CREATE FUNCTION r_own_file() RETURNS text LANGUAGE plr AS $$
cat("canary-plr-Zq7x in a file of one's own\n", file = "own-file", append = TRUE)
x <- readLines("own-file"); paste(length(unique(x)), length(x) * 39 - file.size("own-file"))
$$;
CREATE FUNCTION r_spi() RETURNS int LANGUAGE plr AS $$ x <- pg.spi.exec("select v from shared order by id limit 50"); system("true"); nrow(x) $$;
\set ECHO errors
SELECT format($f$\set name t_%s
\set call '%s()'
\i %s$f$, proname, proname, '/srv/extensions/scratch/child.sql')
FROM pg_proc WHERE proname LIKE 'r\_%' ORDER BY proname COLLATE "C"
\g (format=unaligned tuples_only=on) /srv/extensions/scratch/all.sql
\! sed 's/MARKER/canary-plr-Zq7x/' child.inc > /srv/extensions/scratch/child.sql
\set ECHO all
\i /srv/extensions/scratch/all.sql
-- after kill -9
SELECT count(*), md5(string_agg(v, ',' ORDER BY id)) FROM shared;
SELECT r_own_file();
