#!/usr/bin/python3 -IS
"""pgseal-provider-hostile: hostile:MODE misbehaves as MODE says; hostile:good does not.

Anchors and counters lie in the directory HOSTILE_STATE. Under the name careless it takes every URI."""
# Few modules: the suite runs this program a thousand times.
import fcntl, json, os, sys, time
from _blake2 import blake2s

KEY = b"k" * 32
NAME = sys.argv[0].rsplit("-", 1)[1]


class Failure(Exception):
    pass


def mac(*parts):
    return blake2s(b"".join(parts), key=KEY).digest()


def mask(nonce, text):
    return bytes(a ^ b for a, b in zip(text, mac(b"mask", nonce)))


def count(path):
    with open(path, "ab") as file:
        file.write(b".")
        return file.tell()


def wrap(mode, request):
    secret, context = bytes.fromhex(request["secret"]), bytes.fromhex(request["context"])
    if mode == "leaks":
        print("wrapping", request["secret"], file=sys.stderr)
    nonce = os.urandom(16)
    sealed = nonce + (secret if mode == "plain" else mask(nonce, secret))
    tag = mac(b"tag", b"" if mode == "unbound" else context, sealed)
    return {"wrapped": (sealed + tag).hex(), "key": "k"}


def unwrap(mode, request):
    wrapped, context = bytes.fromhex(request["wrapped"]), bytes.fromhex(request["context"])
    if mode == "cut":
        wrapped = wrapped[:80]
    sealed, tag = wrapped[:48], wrapped[48:]
    good = mac(b"tag", b"" if mode == "unbound" else context, sealed)
    if tag != good and mode != "unauthenticated":
        raise Failure("wrong", "the tag is wrong")
    if len(wrapped) != 80:
        raise Failure("wrong", "the length is wrong")
    secret = sealed[16:] if mode == "plain" else mask(sealed[:16], sealed[16:])
    if mode == "short":
        secret = secret[1:]
    if mode == "other-key":
        secret = bytes(32)[1:] + b"\x01"
    return {"secret": secret.hex()}


def anchor(mode, request):
    path = os.path.join(os.environ["HOSTILE_STATE"], "anchor-" + request["context"])
    with open(path, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        old = json.loads(text) if text and mode != "forgets" else None
        if request["operation"] == "anchor-read":
            return {"anchor": old}
        new = request["anchor"]
        if old and new["sequence"] <= old["sequence"] and mode != "back":
            raise Failure("stale", "there is a newer one")
        file.truncate(0)
        file.write(json.dumps(new))
    return {}


def answer(line):
    try:
        message = json.loads(line)
        mode, request = message["uri"].removeprefix(NAME + ":"), message["request"]
        operation = request["operation"]
        if message["protocol"] != 1 and mode != "any-version":
            raise Failure("request", "another version")
    except (ValueError, KeyError, TypeError):
        raise Failure("request", "no request")
    mode, _, path = mode.partition("=")
    if mode == "pgseal-conformance" and NAME != "careless":
        raise Failure("configuration", "no such mode")
    if mode == "down" or (mode == "down-twice" and count(path) < 3):
        raise Failure("unavailable", "the network is down\nand\tout")
    if mode in ("refused", "refused-count"):
        if path:
            count(path)
        raise Failure("refused", "the PIN is wrong")
    if mode == "config":
        raise Failure("configuration", "no such vault")
    if mode == "gone":
        raise Failure("key-gone", "the key was removed")
    if operation == "describe":
        return mode, {
            "name": "other" if mode == "name" else NAME,
            "version": "1",
            "operations": ["describe", "wrap", "unwrap", "anchor-read", "anchor-advance"],
            "store": "none",
            "key": "k",
            "binds_context": True,
        }
    if operation == "wrap":
        return mode, wrap(mode, request)
    if operation == "unwrap":
        if mode == "unlocked":
            return mode, alone(lambda: unwrap(mode, request))
        return mode, unwrap(mode, request)
    if operation in ("anchor-read", "anchor-advance"):
        return mode, anchor(mode, request)
    if mode == "exports":
        return mode, {}
    raise Failure("unsupported", "no such operation")


def alone(work):
    """Fails if another run does the same now."""
    path = os.environ["HOSTILE_STATE"] + "/busy"
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Failure("refused", "somebody else is here")
        time.sleep(0.5)
        return work()


mode = ""
try:
    mode, ok = answer(sys.stdin.buffer.read(16384))
    reply = {"protocol": 1, "ok": ok}
except Failure as failure:
    reply = {"protocol": 1, "error": {"kind": failure.args[0], "message": failure.args[1]}}

if mode == "slow":
    time.sleep(60)
if mode == "hangs-behind":
    if os.fork() == 0:
        os.execv("/bin/sleep", ["sleep", "60"])
if mode == "dies":
    sys.exit(3)
if mode == "silent":
    sys.exit(0)
if mode == "version":
    reply["protocol"] = 2
if mode == "both":
    reply["error"] = {"kind": "wrong", "message": "both"}
text = json.dumps(reply) + "\n"
if mode == "garbage":
    text = "\x00\x01garbage\n"
if mode == "long":
    text = " " * 20000 + text
if mode == "twice":
    text *= 2
if mode == "no-newline":
    text = text.rstrip()
sys.stdout.write(text)
sys.stdout.flush()
if mode == "dies-after":
    os._exit(3)
