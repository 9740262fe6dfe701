"""The decision by ACLs: patterns, principals, hosts, implied operations, and ACLs that deny."""

from __future__ import annotations

import pytest

from aiokafka_lite.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from aiokafka_lite.embedded.security.acl_authorizer import AclAuthorizer

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
ALICE, BOB = "User:alice", "User:bob"
HOST = "127.0.0.1"
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
PREFIXED = AclPatternType.PREFIXED


def acl(
    name: str,
    operation: AclOperation = READ,
    principal: str = ALICE,
    *,
    deny: bool = False,
    host: str = "*",
    pattern: AclPatternType = AclPatternType.LITERAL,
) -> AclBinding:
    permission = AclPermission.DENY if deny else AclPermission.ALLOW
    return AclBinding(TOPIC, name, principal, operation, permission, host, pattern)


def acls(*bindings: AclBinding, super_users: tuple[str, ...] = (), default: bool = False) -> AclAuthorizer:
    store = AclAuthorizer(super_users, allow_without_acl=default)
    for binding in bindings:
        store.create(binding)
    return store


def may(store: AclAuthorizer, operation: AclOperation, name: str, principal: str = ALICE, host: str = HOST) -> bool:
    return store.allows(principal, host, operation, TOPIC, name)


def test_an_acl_allows_its_principal_its_operation_on_its_resource() -> None:
    store = acls(acl("orders"))
    assert may(store, READ, "orders")
    assert not may(store, WRITE, "orders")
    assert not may(store, READ, "orders", BOB)
    assert not may(store, READ, "orders2")
    assert not store.allows(ALICE, HOST, READ, GROUP, "orders")


def test_without_acls_the_default_decides_and_any_acl_of_the_resource_replaces_it() -> None:
    store = acls(acl("orders"), default=True)
    assert may(store, WRITE, "invoices", BOB)
    assert not may(store, WRITE, "orders", ALICE)
    assert not may(acls(), READ, "invoices")


@pytest.mark.parametrize(("name", "covered"), [("orders", True), ("orders-eu", True), ("order", False), ("x", False)])
def test_a_prefixed_pattern_covers_names_that_begin_with_it(name: str, covered: bool) -> None:
    assert may(acls(acl("orders", pattern=PREFIXED)), READ, name) is covered


def test_the_literal_pattern_of_a_star_covers_every_name_and_a_prefixed_one_does_not() -> None:
    assert may(acls(acl("*")), READ, "orders")
    assert not may(acls(acl("*", pattern=PREFIXED)), READ, "orders")


def test_any_user_and_any_host() -> None:
    assert may(acls(acl("orders", principal="User:*")), READ, "orders", BOB)
    store = acls(acl("orders", host=HOST))
    assert may(store, READ, "orders")
    assert not may(store, READ, "orders", host="10.0.0.1")


def test_an_acl_that_denies_outweighs_all_that_allow() -> None:
    store = acls(acl("orders"), acl("*", AclOperation.ALL), acl("ord", deny=True, pattern=PREFIXED))
    assert not may(store, READ, "orders")
    assert may(store, WRITE, "orders")


def test_operations_that_change_or_read_allow_describing() -> None:
    for operation in (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALL):
        assert may(acls(acl("orders", operation)), DESCRIBE, "orders"), operation
    for operation in (AclOperation.CREATE, AclOperation.ALTER_CONFIGS):
        assert not may(acls(acl("orders", operation)), DESCRIBE, "orders"), operation
    assert may(acls(acl("orders", AclOperation.ALTER_CONFIGS)), AclOperation.DESCRIBE_CONFIGS, "orders")


def test_an_acl_that_denies_reading_still_leaves_describing() -> None:
    store = acls(acl("orders", READ, deny=True), acl("orders", WRITE))
    assert may(store, DESCRIBE, "orders")
    assert not may(store, READ, "orders")


def test_a_super_user_may_do_everything() -> None:
    store = acls(acl("orders", AclOperation.ALL, "User:*", deny=True), super_users=(BOB,))
    assert may(store, WRITE, "orders", BOB)
    assert not may(store, WRITE, "orders", ALICE)


def test_a_decision_follows_the_next_change_of_the_acls() -> None:
    store = acls()
    assert not may(store, READ, "orders")
    store.create(acl("orders"))
    assert may(store, READ, "orders")
    store.delete(store.find(AclFilter()))
    assert not may(store, READ, "orders")


def test_writing_to_at_least_one_topic() -> None:
    def any_write(*bindings: AclBinding, **options: bool) -> bool:
        return acls(*bindings, **options).allows_any(ALICE, HOST, WRITE, TOPIC)

    assert not any_write()
    assert any_write(default=True)
    assert any_write(acl("orders", WRITE))
    assert not any_write(acl("orders", READ))
    assert not any_write(acl("orders", WRITE, BOB))
    assert any_write(acl("*", WRITE), acl("orders", WRITE, deny=True))
    assert not any_write(acl("orders", WRITE), acl("orders", WRITE, deny=True))
    assert not any_write(acl("orders", WRITE), acl("ord", WRITE, deny=True, pattern=PREFIXED))
    assert any_write(acl("ord", WRITE, pattern=PREFIXED), acl("orders", WRITE, deny=True))
    assert not any_write(acl("*", WRITE), acl("*", WRITE, deny=True))


FOUND = [
    acl("orders"),
    acl("orders", WRITE, BOB, host=HOST),
    acl("ord", pattern=PREFIXED),
    acl("*"),
    AclBinding(GROUP, "orders", ALICE, READ, AclPermission.DENY),
]


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        (AclFilter(), FOUND),
        (AclFilter(TOPIC), FOUND[:4]),
        (AclFilter(resource_name="orders"), [FOUND[0], FOUND[1], FOUND[4]]),
        (AclFilter(TOPIC, "orders", pattern_type=AclPatternType.MATCH), FOUND[:4]),
        (AclFilter(TOPIC, "ord", pattern_type=PREFIXED), [FOUND[2]]),
        (AclFilter(TOPIC, pattern_type=PREFIXED), [FOUND[2]]),
        (AclFilter(principal=BOB), [FOUND[1]]),
        (AclFilter(host=HOST), [FOUND[1]]),
        (AclFilter(host="*", operation=WRITE), []),
        (AclFilter(permission=AclPermission.DENY), [FOUND[4]]),
        (AclFilter.of(FOUND[2]), [FOUND[2]]),
    ],
)
def test_a_filter_finds_the_acls_with_its_values(pattern: AclFilter, matching: list[AclBinding]) -> None:
    assert acls(*FOUND).find(pattern) == matching


def test_a_wrong_part_of_an_acl_is_named() -> None:
    with pytest.raises(TypeError, match="operation must be an AclOperation, got 'READ'"):
        AclBinding(TOPIC, "orders", ALICE, "READ")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="principal must be a string, got None"):
        AclBinding(TOPIC, "orders", None, READ)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="host must be a string, got 1"):
        AclFilter(host=1)  # type: ignore[arg-type]
