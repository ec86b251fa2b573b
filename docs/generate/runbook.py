"""The pages of the runbook, from the annotations of the alerts."""

import re

from docs.generate.alerts import rules, summary
from docs.generate.markdown import fill

_WORDS = re.compile(
    r"`.*?`|docs/(?P<page>[\w/-]+)\.md(?P<anchor>#[\w-]+)?"
    r"|(?P<code>/readyz|/healthz|\w+_\w+|ldp-worker [a-z-]+|(?:\*|[a-z]\w*)(?:\.[a-z]\w+)+|Ldp[A-Z]\w+)"
)


def page(name: str) -> str:
    """Returns the page of the alerts whose `runbook_url` names it, such as "runbook.md"."""
    alerts = [rule for rule in rules() if "alert" in rule]
    sections = [
        f"## {rule['alert']}\n\n**Alert:** {summary(notes)}.\n\n"
        f"{marked(notes['description'])}\n\n**Remedy:** {marked(notes['remedy'])}"
        for rule in alerts
        if (notes := rule["annotations"])["runbook_url"].startswith(f"docs/operate/{name}#")
    ]
    return fill(name, sections="\n\n".join(sections))


def marked(text: str) -> str:
    """Formats an annotation's paths of pages as links, and its names as code.

    Example:
        >>> print(marked("See docs/guides/poisoning.md#effect and process.ended."))
        See [Poisoning](../guides/poisoning.md#effect) and `process.ended`.
    """
    return _WORDS.sub(_mark, text)


def _mark(found: re.Match[str]) -> str:
    if found["page"]:
        name = found["page"].rpartition("/")[2].replace("-", " ").capitalize()
        return f"[{name}](../{found['page']}.md{found['anchor'] or ''})"
    return f"`{found['code']}`" if found["code"] else found[0]
