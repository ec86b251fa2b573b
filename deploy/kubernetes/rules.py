"""The alerts of ``deploy/prometheus/rules.yml`` as the PrometheusRule of the component monitoring.

Kustomize takes no file from outside its folder, and the alerts stand once: ``python -m deploy.kubernetes.rules`` writes
them anew after each change.
"""

from pathlib import Path

RULES = Path(__file__).parent.parent / "prometheus" / "rules.yml"
WRITTEN = Path(__file__).parent / "components" / "monitoring" / "rules.yaml"
_HEAD = """\
# deploy/prometheus/rules.yml as a PrometheusRule, written by python -m deploy.kubernetes.rules: change it there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: ldp-worker
spec:
"""


def manifest(rules: str) -> str:
    r"""Returns the manifest of a file of rules, whose groups are its specification.

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
