"""How librdkafka connects: the settings of a `ClientSecurity`, and its token when librdkafka asks for one."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from klog.errors import KlogError
from klog.net.login import read_token
from klog.security.bearer import OAUTHBEARER
from klog.security.client_security import PROTOCOL, ClientSecurity

_log = logging.getLogger(__name__)


def librdkafka_security(security: ClientSecurity) -> dict[str, Any]:
    """Settings for confluent-kafka; none for an open cluster."""
    if security.mechanism != OAUTHBEARER:
        return dict(security.properties())
    return {
        PROTOCOL: security.protocol,
        "sasl.mechanisms": OAUTHBEARER,
        "oauth_cb": partial(_token, security),
        **security.tls_properties(),
    }


def _token(security: ClientSecurity, _: str) -> tuple[str, float]:
    """What ``oauth_cb`` returns: the token, and when it ends. librdkafka asks again before that, and after an error."""
    try:
        return read_token(security)
    except KlogError as error:
        _log.error("not logged in: %s", error.message)  # librdkafka does not pass it on
        raise
