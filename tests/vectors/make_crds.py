"""Makes crds.schema.json: the custom resources of deploy/kubernetes as JSON Schemas that refuse what they do not name.

pip install cloudcoil-models-keda==2.16.1.0 cloudcoil-models-prometheus-operator==0.80.1.0
python tests/vectors/make_crds.py > tests/vectors/crds.schema.json
"""

import json
from typing import Any

from cloudcoil.models.keda import v1alpha1 as keda
from cloudcoil.models.prometheus_operator import v1 as monitoring

KINDS = {
    "keda.sh/v1alpha1": [keda.ScaledObject, keda.TriggerAuthentication],
    "monitoring.coreos.com/v1": [monitoring.PodMonitor, monitoring.PrometheusRule],
}
META = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "namespace": {"type": "string"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["name"],
    "additionalProperties": False,
}


def strict(node: Any) -> Any:
    """The same without words, each object closed, and no field null: left out is left out."""
    if isinstance(node, list):
        return [strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "anyOf" in node:
        kinds = [kind for kind in node["anyOf"] if kind != {"type": "null"}]
        node = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    closed = {}
    for key, value in node.items():
        if key in ("properties", "$defs"):
            closed[key] = {name: strict(inner) for name, inner in value.items()}
        elif key not in ("title", "description", "default") and "(?i)" not in str(
            value
        ):  # no pattern of Python's
            closed[key] = strict(value)
    if "properties" in closed:
        closed.setdefault("additionalProperties", False)
    return closed


def reached(name: str, defs: dict[str, Any], seen: set[str]) -> None:
    """Adds a definition and all that it needs."""
    if name not in seen:
        seen.add(name)
        for part in json.dumps(defs[name]).split('"#/$defs/')[1:]:
            reached(part.split('"')[0], defs, seen)


schemas = {}
for version, models in KINDS.items():
    for model in models:
        schema = strict(model.model_json_schema(by_alias=True))
        schema["properties"]["metadata"] = META
        schema["properties"].pop("status", None)
        schema["properties"] |= {"apiVersion": {"const": version}, "kind": {"const": model.__name__}}
        schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
        needed: set[str] = set()
        for part in json.dumps(schema["properties"]).split('"#/$defs/')[1:]:
            reached(part.split('"')[0], schema["$defs"], needed)
        schema["$defs"] = {name: schema["$defs"][name] for name in sorted(needed)}
        schemas[f"{version} {model.__name__}"] = schema
comment = (
    "Made from the models of KEDA 2.16.1 and prometheus-operator 0.80.1 in the PyPI packages cloudcoil-models-keda"
    " 2.16.1.0 and cloudcoil-models-prometheus-operator 0.80.1.0 (Apache-2.0), as tests/vectors/make_crds.py says."
)
print(json.dumps({"$comment": comment, **schemas}, separators=(",", ":"), sort_keys=True))
