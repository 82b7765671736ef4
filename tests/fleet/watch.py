"""watch.py SECRETS SEEN: until it is ended, looks at the arguments and the environment of every process, and writes each
line of the file SECRETS that it finds there to the file SEEN, with the arguments of that process."""

import glob
import sys
import time

with open(sys.argv[1], "rb") as file:
    secrets = file.read().split()
seen = set()
with open(sys.argv[2], "ab", buffering=0) as out:
    while True:
        for process in glob.glob("/proc/[0-9]*"):
            for name in ("cmdline", "environ"):
                try:
                    with open(f"{process}/{name}", "rb") as file:
                        text = file.read()
                except OSError:
                    continue  # ended meanwhile, or of another user
                for secret in secrets:
                    if secret in text and (process, secret) not in seen:
                        seen.add((process, secret))
                        out.write(secret + b" " + name.encode() + b": " + repr(text[:200]).encode() + b"\n")
        time.sleep(0.02)
