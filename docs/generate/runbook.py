"""Pages of the runbook, from the annotations of the alerts."""

import re

from docs.generate.alerts import rules, summary
from docs.generate.markdown import fill

_WORDS = re.compile(
    r"`.*?`|docs/(?P<page>[\w/-]+)\.md(?P<anchor>#[\w-]+)?"
    r"|(?P<code>/readyz|/healthz|\w+_\w+|ldp-worker [a-z-]+|(?:\*|[a-z]\w*)(?:\.[a-z]\w+)+|Ldp[A-Z]\w+)"
)


def page(name: str) -> str:
    """Returns the page of the alerts whose `runbook_url` names the page."""
    alerts = [rule for rule in rules() if "alert" in rule]
    urls = {
        rule["alert"]: rule["annotations"]["runbook_url"].removeprefix("docs/operate/") for rule in alerts
    }
    others = [f"[`{alert}`]({url})" for alert, url in urls.items() if not url.startswith(f"{name}#")]
    sections = [
        f"## {rule['alert']}\n\n**Alert:** {summary(notes)}.\n\n"
        f"{marked(notes['description'])}\n\n**Remedy:** {marked(notes['remedy'])}"
        for rule in alerts
        if (notes := rule["annotations"])["runbook_url"].startswith(f"docs/operate/{name}#")
    ]
    values = {"sections": "\n\n".join(sections)}
    return fill(name, **values, **({"others": ",\n".join(others)} if name == "runbook.md" else {}))


def marked(text: str) -> str:
    """Formats page paths in an annotation as links, and names as code.

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
