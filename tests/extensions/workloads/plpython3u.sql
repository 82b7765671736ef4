-- tried: 31 ways to children, threads, descriptors and files: subprocess, os.popen, fork, multiprocessing, asyncio, pty, closerange, socketpair, mmap
-- extensions: plpython3u
-- normalise: s/[0-9]+ (unreaped)/N \1/
CREATE EXTENSION plpython3u;
CREATE TABLE shared (id int PRIMARY KEY, v text);
INSERT INTO shared SELECT g, 'canary-plpython3u-Zq7x ' || g || repeat('x', 50) FROM generate_series(1, 5000) g;

CREATE FUNCTION py_run() RETURNS text LANGUAGE plpython3u AS $$
import subprocess
return subprocess.run(["/bin/echo", "hello"], capture_output=True, text=True).stdout.strip()
$$;
CREATE FUNCTION py_run_keeps_fds() RETURNS text LANGUAGE plpython3u AS $$
import subprocess
return subprocess.run(["/bin/echo", "hello"], capture_output=True, text=True, close_fds=False).stdout.strip()
$$;
CREATE FUNCTION py_shell() RETURNS text LANGUAGE plpython3u AS $$
import subprocess
return subprocess.run("printf 'b\na\n' | sort | tr '\n' ' '", shell=True, capture_output=True, text=True).stdout
$$;
CREATE FUNCTION py_preexec() RETURNS text LANGUAGE plpython3u AS $$
import os, subprocess
return subprocess.run(["/bin/echo", "hello"], capture_output=True, text=True, preexec_fn=lambda: os.setpgid(0, 0),
    start_new_session=False).stdout
$$;
CREATE FUNCTION py_stdin() RETURNS text LANGUAGE plpython3u AS $$
import subprocess
p = subprocess.Popen(["/usr/bin/wc", "-c"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
return p.communicate(b"x" * 300000)[0].decode().strip()
$$;
CREATE FUNCTION py_no_such_program() RETURNS text LANGUAGE plpython3u AS $$
import subprocess
try:
    subprocess.run(["/no/such/program"])
except FileNotFoundError as e:
    return "not found"
$$;
CREATE FUNCTION py_timeout() RETURNS text LANGUAGE plpython3u AS $$
import subprocess
try:
    subprocess.run(["/bin/sleep", "20"], timeout=0.2)
except subprocess.TimeoutExpired:
    return "killed"
$$;
CREATE FUNCTION py_popen() RETURNS text LANGUAGE plpython3u AS $$
import os
with os.popen("echo hello") as f: return f.read().strip()
$$;
CREATE FUNCTION py_system() RETURNS int LANGUAGE plpython3u AS $$
import os
return os.waitstatus_to_exitcode(os.system("exit 3"))
$$;
CREATE FUNCTION py_spawn() RETURNS int LANGUAGE plpython3u AS $$
import os
pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 4"], {}, file_actions=[(os.POSIX_SPAWN_CLOSE, 9), (os.POSIX_SPAWN_OPEN, 5, "/dev/null", 0, 0), (os.POSIX_SPAWN_DUP2, 5, 6)])
return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
$$;
CREATE FUNCTION py_platform() RETURNS bool LANGUAGE plpython3u AS $$
import platform
platform._platform_cache.clear()
if hasattr(platform, "_uname_cache"): platform._uname_cache = None
return "Linux" in platform.platform() and platform.processor() is not None
$$;
CREATE FUNCTION py_find_library() RETURNS text LANGUAGE plpython3u AS $$
import ctypes.util
return ctypes.util.find_library("c")
$$;
CREATE FUNCTION py_ctypes() RETURNS bool LANGUAGE plpython3u AS $$
import ctypes, os
return ctypes.CDLL(None).getpid() == os.getpid()
$$;
CREATE FUNCTION py_fork() RETURNS int LANGUAGE plpython3u AS $$
import os
pid = os.fork()
if pid == 0:
    os.closerange(3, 1024)
    os._exit(7)
return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
$$;
CREATE FUNCTION py_fork_exec() RETURNS text LANGUAGE plpython3u AS $$
import os
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    os.dup2(w, 1)
    os.closerange(3, 1024)
    os.execv("/bin/echo", ["echo", "hello"])
os.close(w)
text = os.read(r, 100).decode().strip()
os.close(r)
os.waitpid(pid, 0)
return text
$$;
CREATE FUNCTION py_grandchildren() RETURNS text LANGUAGE plpython3u AS $$
import os
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    import subprocess
    os.write(w, subprocess.run(["/bin/echo", "from a grandchild"], stdout=subprocess.PIPE).stdout)
    os._exit(0)
os.waitpid(pid, 0)
text = os.read(r, 100).decode().strip()
os.close(r); os.close(w)
return text
$$;
CREATE FUNCTION py_multiprocessing() RETURNS int LANGUAGE plpython3u AS $$
import multiprocessing as mp
c = mp.get_context("fork")
def f(n, q): q.send(n * n)
total = 0
for n in range(4):
    a, b = c.Pipe()
    p = c.Process(target=f, args=(n, b))
    p.start(); total += a.recv(); p.join(); a.close(); b.close()
return total
$$;
CREATE FUNCTION py_shared_memory() RETURNS text LANGUAGE plpython3u AS $$
from multiprocessing import shared_memory
s = shared_memory.SharedMemory(create=True, size=100)
s.buf[:5] = b"hello"
o = shared_memory.SharedMemory(name=s.name)
text = bytes(o.buf[:5]).decode()
o.close(); s.close(); s.unlink()
return text
$$;
CREATE FUNCTION py_asyncio() RETURNS text LANGUAGE plpython3u AS $$
import asyncio
async def go():
    p = await asyncio.create_subprocess_exec("/bin/echo", "hello", stdout=asyncio.subprocess.PIPE)
    out, _ = await p.communicate()
    return out.decode().strip()
return asyncio.run(go())
$$;
CREATE FUNCTION py_threads() RETURNS int LANGUAGE plpython3u AS $$
import os, tempfile, threading
found = []
def work(n):
    for i in range(20):
        with tempfile.NamedTemporaryFile(dir="/srv/extensions/scratch") as f:
            f.write(b"%d" % n * 1000); f.flush(); f.seek(0); found.append(len(f.read()))
ts = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in ts]; [t.join() for t in ts]
return sum(found)
$$;
CREATE FUNCTION py_threads_children() RETURNS int LANGUAGE plpython3u AS $$
import subprocess, threading
found = []
def work():
    for i in range(3): found.append(len(subprocess.run(["/bin/echo", "hello"], capture_output=True).stdout))
ts = [threading.Thread(target=work) for n in range(4)]
[t.start() for t in ts]; [t.join() for t in ts]
return sum(found)
$$;
CREATE FUNCTION py_pool() RETURNS int LANGUAGE plpython3u AS $$
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool: return sum(pool.map(lambda n: n * n, range(50)))
$$;
CREATE FUNCTION py_closerange() RETURNS int LANGUAGE plpython3u AS $$
import fcntl, os
f = os.open("/etc/hostname", os.O_RDONLY)
for n in range(700, 720): os.dup2(f, n)
os.closerange(690, 1000)
os.close(f)
f = os.open("/etc/hostname", os.O_RDONLY)
n = fcntl.fcntl(f, fcntl.F_DUPFD_CLOEXEC, 800)
os.close(f); os.close(n)
return n
$$;
CREATE FUNCTION py_socketpair() RETURNS text LANGUAGE plpython3u AS $$
import os, socket
a, b = socket.socketpair()
pid = os.fork()
if pid == 0:
    b.sendall(a and b"hello"); os._exit(0)
text = a.recv(100).decode()
os.waitpid(pid, 0); a.close(); b.close()
return text
$$;
CREATE FUNCTION py_send_fds() RETURNS text LANGUAGE plpython3u AS $$
import os, socket
a, b = socket.socketpair()
f = os.open("PG_VERSION", os.O_RDONLY)
socket.send_fds(a, [b"x"], [f])
os.close(f)
_, fds, _, _ = socket.recv_fds(b, 10, 4)
text = os.read(fds[0], 2).decode()
[os.close(n) for n in fds]; a.close(); b.close()
return text
$$;
CREATE FUNCTION py_pty() RETURNS text LANGUAGE plpython3u AS $$
import os, pty
pid, fd = pty.fork()
if pid == 0: os.execv("/bin/echo", ["echo", "hello"])
text = os.read(fd, 100).decode().strip()
os.waitpid(pid, 0); os.close(fd)
return text
$$;
CREATE FUNCTION py_mmap() RETURNS text LANGUAGE plpython3u AS $$
import mmap, os
with open("/srv/extensions/scratch/map", "w+b") as f:
    f.truncate(8192)
    m = mmap.mmap(f.fileno(), 8192)
    m[100:105] = b"hello"; m.flush(); m.close()
    f.seek(100); return f.read(5).decode()
$$;
CREATE FUNCTION py_copies() RETURNS text LANGUAGE plpython3u AS $$
import os, shutil
d = "/srv/extensions/scratch/"
with open(d + "a", "wb") as f: f.write(b"hello" * 2000)
shutil.copyfile(d + "a", d + "b")
with open(d + "a", "rb") as f, open(d + "c", "wb") as g: os.sendfile(g.fileno(), f.fileno(), 0, 10000)
with open(d + "a", "rb") as f, open(d + "d", "wb") as g: os.copy_file_range(f.fileno(), g.fileno(), 10000)
return str([open(d + n, "rb").read() == b"hello" * 2000 for n in "bcd"])
$$;
CREATE FUNCTION py_sqlite() RETURNS int LANGUAGE plpython3u AS $$
import sqlite3
c = sqlite3.connect("/srv/extensions/scratch/db")
c.execute("create table if not exists t (x int)"); c.execute("delete from t")
c.executemany("insert into t values (?)", [(n,) for n in range(100)]); c.commit()
n = c.execute("select sum(x) from t").fetchone()[0]
c.close()
return n
$$;
-- files of one's own in the data directory are sealed, and read as they were written
CREATE FUNCTION py_own_file() RETURNS text LANGUAGE plpython3u AS $$
import os
with open("own-file", "a") as f:
    f.write("canary-plpython3u-Zq7x in a file of one's own\n")
with open("own-file") as f: lines = f.readlines()
os.rename("own-file", "own-file.done"); os.rename("own-file.done", "own-file")
return "%d %s %d" % (len(set(lines)), lines[-1].strip()[:20], len(lines) * 46 - os.stat("own-file").st_size)
$$;
CREATE FUNCTION py_spi() RETURNS bool LANGUAGE plpython3u AS $$
import subprocess
n = 0
for row in plpy.cursor("select id, v from shared where id <= 60 order by id"):
    n += len(row["v"])
    if row["id"] % 20 == 0: subprocess.run(["/bin/true"])
with plpy.subtransaction():
    plpy.execute("update shared set v = v || '.' where id = 1")
return n > 0
$$;

\set ECHO errors
SELECT format($f$\set name t_%s
\set call '%s()'
\i %s$f$, proname, proname, '/srv/extensions/scratch/child.sql')
FROM pg_proc WHERE proname LIKE 'py\_%' ORDER BY proname COLLATE "C"
\g (format=unaligned tuples_only=on) /srv/extensions/scratch/all.sql
\! sed 's/MARKER/canary-plpython3u-Zq7x/' child.inc > /srv/extensions/scratch/child.sql
\set ECHO all
\i /srv/extensions/scratch/all.sql
-- after kill -9
SELECT count(*), md5(string_agg(v, ',' ORDER BY id)) FROM shared;
SELECT py_own_file() LIKE '1 %';
