"""Copies the Prometheus rules into a PrometheusRule manifest.

Kustomize reads only files in its own folder. Run ``python -m deploy.kubernetes.rules`` after each change to the rules.
"""

from pathlib import Path

RULES = Path(__file__).parent.parent / "prometheus" / "rules.yml"
WRITTEN = Path(__file__).parent / "components" / "monitoring" / "rules.yaml"
_HEAD = """\
# Generated from deploy/prometheus/rules.yml by python -m deploy.kubernetes.rules; do not edit.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: ldp-worker
spec:
"""


def manifest(rules: str) -> str:
    r"""Returns the PrometheusRule manifest of a rules file.

    Example:
        >>> print(manifest("groups:\n- name: all\n\n  rules: []\n").partition("spec:")[2], end="")
        <BLANKLINE>
          groups:
          - name: all
        <BLANKLINE>
            rules: []
    """
    return _HEAD + "".join(f"  {line}" if line.strip() else line for line in rules.splitlines(keepends=True))


if __name__ == "__main__":
    WRITTEN.write_text(manifest(RULES.read_text(encoding="utf-8")), encoding="utf-8")
