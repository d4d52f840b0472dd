"""The parts of a name by the rules, one name after the other."""

import re

from features.common.names import MAX_NAME_CHARS, RULES, UNFIT, NameParts


def parse_name(name: str) -> NameParts:
    """The parts of `name`; all None for a name of unknown form."""
    if len(name) > MAX_NAME_CHARS or re.search(UNFIT, name):
        return NameParts()
    for rule in RULES:
        match = re.match(rule.pattern, name) if rule.holds in name else None
        if match is not None:
            dataset = "".join(p if isinstance(p, str) else match[p] for p in rule.dataset)
            tier, campaign = (match[group] if group else "" for group in (rule.tier, rule.campaign))
            return NameParts(rule.experiment, dataset or None, tier or None, campaign or None)
    return NameParts()
