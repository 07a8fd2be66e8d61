"""Settings of TLS and SASL, by Kafka's names.

Each may be given per listener, as ``listener.name.NAME.SETTING`` with the listener's name in lower case, and those of a
SASL mechanism as ``listener.name.NAME.MECHANISM.SETTING`` (KIP-103, `BrokerConfig.of_listener`).
"""

from __future__ import annotations

from klog.config.setting import Setting, Table, at_least, every, not_empty, one_of

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
STORE_TYPES = ("PEM", "PKCS12", "JKS")

SECURITY_SETTINGS: Table = {
    Setting("ssl.keystore.type", "enum", "JKS", one_of(*STORE_TYPES)): (
        "Form of the key store: PEM, or PKCS12, which needs the package cryptography; klog does not read JKS.",
        "how the broker's certificate is read",
    ),
    Setting("ssl.keystore.location", "string", None): (
        "File with the broker's private key and its certificates, the broker's own first.",
        "TLS; read again when it changes",
    ),
    Setting("ssl.keystore.password", "string", None): ("Password of the key store.", "PKCS12"),
    Setting("ssl.key.password", "string", None): ("Password of the private key.", "PEM with an encrypted key"),
    Setting("ssl.keystore.key", "string", None): (
        "The private key itself as PEM (PKCS#8), in place of ssl.keystore.location.",
        "TLS",
    ),
    Setting("ssl.keystore.certificate.chain", "string", None): (
        "The certificates themselves as PEM, in place of ssl.keystore.location.",
        "TLS",
    ),
    Setting("ssl.truststore.type", "enum", "JKS", one_of(*STORE_TYPES)): (
        "Form of the trust store: PEM, or PKCS12, which needs the package cryptography; klog does not read JKS.",
        "how trusted certificates are read",
    ),
    Setting("ssl.truststore.location", "string", None): (
        "File with the certificates of the authorities that sign clients and brokers.",
        "clients' certificates, and brokers' among themselves; read again when it changes",
    ),
    Setting("ssl.truststore.password", "string", None): ("Password of the trust store.", "PKCS12"),
    Setting("ssl.truststore.certificates", "string", None): (
        "The trusted certificates themselves as PEM, in place of ssl.truststore.location.",
        "TLS",
    ),
    Setting("ssl.client.auth", "enum", "none", one_of("none", "requested", "required")): (
        "Whether clients show a certificate: none, requested, required.",
        "TLS without one fails where it is required",
    ),
    Setting("ssl.principal.mapping.rules", "string", "DEFAULT"): (
        "How the subject of a client's certificate becomes a user: RULE:PATTERN/REPLACEMENT/[LU], or DEFAULT.",
        "principals of mutual TLS",
    ),
    Setting("ssl.enabled.protocols", "list", TLS_VERSIONS, every(*TLS_VERSIONS)): (
        "Versions of TLS that are spoken.",
        "TLS",
    ),
    Setting("ssl.cipher.suites", "list", None): (
        "Cipher suites of TLS 1.2, by OpenSSL's names; OpenSSL's defaults unless given.",
        "TLS 1.2",
    ),
    Setting("ssl.endpoint.identification.algorithm", "string", "https"): (
        "Whether a broker compares another one's host with its certificate: https, or empty for no.",
        "connections between brokers",
    ),
    Setting("sasl.enabled.mechanisms", "list", ("SCRAM-SHA-256", "SCRAM-SHA-512"), every(*MECHANISMS)): (
        "Mechanisms by which clients authenticate on SASL listeners. Kafka's default is GSSAPI, which klog lacks.",
        "SASL",
    ),
    Setting(
        "sasl.mechanism.inter.broker.protocol",
        "enum",
        "SCRAM-SHA-256",
        one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    ): (
        "Mechanism by which brokers authenticate to one another. Kafka's default is GSSAPI, which klog lacks.",
        "connections between brokers",
    ),
    Setting("sasl.jaas.config", "string", None): (
        "Login module with options, as Kafka has them: username and password of this broker among brokers, and for "
        'PLAIN user_NAME="PASSWORD" for each client.',
        "PLAIN, and connections between brokers",
    ),
    Setting("sasl.oauthbearer.jwks.endpoint.url", "string", None): (
        "File with the JSON Web Key Set that checks clients' tokens: file:///PATH. klog reads no other kind of URL.",
        "OAUTHBEARER; read again when it changes",
    ),
    Setting("sasl.oauthbearer.expected.audience", "list", ()): (
        "Audiences of which a token's claim aud must have one; any if not given.",
        "OAUTHBEARER",
    ),
    Setting("sasl.oauthbearer.expected.issuer", "string", None): (
        "What a token's claim iss must be; anything if not given.",
        "OAUTHBEARER",
    ),
    Setting("sasl.oauthbearer.sub.claim.name", "string", "sub", not_empty("a claim")): (
        "The claim of a token that is the user's name.",
        "principals of OAUTHBEARER",
    ),
    Setting("sasl.oauthbearer.scope.claim.name", "string", "scope", not_empty("a claim")): (
        "The claim of a token with its scopes, which must be a text or a list of texts. They give no permission.",
        "OAUTHBEARER",
    ),
    Setting("sasl.oauthbearer.clock.skew.seconds", "int", 30, at_least(0)): (
        "By how much clocks may differ where a token's times are checked.",
        "OAUTHBEARER",
    ),
    Setting("sasl.server.max.receive.size", "bytes", 65536, at_least(1024)): (
        "Largest request before a client has authenticated; Kafka allows 524288.",
        "a connection that announces a larger one is closed",
    ),
    Setting("connections.max.reauth.ms", "ms", 0, at_least(0)): (
        "Time after which a client must authenticate again on its connection (KIP-368); 0: never.",
        "a connection that does not is closed",
    ),
    Setting("klog.certificate.warning.days", "int", 30, at_least(0)): (
        "Days before a listener's certificate expires from which on it is warned about. klog's own.",
        "once a day in the broker's log, and a finding of `klog status`",
    ),
    Setting("connection.failed.authentication.delay.ms", "ms", 100, at_least(0)): (
        "Delay of the answer to a failed authentication.",
        "slows down the guessing of passwords",
    ),
}

SECRETS = frozenset(
    {"ssl.keystore.password", "ssl.key.password", "ssl.keystore.key", "ssl.truststore.password", "sasl.jaas.config"}
)
"""Settings whose values are never shown."""
