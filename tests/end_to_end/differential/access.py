"""Random requests about access: SCRAM users, delegation tokens, and ACLs, which these brokers do not have."""

from __future__ import annotations

from aiokafka_lite.protocol import messages as m
from tests.end_to_end.differential.scenario import Scenario


def describe_acls(scenario: Scenario) -> None:
    random = scenario.random
    kind, pattern, operation = random.choice([1, 2, 4, 99]), random.choice([1, 2, 3, 4]), random.choice([1, 3, 99])
    name = random.choice([None, scenario.topic()])
    scenario.add(
        m.DescribeAclsRequest,
        lambda side, _: m.DescribeAclsRequest(
            resource_type_filter=kind,
            resource_name_filter=name,
            pattern_type_filter=pattern,
            principal_filter=None,
            host_filter=None,
            operation=operation,
            permission_type=1,
        ),
    )


def create_acls(scenario: Scenario) -> None:
    random = scenario.random
    creations = [
        m.AclCreation(
            resource_type=random.choice([2, 3]),
            resource_name=scenario.topic(),
            resource_pattern_type=random.choice([3, 4]),
            principal="User:nemo",
            host="*",
            operation=random.choice([3, 4, 0]),
            permission_type=3,
        )
        for _ in range(scenario.several(2))
    ]
    scenario.add(m.CreateAclsRequest, lambda side, _: m.CreateAclsRequest(creations=creations))


def delete_acls(scenario: Scenario) -> None:
    kinds = [scenario.random.choice([1, 2, 0]) for _ in range(scenario.several(2))]
    filters = [
        m.DeleteAclsFilter(
            resource_type_filter=kind,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter="User:nemo",
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        for kind in kinds
    ]
    scenario.add(m.DeleteAclsRequest, lambda side, _: m.DeleteAclsRequest(filters=filters))


def alter_users(scenario: Scenario) -> None:
    random = scenario.random
    names = [f"{scenario.prefix}{name}" for name in ("alice", "bob", "carol")] + [""]
    deletions = [
        m.ScramCredentialDeletion(name=random.choice(names), mechanism=random.choice([1, 2, 3]))
        for _ in range(random.choice([0, 1, 2]))
    ]
    upsertions = [
        m.ScramCredentialUpsertion(
            name=random.choice(names),
            mechanism=random.choice([0, 1, 1, 2, 2]),
            iterations=random.choice([4095, 4096, 4096, 8192, 16384, 16385]),
            salt=b"salt",
            salted_password=b"p" * 32,
        )
        for _ in range(random.choice([0, 1, 2, 3]))
    ]
    scenario.add(
        m.AlterUserScramCredentialsRequest,
        lambda side, _: m.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions),
        changes=(f"{scenario.prefix}plain",),
    )


def describe_users(scenario: Scenario) -> None:
    random = scenario.random
    names = [f"{scenario.prefix}{random.choice(('alice', 'bob', 'nemo'))}" for _ in range(scenario.several(3))]
    scenario.add(
        m.DescribeUserScramCredentialsRequest,
        lambda side, _: m.DescribeUserScramCredentialsRequest(users=[m.UserName(name=name) for name in names]),
    )


def tokens(scenario: Scenario) -> None:
    """Add requests for tokens, which clients without a login may not send."""
    scenario.add(
        m.CreateDelegationTokenRequest,
        lambda side, _: m.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1),
    )
    scenario.add(
        m.RenewDelegationTokenRequest, lambda side, _: m.RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1)
    )
    scenario.add(
        m.ExpireDelegationTokenRequest,
        lambda side, _: m.ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1),
    )
    scenario.add(m.DescribeDelegationTokenRequest, lambda side, _: m.DescribeDelegationTokenRequest(owners=None))


ACCESS = (create_acls, describe_acls, delete_acls, alter_users, alter_users, describe_users, tokens)
