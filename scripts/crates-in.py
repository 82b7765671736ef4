#!/usr/bin/env python3
"""crates-in.py FILE: prints the crates that cargo auditable listed in a program or library, one "NAME VERSION" a line,
but for those that only its build used. Fails if there is no list. OBJCOPY: that for another architecture."""
import json
import os
import subprocess
import sys
import tempfile
import zlib

with tempfile.NamedTemporaryFile() as section:
    subprocess.run(
        [os.environ.get("OBJCOPY", "objcopy"), "-O", "binary", "--only-section=.dep-v0", "--set-section-flags", ".dep-v0=alloc", sys.argv[1], section.name],
        check=True,
    )
    packed = section.read()
if not packed:
    sys.exit(f"{sys.argv[1]}: no list of crates (.dep-v0)")
for crate in json.loads(zlib.decompress(packed))["packages"]:
    if crate.get("kind", "runtime") == "runtime":
        print(crate["name"], crate["version"])
