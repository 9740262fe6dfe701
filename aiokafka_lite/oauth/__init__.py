"""Token providers for OAUTHBEARER: OIDC client credentials (KIP-768, KIP-1258), files, AWS and Azure.

A provider is a function without arguments that returns a token; ``sasl_oauth_token_provider`` takes any such function.
The providers here are not async: the client calls them in a thread, once for each login of each connection.
"""

from .assertion import SignedAssertion
from .client_credentials import ClientCredentials
from .clouds import AwsMskIam, AwsSts, AzureManagedIdentity
from .sources import TokenFromFile

__all__ = ["AwsMskIam", "AwsSts", "AzureManagedIdentity", "ClientCredentials", "SignedAssertion", "TokenFromFile"]
