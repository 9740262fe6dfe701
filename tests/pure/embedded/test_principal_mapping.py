"""``ssl.principal.mapping.rules``: the rules and names of Kafka's own tests and documentation."""

from __future__ import annotations

import pytest

from aiokafka_lite.embedded.security.principal_mapping import NoMatchingRule, PrincipalMapping
from aiokafka_lite.errors import ConfigurationError

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    r"RULE:^CN=([^,]*),OU=(a\/b),.*$/\$$2\/$19$7/,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    "subject, name",
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("CN=Duke,OU=a/b,O=mycp", "$a/b/Duke9$7"),
        ("O=SME,CN=duKe", "duke"),
        ("OU=JavaSoft,O=Sun Microsystems", "OU=JavaSoft,O=Sun Microsystems"),
    ],
)
def test_the_first_rule_that_matches_the_whole_subject_counts(subject: str, name: str) -> None:
    assert PrincipalMapping(RULES).name(subject) == name


def test_without_a_rule_that_matches_there_is_no_principal() -> None:
    with pytest.raises(NoMatchingRule, match=r"no rule of ssl\.principal\.mapping\.rules matches 'O=mycp'"):
        PrincipalMapping("RULE:^CN=(.*?)/$1/").name("O=mycp")


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAULT/L",
        "RULE:CN=(.*?),OU=ORG.*/$1",
        "rule:^CN=(.*?),OU=ORG.*$/$1/",
        "RULE:^CN=(.*?),OU=ORG.*$/$1/LU",
        "RULE:^CN=(.*?),OU=ORG.*$/L",
        "RULE:^CN=((.*?)$/$1/",
    ],
)
def test_rules_that_kafka_refuses_are_refused(rules: str) -> None:
    with pytest.raises(ConfigurationError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping(rules)
