"""Mutual proof of two brokers that they know the cluster's secret (rule R10): klog's own keys 10018 and 10019.

    Greet   asker's id, expected answerer's id, a nonce     answered: a nonce, and the answerer's proof
    Prove   the asker's proof                               answered: yes, or CLUSTER_AUTHORIZATION_FAILED

The asker need not wait for Prove's answer: requests are answered in order, so whatever it sends next arrives after the
proof was checked.
"""

from typing import Final

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32

from klog.errors import ClusterAuthorizationFailed, MalformedRequest
from klog.protocol.apis import ApiKey
from klog.protocol.schema import Request, Response
from klog.secret import Challenge, Secret

NONCE_BYTES: Final = 32


class GreetRequest(Request, key=ApiKey.GREET):
    """``answerer_id``: the broker expected at this address."""

    broker_id: i32
    answerer_id: i32
    nonce: bytes


class GreetResponse(Response, key=ApiKey.GREET):
    """Empty ``nonce`` and ``proof`` with an error."""

    error_code: ErrorCode
    nonce: bytes
    proof: bytes


class ProveRequest(Request, key=ApiKey.PROVE):
    proof: bytes


class ProveResponse(Response, key=ApiKey.PROVE):
    error_code: ErrorCode


class Introduction:
    """The asker's side of one connection: `greeting`, then `proof` from its answer, then `check`."""

    def __init__(self, secret: Secret, asker_id: int, answerer_id: int, nonce: bytes) -> None:
        """``nonce``: `NONCE_BYTES` drawn for this connection."""
        self._secret = secret
        self._asker_id = asker_id
        self._answerer_id = answerer_id
        self._nonce = nonce

    def greeting(self) -> GreetRequest:
        return GreetRequest(broker_id=i32(self._asker_id), answerer_id=i32(self._answerer_id), nonce=self._nonce)

    def proof(self, answer: GreetResponse) -> ProveRequest:
        """Raises ClusterAuthorizationFailed if another broker answered, or one of another cluster."""
        if answer.error_code.value:
            raise ClusterAuthorizationFailed(
                f"expected broker {self._answerer_id} there; the process that listens answers {answer.error_code.name}"
            )
        if len(answer.nonce) != NONCE_BYTES:
            raise MalformedRequest(f"a nonce of {len(answer.nonce)} bytes")
        challenge = Challenge(self._asker_id, self._answerer_id, self._nonce, bytes(answer.nonce))
        if not challenge.is_answered(self._secret, bytes(answer.proof)):
            raise ClusterAuthorizationFailed(
                f"the process at the address of broker {self._answerer_id} does not know this cluster's secret"
            )
        return ProveRequest(proof=challenge.asker_proof(self._secret))

    def check(self, answer: ProveResponse) -> None:
        """Raises ClusterAuthorizationFailed."""
        if answer.error_code.value:
            raise ClusterAuthorizationFailed(
                f"broker {self._answerer_id} does not take our proof of the cluster's secret"
            )
