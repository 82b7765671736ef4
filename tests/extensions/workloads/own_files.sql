-- tried: files of a function's own inside the data directory, by the calls that its libraries make: positions, holes, truncation, renames, links, locks, temporary names, descriptors over a socket and fork, sendfile, splice, copy_file_range, mmap, SQLite, zip, tar, gzip
-- extensions: plpython3u
CREATE EXTENSION plpython3u;
CREATE TABLE answers (name text, answer text);
CREATE FUNCTION try(name text, body text) RETURNS text LANGUAGE plpython3u AS $$
import hashlib, mmap, os, shutil, socket, sqlite3, subprocess, tempfile
M = b"canary-own_files-Zq7x "
os.makedirs("own/" + name, exist_ok=True)
d = "own/" + name + "/"
text = "\n".join("    " + line for line in body.strip().split("\n"))
place = {"os": os, "M": M, "d": d, "mmap": mmap, "shutil": shutil, "socket": socket, "sqlite3": sqlite3, "subprocess": subprocess, "tempfile": tempfile}
exec("def f():\n" + text, place)
try:
    answer = str(place["f"]())
except OSError as e:
    answer = "OSError %s" % e.errno
except Exception as e:
    answer = type(e).__name__ + ": " + str(e)
plpy.execute(plpy.prepare("insert into answers values ($1, $2)", ["text", "text"]), [name, answer])
return answer
$$;
SELECT try('positions', $$
f = os.open(d + "f", os.O_RDWR | os.O_CREAT)
os.pwrite(f, M * 1000, 5000); os.pwritev(f, [M, b"x" * 100], 3); os.lseek(f, -10, os.SEEK_END); os.write(f, b"end of the file")
return os.fstat(f).st_size, os.pread(f, 30, 0), os.preadv(f, [bytearray(5000)], 4990), os.lseek(f, 0, os.SEEK_CUR)
$$);
SELECT try('holes', $$
f = os.open(d + "f", os.O_RDWR | os.O_CREAT)
os.pwrite(f, M, 100000); os.ftruncate(f, 200000); os.pwrite(f, M, 199000)
os.truncate(d + "f", 150000); os.ftruncate(f, 300000)
return os.pread(f, 10, 50000), os.pread(f, 50, 199000).count(0), os.fstat(f).st_size, os.lseek(f, 0, os.SEEK_END)
$$);
SELECT try('append', $$
a = os.open(d + "f", os.O_WRONLY | os.O_CREAT | os.O_APPEND); b = os.open(d + "f", os.O_WRONLY | os.O_APPEND)
for n in range(100): os.write(a, M); os.write(b, b"b\n")
return open(d + "f", "rb").read().count(M), os.path.getsize(d + "f")
$$);
SELECT try('allocate', $$
f = os.open(d + "f", os.O_RDWR | os.O_CREAT)
os.posix_fallocate(f, 0, 100000); os.pwrite(f, M, 50); os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED); os.fsync(f); os.fdatasync(f)
return os.fstat(f).st_size, os.pread(f, 30, 40)
$$);
SELECT try('rename', $$
open(d + "a", "wb").write(M); open(d + "b", "wb").write(b"other"); os.replace(d + "a", d + "b"); os.link(d + "b", d + "c"); os.symlink("b", d + "s")
f = open(d + "c", "rb"); os.unlink(d + "b"); os.unlink(d + "c")
x = f.read(), os.listdir(d), os.path.lexists(d + "s"), os.path.exists(d + "s"); os.unlink(d + "s"); return x
$$);
SELECT try('streams', $$
with open(d + "f", "w+") as f:
    for n in range(10000): f.write("%d canary-own_files-Zq7x\n" % n)
    f.seek(1000); a = f.readline(); f.seek(0, 2); f.truncate(50000)
with open(d + "f", "r+b", buffering=0) as f: f.seek(49990); f.write(b"-" * 20)
return a, os.path.getsize(d + "f"), sum(1 for l in open(d + "f"))
$$);
SELECT try('temporary', $$
with tempfile.NamedTemporaryFile(dir=d) as f: f.write(M * 100); f.flush(); a = os.path.getsize(f.name)
with tempfile.TemporaryFile(dir=d) as f: f.write(M * 100); f.seek(0); b = len(f.read())
with tempfile.SpooledTemporaryFile(max_size=10, dir=d) as f: f.write(M * 100); f.seek(0); c = len(f.read())
return a, b, c, os.listdir(d)
$$);
SELECT try('o_tmpfile', $$
f = os.open(d, os.O_TMPFILE | os.O_RDWR); os.write(f, M * 50)
os.link("/proc/self/fd/%d" % f, d + "named", follow_symlinks=True); os.close(f)
return open(d + "named", "rb").read() == M * 50
$$);
SELECT try('reopen', $$
f = os.open(d + "f", os.O_RDWR | os.O_CREAT); os.write(f, M * 300)
g = os.open("/proc/self/fd/%d" % f, os.O_RDONLY)
return os.read(g, 10000) == M * 300, os.stat("/proc/self/fd/%d" % f).st_size
$$);
SELECT try('descriptors', $$
f = os.open(d + "f", os.O_RDWR | os.O_CREAT); g = os.dup(f); os.write(f, M); os.write(g, b"second"); h = os.dup2(f, 99); os.close(f); os.close(g)
os.write(h, b"third"); os.lseek(h, 0, 0); x = os.read(h, 100); os.close(h); return x
$$);
SELECT try('over_a_socket', $$
a, b = socket.socketpair(); f = os.open(d + "f", os.O_RDWR | os.O_CREAT); os.write(f, M); socket.send_fds(a, [b"x"], [f]); os.close(f)
_, (g,), _, _ = socket.recv_fds(b, 10, 1); os.write(g, b"by the received one"); os.lseek(g, 0, 0); x = os.read(g, 100); os.close(g); return x
$$);
SELECT try('fork_shares', $$
f = os.open(d + "f", os.O_RDWR | os.O_CREAT); p = os.fork()
if p == 0: os.write(f, M); os._exit(0)
os.waitpid(p, 0); os.write(f, b"parent"); os.lseek(f, 0, 0); return os.read(f, 100)
$$);
SELECT try('child_output', $$
with open(d + "f", "wb") as f: subprocess.run(["/bin/echo", "from a program"], stdout=f)
return open(d + "f", "rb").read()
$$);
SELECT try('locks', $$
import fcntl
f = open(d + "f", "w"); fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX); f.write("canary-own_files-Zq7x"); f.close()
return os.path.getsize(d + "f")
$$);
SELECT try('copies', $$
open(d + "a", "wb").write(M * 5000); shutil.copy2(d + "a", d + "b"); shutil.copyfile(d + "a", "/srv/extensions/scratch/copied"); shutil.move(d + "b", d + "c")
return open(d + "c", "rb").read() == M * 5000, open("/srv/extensions/scratch/copied", "rb").read() == M * 5000
$$);
SELECT try('sendfile', $$
open(d + "a", "wb").write(M * 500); f = open(d + "a", "rb"); a, b = socket.socketpair()
n = os.sendfile(a.fileno(), f.fileno(), 0, len(M) * 3); return n, b.recv(1000)
$$);
SELECT try('copy_file_range', $$
open(d + "a", "wb").write(M * 500); f = open(d + "a", "rb"); g = open(d + "b", "wb")
n = os.copy_file_range(f.fileno(), g.fileno(), 5000, 100); return n, open(d + "b", "rb").read()[:30]
$$);
SELECT try('splice', $$
open(d + "a", "wb").write(M * 100); f = open(d + "a", "rb"); r, w = os.pipe(); n = os.splice(f.fileno(), w, 1000) if hasattr(os, "splice") else 0
return n, os.read(r, 40)
$$);
SELECT try('mmap_private', $$
open(d + "a", "wb").write(M * 1000); f = open(d + "a", "rb"); m = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
x = m[:22], m[-22:], len(m); m.close(); return x
$$);
SELECT try('mmap_read', $$
open(d + "a", "wb").write(M * 1000); f = open(d + "a", "rb"); m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
x = m[:22], m.find(b"Zq7x", 5000), len(m); m.close(); return x
$$);
SELECT try('sqlite', $$
c = sqlite3.connect(d + "db"); c.execute("create table t (x text)"); c.executemany("insert into t values (?)", [(M.decode() + str(n),) for n in range(1000)]); c.commit()
c.execute("delete from t where rowid % 2"); c.commit(); c.execute("vacuum"); c.close()
c = sqlite3.connect(d + "db"); return c.execute("select count(*), max(x) from t").fetchone(), c.execute("pragma integrity_check").fetchone()
$$);
SELECT try('archives', $$
import gzip, tarfile, zipfile
with gzip.open(d + "g.gz", "wb") as f: f.write(M * 1000)
with zipfile.ZipFile(d + "z.zip", "w") as z: z.writestr("a", M * 1000)
with tarfile.open(d + "t.tar", "w") as t: t.add(d + "z.zip", "z")
return len(gzip.open(d + "g.gz").read()), zipfile.ZipFile(d + "z.zip").testzip(), tarfile.open(d + "t.tar").getnames()
$$);
SELECT try('directories', $$
os.makedirs(d + "x/y"); open(d + "x/y/f", "wb").write(M); n = os.open(d + "x", os.O_RDONLY | os.O_DIRECTORY); f = os.open("y/f", os.O_RDONLY, dir_fd=n)
x = os.read(f, 100); os.rename("y/f", "f", src_dir_fd=n, dst_dir_fd=n); y = sorted(os.listdir(n)), os.stat("f", dir_fd=n).st_size; shutil.rmtree(d + "x"); return x, y, os.listdir(d)
$$);
SELECT try('modes', $$
open(d + "f", "wb").write(M); os.chmod(d + "f", 0o640); os.utime(d + "f", (1, 2)); s = os.stat(d + "f"); return oct(s.st_mode), s.st_mtime, s.st_size
$$);
CHECKPOINT;
INSERT INTO answers SELECT 'late', 'canary-own_files-Zq7x ' || g FROM generate_series(1, 100) g;
-- after kill -9
CREATE FUNCTION contents() RETURNS SETOF text LANGUAGE plpython3u AS $$
import hashlib, os
for where, _, names in sorted(os.walk("own")):
    for name in sorted(names):
        path = where + "/" + name
        if os.path.exists(path) and not path.endswith(".gz") and "/archives/" not in path:
            yield "%s %d %s" % (path, os.path.getsize(path), hashlib.md5(open(path, "rb").read()).hexdigest())
$$;
SELECT * FROM contents();
SELECT count(*) FROM answers;
