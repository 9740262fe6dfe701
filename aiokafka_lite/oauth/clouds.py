"""Tokens that a cloud gives to its own machines: Amazon MSK with IAM, AWS STS, and managed identities of Azure."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from .. import disclosure
from ..errors import AuthenticationError, ConfigurationError, ConnectionLost, harmless
from ..extras import extra
from ..settings.security import Secret
from .endpoint import CachedToken, TokenEndpoint, check_endpoint, lifetime_of


class AwsMskIam:
    """Signs tokens for Amazon MSK with IAM, by the credentials that AWS's SDK finds. Needs the extra ``aws``.

    ``region`` is the region of the cluster, such as ``"eu-central-1"``. The constructor raises ConfigurationError if
    the extra is not installed.
    """

    def __init__(self, region: str) -> None:
        self._region = region
        self._signer = extra("aws_msk_iam_sasl_signer.MSKAuthTokenProvider", "aws")  # a module, despite its name

    def __repr__(self) -> str:
        return f"<AwsMskIam {self._region!r}>"

    def __call__(self) -> str:
        token, _ = self._signer.generate_auth_token(self._region)
        return Secret(token)


_STS_REFUSALS = ("AccessDenied", "OutboundWebIdentityFederationDisabled", "InvalidClientTokenId", "ExpiredToken")
_LONGEST_REASON = 200


class AwsSts(CachedToken):
    """Requests signed JWTs for a service outside of AWS, by ``GetWebIdentityToken`` of AWS STS.

    ``audience`` is what the service expects, such as ``"https://confluent.cloud/oidc"``. The program's own credentials
    are those that AWS's SDK finds: a role of EC2, ECS, EKS or Lambda, or the environment. The account must have turned
    outbound identity federation on. ``signing_algorithm`` is ``"ES384"`` or ``"RS256"``; ``lifetime`` is from 60 to
    3600 seconds, and ``timeout`` is in seconds. ``endpoint_url`` is another address of STS. Needs the extra ``aws``.

    A call raises AuthenticationError if STS refuses, and ConnectionLost for any other failure; then the client tries
    again. The constructor raises ConfigurationError.
    """

    def __init__(
        self,
        region: str,
        audience: str,
        *,
        signing_algorithm: str = "ES384",
        lifetime: int = 300,
        timeout: float = 10.0,
        endpoint_url: str | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("region", region), ("audience", audience)):
            if not isinstance(value, str) or not value:
                raise ConfigurationError(f"{name} must be a string that is not empty")
        if signing_algorithm not in ("ES384", "RS256"):
            raise ConfigurationError("signing_algorithm must be one of ES384, RS256")
        if not isinstance(lifetime, int) or not 60 <= lifetime <= 3600:
            raise ConfigurationError(f"lifetime must be a whole number of seconds from 60 to 3600, got {lifetime!r}")
        if endpoint_url is not None:
            check_endpoint(endpoint_url)
        self._region = region
        self._request_fields = {
            "Audience": [audience],
            "SigningAlgorithm": signing_algorithm,
            "DurationSeconds": lifetime,
        }
        once = extra("botocore.config", "aws").Config(
            connect_timeout=timeout, read_timeout=timeout, retries={"total_max_attempts": 1}
        )
        session = extra("botocore.session", "aws").get_session()
        self._sts: Any = session.create_client("sts", region_name=region, endpoint_url=endpoint_url, config=once)
        if not hasattr(self._sts, "get_web_identity_token"):
            raise ConfigurationError("botocore is too old for GetWebIdentityToken; run: pip install -U botocore")

    def __repr__(self) -> str:
        return f"<AwsSts {self._region!r}>"

    def _request(self) -> tuple[str, float]:
        errors = extra("botocore.exceptions", "aws")
        try:
            answer = self._sts.get_web_identity_token(**self._request_fields)
            token, lifetime = str(answer["WebIdentityToken"]), answer["Expiration"].timestamp() - time.time()
        except errors.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            reason = harmless(str(error), _LONGEST_REASON)
            if code in _STS_REFUSALS:
                raise AuthenticationError(f"AWS STS refused to issue a token: {reason}") from None
            raise ConnectionLost(f"cannot get a token from AWS STS: {reason}", sent=False) from None
        except errors.NoCredentialsError:
            raise AuthenticationError("AWS STS: AWS's SDK finds no credentials of this program") from None
        except (errors.BotoCoreError, KeyError) as error:
            reason = harmless(str(error), _LONGEST_REASON)
            raise ConnectionLost(f"cannot get a token from AWS STS: {reason}", sent=False) from None
        return token, lifetime


_IMDS = "http://169.254.169.254/metadata/identity/oauth2/token"
"""The metadata service of Azure's virtual machines. The address is the same on each machine."""
_IMDS_VERSION = "2018-02-01"
_APP_SERVICE_VERSION = "2019-08-01"


class AzureManagedIdentity(CachedToken):
    """Requests tokens for the managed identity of a machine or an application in Azure.

    ``resource`` is what the token is for: ``"https://NAMESPACE.servicebus.windows.net"`` for Event Hubs. ``client_id``
    chooses a user-assigned identity. On virtual machines and AKS, the metadata service (IMDS) answers. In App Service,
    Functions and Container Apps, it is the endpoint of ``IDENTITY_ENDPOINT`` and ``IDENTITY_HEADER`` in the
    environment. ``url`` is another address of the metadata service; ``timeout`` is in seconds. The proxies of the
    environment are not used. Workload identities of Kubernetes are an assertion:
    ``ClientCredentials(url, client_id, assertion=TokenFromFile(path))``.

    A call raises AuthenticationError if there is no such identity. It raises ConnectionLost for any other failure, and
    the client tries again. The constructor raises ConfigurationError.
    """

    def __init__(
        self, resource: str, *, client_id: str | None = None, url: str | None = None, timeout: float = 10.0
    ) -> None:
        super().__init__()
        if not isinstance(resource, str) or not resource:
            raise ConfigurationError("resource must be a string that is not empty")
        app_service, secret = os.environ.get("IDENTITY_ENDPOINT"), os.environ.get("IDENTITY_HEADER")
        self._headers = {"Metadata": "true"}
        self._secrets: list[str] = []
        version = _IMDS_VERSION
        if url is None and app_service and secret:
            url, version = app_service, _APP_SERVICE_VERSION
            self._secrets = [Secret(secret)]
            self._headers = {"X-IDENTITY-HEADER": Secret(secret).encode().decode()}
        url = url or _IMDS
        check_endpoint(url)
        query = {"api-version": version, "resource": resource, **({"client_id": client_id} if client_id else {})}
        self._named = disclosure.url(url)
        self._url = f"{url}?{urlencode(query)}"
        self._endpoint = TokenEndpoint(self._named, timeout=timeout, uses_proxy=False)

    def __repr__(self) -> str:
        return f"<AzureManagedIdentity {self._named}>"

    def _request(self) -> tuple[str, float]:
        answer = self._endpoint.request(self._url, None, self._headers, self._secrets)
        lifetime = _number(answer.get("expires_in"))
        if not lifetime and "expires_on" in answer:  # App Service gives the second in which the token ends
            lifetime = _number(answer["expires_on"]) - time.time()
        return self._endpoint.token(answer), lifetime


def _number(value: object) -> float:
    """Read a number, which Azure sends as a string."""
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)
    return lifetime_of(value)
