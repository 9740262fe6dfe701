"""The choice of a version, and the retries of ApiVersions in lower versions."""

from __future__ import annotations

import contextlib
import itertools

import pytest

from aiokafka_lite.errors import ErrorCode, ProtocolError, UnsupportedVersion
from aiokafka_lite.protocol.codec import encode_message
from aiokafka_lite.protocol.messages import (
    REQUESTS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FinalizedFeatureKey,
    MetadataRequest,
    ProduceRequest,
    ProduceResponse,
    SaslHandshakeResponse,
)
from aiokafka_lite.protocol.schema import Since, Versions
from aiokafka_lite.protocol.versions import VersionTable, decode_api_versions, version_after_refusal
from tests.case_notes import case

REFUSED = int(ErrorCode.UNSUPPORTED_VERSION)


def table(**ranges: tuple[int, int]) -> VersionTable:
    keys = {"metadata": 3, "produce": 0, "fetch": 1}
    apis = [ApiVersion(api_key=keys[name], min_version=low, max_version=high) for name, (low, high) in ranges.items()]
    return VersionTable.from_response(ApiVersionsResponse(error_code=0, api_keys=apis), "broker 1")


def test_the_newest_common_version_is_picked() -> None:
    assert table(metadata=(0, 9)).pick(MetadataRequest) == 9
    assert table(metadata=(0, 99)).pick(MetadataRequest) == MetadataRequest.versions.last
    assert table(metadata=(13, 99)).pick(MetadataRequest) == 13
    assert table(produce=(0, 3)).pick(ProduceRequest) == 3


def test_at_most_limits_the_version() -> None:
    assert table(fetch=(4, 17)).pick(FetchRequest, at_most=12) == 12
    assert table(fetch=(4, 11)).pick(FetchRequest, at_most=12) == 11
    assert table(fetch=(13, 17)).maximum(FetchRequest, at_most=12) is None
    with pytest.raises(UnsupportedVersion, match="this client supports 4 to 12, broker 1 supports 13 to 17"):
        table(fetch=(13, 17)).pick(FetchRequest, at_most=12)


def test_no_common_version_names_the_api_and_both_ranges() -> None:
    with pytest.raises(
        UnsupportedVersion, match=r"Produce \(API key 0\): this client supports 3 to 13, broker 1 supports 0 to 2"
    ):
        table(produce=(0, 2)).pick(ProduceRequest)
    with pytest.raises(UnsupportedVersion, match="broker 1 supports only 99"):
        table(produce=(99, 99)).pick(ProduceRequest)
    with pytest.raises(UnsupportedVersion, match="broker 1 supports no version"):
        table(produce=(5, 4)).pick(ProduceRequest)


def test_an_unsupported_api_is_named() -> None:
    with pytest.raises(UnsupportedVersion, match=r"broker 1 does not support Fetch \(API key 1\)"):
        table(metadata=(0, 9)).pick(FetchRequest)
    assert table().maximum(FetchRequest) is None
    assert table().offered(FetchRequest) is None


def test_support_requires_both_sides() -> None:
    offered = table(metadata=(10, 99))
    assert not offered.supports(MetadataRequest.RELIABLE_EPOCHS)  # version 9
    assert offered.supports(MetadataRequest.BY_TOPIC_ID)  # version 12
    assert offered.offered(MetadataRequest) == Versions(10, 99)


def test_a_table_of_all_our_versions() -> None:
    ours = VersionTable.newest(REQUESTS, "ourselves")
    assert all(ours.pick(request) == request.versions.last for request in REQUESTS.values())
    assert repr(ours) == f"<VersionTable of ourselves: {len(REQUESTS)} APIs>"


# Coming down after UNSUPPORTED_VERSION.


def refusal(*ranges: tuple[int, int]) -> ApiVersionsResponse:
    apis = [ApiVersion(api_key=18, min_version=low, max_version=high) for low, high in ranges]
    return ApiVersionsResponse(
        error_code=REFUSED, api_keys=[ApiVersion(api_key=0, min_version=0, max_version=1), *apis]
    )


def test_the_newest_common_version_is_sent_next() -> None:
    assert version_after_refusal(4, refusal((0, 3)), "broker 1") == 3
    assert version_after_refusal(4, refusal((0, 1)), "broker 1") == 1


def test_version_0_is_sent_next_if_the_broker_names_no_version() -> None:
    assert version_after_refusal(4, refusal(), "broker 1") == 0
    assert version_after_refusal(4, ApiVersionsResponse(error_code=REFUSED, api_keys=[]), "broker 1") == 0


def test_version_0_is_sent_to_a_broker_that_refuses_its_own_version() -> None:
    assert version_after_refusal(4, refusal((0, 4)), "broker 1") == 0


def test_the_retries_end() -> None:
    with pytest.raises(
        UnsupportedVersion, match=r"supports 0 to 4, broker 1 refused version 0 and supports no version"
    ):
        version_after_refusal(0, refusal(), "broker 1")
    with pytest.raises(UnsupportedVersion, match="refused version 4 and supports 5 to 9"):
        version_after_refusal(4, refusal((5, 9)), "broker 1")


def test_each_next_version_is_lower() -> None:
    for offer in itertools.product(range(7), range(7)):
        with case(offer):
            version = ApiVersionsRequest.versions.last
            with contextlib.suppress(UnsupportedVersion):
                while True:
                    following = version_after_refusal(version, refusal(offer), "broker 1")
                    assert 0 <= following < version
                    version = following


# Reading the refusal itself.


def encoded(response: ApiVersionsResponse, version: int) -> bytes:
    out = bytearray()
    encode_message(response, version, out)
    return bytes(out)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_refusal_is_read_in_version_0(version: int) -> None:
    wire = encoded(refusal((0, 2)), 0)
    assert decode_api_versions(b"hdr" + wire, 3, version) == (refusal((0, 2)), 3 + len(wire))


@pytest.mark.parametrize("rest", [b"", b"\1", b"\0\0\0\7", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\1\0"])
def test_a_refusal_with_malformed_bytes_has_no_versions(rest: bytes) -> None:
    wire = b"\0\x23" + rest
    assert decode_api_versions(wire, 0, 4) == (ApiVersionsResponse(error_code=REFUSED, api_keys=[]), len(wire))


def test_a_response_without_an_error_code_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        decode_api_versions(b"\0", 0, 4)


def test_other_responses_are_decoded_in_the_version_of_the_request() -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[], finalized_features_epoch=7)
    assert decode_api_versions(encoded(response, 4), 0, 4)[0] == response
    with pytest.raises(ProtocolError):
        decode_api_versions(encoded(response, 4), 0, 0)


def test_a_feature_is_supported_from_its_first_version_on() -> None:
    assert isinstance(FetchRequest.TOPIC_IDS, Since)
    for newest, supported in ((FetchRequest.TOPIC_IDS.before, False), (FetchRequest.TOPIC_IDS, True), (99, True)):
        assert table(fetch=(0, newest)).supports(FetchRequest.TOPIC_IDS) is supported
    assert not table().supports(FetchRequest.TOPIC_IDS)


def test_a_required_feature_names_the_release_that_brought_it() -> None:
    with pytest.raises(UnsupportedVersion, match=r"compression='zstd' requires Kafka 2\.1 or newer, .*broker 1"):
        table(produce=(0, 6)).require(ProduceRequest.ZSTD, "compression='zstd'")
    table(produce=(0, 7)).require(ProduceRequest.ZSTD, "zstd")


def test_every_feature_begins_in_a_supported_version() -> None:
    features = [feature for cls in REQUESTS.values() for feature in vars(cls).values() if isinstance(feature, Since)]
    assert len(features) > 40
    for feature in features:
        assert feature in feature.message.versions
        assert getattr(feature.message, feature.name) is feature


def test_the_client_pauses_only_if_the_broker_did_not_delay_the_response() -> None:
    response = ProduceResponse(responses=[], throttle_time_ms=100)
    assert [response.client_throttle_ms(version) for version in (5, 6, 13)] == [0, 100, 100]
    assert SaslHandshakeResponse(error_code=0, mechanisms=[]).client_throttle_ms(1) == 0


def test_brokers_with_the_same_versions_share_the_memory_of_their_tables() -> None:
    first, second = table(produce=(3, 13)), table(produce=(3, 13))
    assert first.offered(ProduceRequest) is second.offered(ProduceRequest)


def test_a_table_has_the_levels_of_finalized_features() -> None:
    feature = FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=1)
    agreed = ApiVersionsResponse(error_code=0, api_keys=[], finalized_features_epoch=0, finalized_features=[feature])
    assert VersionTable.from_response(agreed, "broker 1").level("transaction.version") == 2
    assert VersionTable.from_response(agreed, "broker 1").level("group.version") == 0
    # Without an epoch, the list of features has no meaning.
    agreed.finalized_features_epoch = -1
    assert VersionTable.from_response(agreed, "broker 1").level("transaction.version") == 0
