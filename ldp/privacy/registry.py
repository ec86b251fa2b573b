"""Entry of a stream for the DP Deployments Registry (registry.opendp.org).

The keys are those of ``schemas/deployments-schema.yaml`` of opendp/deployments-registry-data; the terms follow NIST SP
800-226.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TODO = "TODO"
_DATE = "1970-01-01"  # the schema requires a date
_MODEL = {
    "model_name": "Local",
    "model_name_details": "Each client randomizes its value before sending it.",
    "actors": "The client is trusted. The network, the operator and the readers of snapshots are not.",
    "release_type": "Many releases",
    "data_source_type": "Dynamic",
    "access_type": "Non-interactive",
}


def entry(name: str, document: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Returns the entry of a stream in YAML, without a line feed at the end.

    Args:
        name: name of the data product.
        document: public document of the stream.
        found: the stream's part of the output of ``ldp ledger --json``.

    Example:
        >>> losses = {"one_report": 1.0, "same_value": None, "any_history": None}
        >>> document = {"protocol": "grr", "epsilon": "1/1", "domain_size": 3}
        >>> text = entry("colours", document, {"privacy": None, "operator": losses, "snapshots": None})
        >>> text.splitlines()[0]
        'url_slug: "TODO"'
    """
    horizon = found["privacy"]["horizon"] if found["privacy"] else _TODO
    deployment = {
        "basic": _basic(name, document["domain_size"]),
        "dp_variant": {
            "variant_name": "Pure DP",
            "data_domain": f"Histories of values from 0 to {document['domain_size'] - 1}, one history per unit.",
            "unprotected_quantities": "Number and times of the reports, and which client sent them.",
        },
        "privacy_loss": _privacy_loss(found),
        "deployment_model": _MODEL
        | {"release_type_details": f"Snapshots every few seconds. Horizon: {horizon}."},
        "accounting": {
            "post_processing": "Unbiased estimates with confidence intervals, and consistency post-processing.",
            "composition": "Sequential composition over the reports of a horizon.",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": _TODO,
            "mechanisms": f"{_mechanism(document)} Library: ldp-worker. Coins come from the system's CSPRNG and are"
            " compared with exact rationals, without floating point.",
            "justification": _TODO,
        },
        "administrative": {"registry_authors": [_TODO]},
    }
    head = {"url_slug": _TODO, "status": "Draft", "tier": 3, "deployment": deployment}
    date = f'publication_date: "{_DATE}"'
    return "\n".join(_lines(head)).replace(date, f"{date}  # TODO: date of the first publication")


def _basic(name: str, d: int) -> dict[str, Any]:
    return {
        "name": name,
        "data_curators": [_TODO],
        "description": f"Frequencies of {d} values among the reports of a stream.",
        "intended_use": _TODO,
        "data_product_type": "Summary statistics",
        "data_product_region": _TODO,
        "publication_date": _DATE,
    }


def _privacy_loss(found: Mapping[str, Any]) -> dict[str, Any]:
    declared, losses = found["privacy"], found["operator"]
    total = losses["any_history"] if declared else losses["one_report"]
    return {
        "privacy_unit": declared["unit"] if declared else "report",
        "privacy_unit_details": _unit_details(declared),
        "privacy_parameters": {} if isinstance(total, str) else {"epsilon": total},
        "privacy_parameters_details": _parameter_details(found),
    }


def _unit_details(declared: Mapping[str, Any] | None) -> str:
    if declared is None:
        return f"Two values of one report. {_TODO}: the most reports of a unit; the document does not declare it."
    return (
        f"Any two histories of the values of one {declared['unit']}, with at most {declared['reports']} reports per"
        f" {declared['period']} in {declared['horizon']}."
    )


def _parameter_details(found: Mapping[str, Any]) -> str:
    losses = found["operator"]
    details = f"Against the operator: epsilon is {losses['one_report']} for one report"
    if found["privacy"]:
        details += (
            f", {losses['same_value']} for a value that stays, and {losses['any_history']} for any history"
        )
    if (reader := found["snapshots"]) and reader["epsilon"] is not None:
        details += (
            f". Against a reader of snapshots: epsilon is {reader['epsilon']} at delta {reader['delta']:g} for one"
            f" report. This reader {reader['adversary']}"
        )
    return f"{details}."


def _mechanism(document: Mapping[str, Any]) -> str:
    shown = {key: value for key, value in document.items() if key not in ("labels", "privacy", "domain_size")}
    return ", ".join(f"{key} {value}" for key, value in shown.items()) + "."


def _lines(node: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yields a mapping as lines of YAML; strings are in double quotes."""
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{key}:"
            yield from _lines(value, f"{indent}  ")
        elif isinstance(value, list):
            yield f"{indent}{key}:"
            yield from (f"{indent}  - {json.dumps(one, ensure_ascii=False)}" for one in value)
        else:
            yield f"{indent}{key}: {json.dumps(value, ensure_ascii=False)}"
