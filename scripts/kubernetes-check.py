"""kubernetes-check.py CRD... -- MANIFEST...: checks manifests against schemas; called by kubernetes-check.sh.

Each CRD with the version that it stores; a field that a schema does not name is a fault. At the end it breaks each
document in three ways, and each must be found: so the check itself can fail.
"""

import copy
import sys

import jsonschema
import kubernetes_validate
import yaml


def closed(schema):
    """The schema, with no other fields than those it names, unless it says that it keeps them."""
    schema = dict(schema)
    if "properties" in schema:
        schema["properties"] = {name: closed(field) for name, field in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields") and "additionalProperties" not in schema:
            schema["additionalProperties"] = False
    if isinstance(schema.get("additionalProperties"), dict):
        schema["additionalProperties"] = closed(schema["additionalProperties"])
    if isinstance(schema.get("items"), dict):
        schema["items"] = closed(schema["items"])
    if schema.get("x-kubernetes-int-or-string"):
        schema.pop("type", None)
        schema["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if schema.get("nullable") and "type" in schema:
        schema["type"] = [schema["type"], "null"]
    return schema


def read_crds(paths):
    """The schemas of custom objects, by apiVersion and kind."""
    schemas = {}
    for path in paths:
        crd = yaml.safe_load(open(path))["spec"]
        for version in crd["versions"]:
            schema = closed(version["schema"]["openAPIV3Schema"])
            # The server knows these fields without the CRD, and checks metadata itself.
            schema["properties"]["metadata"] = {"type": "object"}
            schema["additionalProperties"] = False
            schemas[f"{crd['group']}/{version['name']}", crd["names"]["kind"]] = schema
    return schemas


def faults(document, schemas):
    """What is wrong with a document, in lines."""
    schema = schemas.get((document.get("apiVersion"), document.get("kind")))
    if schema is None:
        try:
            kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
        except kubernetes_validate.ValidationError as error:
            return [f"{'.'.join(map(str, error.path))}: {error.message}"]
        except kubernetes_validate.SchemaNotFoundError as error:
            return [str(error)]
        return []
    found = jsonschema.Draft202012Validator(schema).iter_errors(document)
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in found]


def broken(document):
    """The document with an unknown field, with another kind of its first object, and without its kind."""
    unknown = copy.deepcopy(document)
    inner = next((value for key, value in unknown.items() if key not in ("metadata",) and isinstance(value, dict)), unknown)
    inner["noSuchField"] = [1]
    yield "an unknown field", unknown
    wrong = copy.deepcopy(document)
    wrong["metadata" if "spec" not in wrong else "spec"] = "a text"
    yield "a text in place of an object", wrong
    nameless = copy.deepcopy(document)
    nameless["kind"] = "NoSuchKind"
    yield "an unknown kind", nameless


def main():
    split = sys.argv.index("--")
    schemas = read_crds(sys.argv[1:split])
    bad = count = 0
    for path in sys.argv[split + 1 :]:
        for document in yaml.safe_load_all(open(path)):
            count += 1
            name = f"{path}: {document.get('kind')} {document.get('metadata', {}).get('name')}"
            lines = faults(document, schemas)
            bad += len(lines)
            for line in lines:
                print(f"{name}: {line}", file=sys.stderr)
            for what, other in [] if lines else broken(document):
                # Any text may be in the data of a ConfigMap.
                if what == "an unknown field" and document["kind"] == "ConfigMap":
                    continue
                if not faults(other, schemas):
                    bad += 1
                    print(f"{name}: the check does not find {what}", file=sys.stderr)
    if bad:
        sys.exit(1)
    print(f"kubernetes: {count} objects are as their schemas say")


main()
