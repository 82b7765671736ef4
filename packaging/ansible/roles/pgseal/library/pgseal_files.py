#!/usr/bin/python3
"""pgseal_files: keys and small texts on a host, and what is there, in one run of a module. Python starts once for each
module on each host, which is most of the time that a play takes there."""

import hashlib
import os
import re
import stat
import tempfile

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: pgseal_files
short_description: Keys and small texts of a sealed PostgreSQL
description:
  - Brings keys to files that are never replaced, writes texts, and says which paths exist. Directories are made where
    they are missing. No key is in an output, a difference or a log.
options:
  keys:
    description: Key files. One that exists with another key ends the module, before anything is changed.
    type: list
    elements: dict
    suboptions:
      key_file: {type: path, required: true, description: Where the key lies}
      key: {type: str, description: "64 hexadecimal digits; without it, I(program) makes a key that only the host has"}
  owner: {type: str, description: Of key files}
  group: {type: str, description: Of key files}
  program: {type: str, default: pgseal, description: What makes a key}
  texts:
    description: Files of mode 0644, each with path and content.
    type: list
    elements: dict
  exist:
    description: Paths to look for.
    type: list
    elements: str
"""

RETURN = r"""
existing: {type: list, returned: always, description: Which paths of I(exist) are there}
written: {type: list, returned: always, description: Files that were made or changed}
"""


def read(path):
    """What is in the file, or None if it is not there."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


class Host:
    def __init__(self, module):
        self.module = module
        self.written = []
        self.diffs = []

    def make_directory(self, path):
        """Those that are there stay as they are."""
        if os.path.isdir(path) or self.module.check_mode:
            return
        self.make_directory(os.path.dirname(path))
        os.mkdir(path, 0o755)
        os.chmod(path, 0o755)

    def check_keys(self, keys):
        for entry in keys:
            key, path = entry["key"], entry["key_file"]
            if key is None:
                continue
            if not re.fullmatch("[0-9a-f]{64}", key):
                self.fail(path, "the key for it is not 64 hexadecimal digits, as pgseal key new makes them")
            here = read(path)
            # Digests, so that the time tells nothing of the key.
            if here is not None and hashlib.sha256(here).digest() != hashlib.sha256(f"{key}\n".encode()).digest():
                self.fail(
                    path,
                    "another key than in the inventory. It is not replaced, because a cluster may be readable with it "
                    "only. To change a key: pgseal key rotate",
                )

    def bring_key(self, path, key):
        is_new = not os.path.lexists(path)
        if is_new:
            self.diffs.append({"after_header": path, "before": "", "after": "(a key)\n"})
            if self.module.check_mode:
                self.written.append(path)
                return
            self.make_directory(os.path.dirname(path))
            if key is None:
                self.module.run_command([self.module.params["program"], "key", "new", "-o", path], check_rc=True)
            else:
                self.write_key(path, key)
        elif not stat.S_ISREG(os.lstat(path).st_mode):
            self.fail(path, "this is not a regular file")
        if self.belongs_to_user(path) or is_new:
            self.written.append(path)

    def belongs_to_user(self, path):
        """Gives the file to the user; whether that changed something."""
        params = self.module.params
        return self.set_attributes(path, mode="0600", owner=params["owner"], group=params["group"])

    def set_attributes(self, path, **wanted):
        arguments = self.module.load_file_common_arguments({"path": path, **wanted})
        return self.module.set_fs_attributes_if_different(arguments, False)

    def write_key(self, path, key):
        """The file has its name when it is whole, is on the disk, and belongs to its user. A link replaces no file."""
        directory = os.path.dirname(path)
        handle, new = tempfile.mkstemp(prefix=".pgseal-", dir=directory)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(f"{key}\n")
                file.flush()
                os.fsync(file.fileno())
            self.belongs_to_user(new)
            os.link(new, path)
        finally:
            os.unlink(new)
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(handle)
        os.close(handle)

    def write_text(self, path, content):
        here = read(path)
        wanted = content.encode()
        if here != wanted:
            self.written.append(path)
            before = "" if here is None else here.decode(errors="replace")
            self.diffs.append({"before_header": path, "after_header": path, "before": before, "after": content})
            if self.module.check_mode:
                return
            self.make_directory(os.path.dirname(path))
            handle, new = tempfile.mkstemp(dir=self.module.tmpdir)
            with os.fdopen(handle, "wb") as file:
                file.write(wanted)
            self.module.atomic_move(new, path)
        if self.set_attributes(path, mode="0644") and path not in self.written:
            self.written.append(path)

    def fail(self, path, why):
        self.module.fail_json(msg=f"{path}: {why}", written=self.written, changed=bool(self.written))


def main():
    key = {"key_file": {"type": "path", "required": True}, "key": {"type": "str", "no_log": True}}
    text = {"path": {"type": "path", "required": True}, "content": {"type": "str", "required": True}}
    module = AnsibleModule(
        argument_spec={
            "keys": {"type": "list", "elements": "dict", "options": key, "default": [], "no_log": False},
            "owner": {"type": "str"},
            "group": {"type": "str"},
            "program": {"type": "str", "default": "pgseal"},
            "texts": {"type": "list", "elements": "dict", "options": text, "default": []},
            "exist": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    host = Host(module)
    try:
        host.check_keys(module.params["keys"])
        for entry in module.params["keys"]:
            host.bring_key(entry["key_file"], entry["key"])
        for entry in module.params["texts"]:
            host.write_text(entry["path"], entry["content"])
        existing = [path for path in module.params["exist"] if is_there(path)]
    except OSError as error:
        host.fail(error.filename or "file", error.strerror or str(error))
    module.exit_json(changed=bool(host.written), written=host.written, diff=host.diffs, existing=existing)


def is_there(path):
    """A directory that cannot be read is an error, not a path that is missing."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


if __name__ == "__main__":
    main()
