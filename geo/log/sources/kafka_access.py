"""Asks Kafka brokers whether they let this process in, by one connection of its own before a client is made. It says what a refusal means.

kafka-python waits half a minute for brokers that refuse, and then says only that it could not. Of a wrong password it loses the answer, since the
broker closes the connection behind it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from kafka import errors as kafka_errors
from kafka.cluster import collect_hosts
from kafka.net.sasl import get_sasl_mechanism

from geo.config.model import Config
from geo.config.reader import KAFKA_PROTOCOLS
from geo.config.secret import Secret
from geo.errors import RetryableError, UsageError
from geo.reasons import Reason, Wrong
from geo.text import show

ANSWER_S = 10.0
"""Seconds that one broker may take to answer: kafka-python's limit for a connection."""

_WITHOUT_TLS = {"SSL": "PLAINTEXT", "SASL_SSL": "SASL_PLAINTEXT"}
_WITHOUT_SASL = {"SASL_PLAINTEXT": "PLAINTEXT", "SASL_SSL": "SSL"}

_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
_METADATA, _SASL_HANDSHAKE, _SASL_AUTHENTICATE = (3, 1), (17, 1), (36, 0)
"""Requests by number and version, which brokers from 1.0 to 4.x take."""
_NO_TOPICS = struct.pack(">i", 0)
_NO_SASL_HERE = 34
"""ILLEGAL_SASL_STATE: the port asks nobody who he is."""
_MOST_BYTES = 1 << 20
"""An answer is some hundred bytes. What begins with a greater length is not Kafka's."""
_TLS_ALERT = b"\x15\x03"
"""Beginning of the answer of a broker that speaks TLS to who does not."""

Settings: TypeAlias = Mapping[str, Any]

_let_in: set[str] = set()
"""Bootstrap servers that have let this process in: their names were right. A name that is not known then, as of a broker that is made again, is away.
"""


def settings_of(config: Config, servers: str) -> dict[str, Any]:
    """Return the settings with which kafka-python reaches these bootstrap servers, with secrets revealed."""
    configured = config.kafka.get(servers, {})
    revealed = {name: value.reveal() if isinstance(value, Secret) else value for name, value in configured.items()}
    settings: dict[str, Any] = {"bootstrap_servers": servers, **revealed}
    if (checked := settings.get("ssl_check_hostname")) is not None:
        settings["ssl_check_hostname"] = checked == "true"
    return settings


class Refused(Exception):
    """One broker does not let us in, and asked again it would not either. Its argument is what is Wrong."""

    def __init__(self, code: Reason, what: str, do: str) -> None:
        super().__init__(Wrong(code, what, do))


def refuse_hopeless(settings: Settings) -> None:
    """Returns if one of the bootstrap servers lets us in. Asks each, one after the other, until one answers.

    Raises UsageError if none does and one says that it will not. So it does if none of their names is known and none ever let this process in. Raises
    RetryableError if they are away.
    """
    servers = settings["bootstrap_servers"]
    at = f"Kafka at {servers}"
    refusal: Wrong | None = None
    unknown: list[str] = []
    away: list[str] = []
    try:
        hosts = collect_hosts(servers, randomize=False)
    except ValueError:
        raise UsageError(
            Wrong(Reason.CONFIG, f"{at}: this is no list of host:port", "Correct --kafka, or kafka in the configuration.")
        ) from None
    for host, port, _ in hosts:
        try:
            _enter(settings, host, port)
            _let_in.add(servers)
            return
        except Refused as error:
            refusal = refusal or error.args[0]
        except socket.gaierror as error:
            (away if error.errno == socket.EAI_AGAIN else unknown).append(f"{host}: {error.strerror}")
        except (OSError, EOFError) as error:
            away.append(f"{host}:{port}: {error.args[-1] if error.args else type(error).__name__}")
    if refusal is not None:
        raise UsageError(Wrong(refusal.code, f"{at}: {refusal.what}", refusal.do))
    if unknown and not away and servers not in _let_in:
        do = "Correct the host, or let this machine's name service know it."
        raise UsageError(Wrong(Reason.NO_ANSWER, f"{at}: no such host ({'; '.join(unknown)})", do))
    raise RetryableError(f"{at} cannot be reached: {'; '.join([*away, *unknown])}.", code=Reason.NO_ANSWER)


def of_client(error: kafka_errors.KafkaError, settings: Settings, topic: str) -> UsageError | None:
    """Translate an error of kafka-python's clients that stays until a person acts.

    None: it may pass.
    """
    at, who = f"Kafka at {settings['bootstrap_servers']}", _user(settings)
    if isinstance(error, kafka_errors.AuthorizationError):
        what = f"{at}: {who} has no right to read topic {topic} ({type(error).__name__})"
        return UsageError(
            Wrong(
                Reason.NO_RIGHT,
                what,
                f"Give it READ and DESCRIBE there: kafka-acls --add --consumer --topic {topic} --group '*' …",
            )
        )
    if isinstance(error, kafka_errors.InvalidTopicError):
        return UsageError(
            Wrong(Reason.CONFIG, f"{at}: {show(topic)} is no name of a topic", "Correct --kafka-topic, or kafka_topic.")
        )
    if isinstance(error, (kafka_errors.IncompatibleBrokerVersion, kafka_errors.UnsupportedVersionError)):
        return UsageError(
            Wrong(Reason.CONFIG, f"{at}: its version is not supported: {error}", "Brokers of 2.1 or later are read.")
        )
    return None


def _enter(settings: Settings, host: str, port: int) -> None:
    """Raises Refused, or OSError or EOFError if the broker is away."""
    protocol = settings.get("security_protocol", "PLAINTEXT")
    if protocol not in KAFKA_PROTOCOLS:
        raise Refused(
            Reason.CONFIG, f"security_protocol {show(protocol)} is not known", f"It is one of {', '.join(KAFKA_PROTOCOLS)}."
        )
    context = _tls(settings) if protocol.endswith("SSL") else None
    if protocol.startswith("SASL"):
        with _connected(host, port, context, protocol) as connection:
            _log_in(connection, settings)
        return
    try:
        with _connected(host, port, context, protocol) as connection:
            _ask(connection, _METADATA, _NO_TOPICS)
    except (EOFError, ConnectionResetError):
        with _connected(host, port, context, protocol) as connection:
            error, mechanisms = _mechanisms(connection, "PLAIN")
        if error == _NO_SASL_HERE:
            raise
        what = f"it asks who we are (SASL {', '.join(mechanisms)}), and security_protocol is {protocol}"
        do = f"Set security_protocol: SASL_{protocol}, sasl_mechanism and what that needs."
        raise Refused(Reason.CONFIG, what, do) from None


def _tls(settings: Settings) -> ssl.SSLContext:
    for name in _FILES:
        if path := settings.get(name):
            try:
                open(path, "rb").close()
            except OSError as error:
                raise Refused(
                    Reason.CONFIG, f"{name} {path}: {error.strerror}", f"Correct {name}: the file has to be on this host."
                ) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.get("ssl_check_hostname", True)
    try:
        if settings.get("ssl_cafile"):
            context.load_verify_locations(settings["ssl_cafile"])
        else:
            context.load_default_certs()
        if settings.get("ssl_certfile"):
            context.load_cert_chain(settings["ssl_certfile"], settings.get("ssl_keyfile"), settings.get("ssl_password") or "")
    except ssl.SSLError as error:
        names = ", ".join(f"{name} {settings[name]}" for name in _FILES if settings.get(name))
        do = "They are PEM files; a key that is encrypted needs ssl_password."
        raise Refused(Reason.CONFIG, f"{names}: not what is needed ({error.reason or error})", do) from None
    return context


@contextlib.contextmanager
def _connected(host: str, port: int, context: ssl.SSLContext | None, protocol: str) -> Iterator[socket.socket]:
    with contextlib.closing(socket.create_connection((host, port), timeout=ANSWER_S)) as plain:
        if context is None:
            yield plain
            return
        try:
            secured = context.wrap_socket(plain, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            is_name = "match" in error.verify_message
            do = "Use a host that it names." if is_name else "Name the authority that signed it in ssl_cafile."
            raise Refused(Reason.NO_ANSWER, f"its certificate is not trusted: {error.verify_message.rstrip('.')}", do) from None
        except (ssl.SSLError, ConnectionResetError) as error:
            if _speaks_plainly(host, port):
                do = f"Set security_protocol: {_WITHOUT_TLS[protocol]}, or give the port that speaks TLS."
                raise Refused(Reason.CONFIG, f"security_protocol is {protocol}, and this port does not speak TLS", do) from None
            if "ALERT" in (reason := getattr(error, "reason", None) or ""):
                raise Refused(Reason.KEYS_REFUSED, f"TLS is refused: {reason}", "Check ssl_certfile and ssl_keyfile.") from None
            raise
        with contextlib.closing(secured):
            yield secured


def _speaks_plainly(host: str, port: int) -> bool:
    with contextlib.suppress(OSError, EOFError, Refused), _connected(host, port, None, "PLAINTEXT") as connection:
        _mechanisms(connection, "PLAIN")
        return True
    return False


def _log_in(connection: socket.socket, settings: Settings) -> None:
    mechanism = settings.get("sasl_mechanism")
    error, mechanisms = _mechanisms(connection, mechanism or "PLAIN")
    if error == _NO_SASL_HERE:
        do = f"Set security_protocol: {_WITHOUT_SASL[settings['security_protocol']]}, or give the port that asks for one."
        raise Refused(
            Reason.CONFIG, f"security_protocol is {settings['security_protocol']}, and this port asks for no password", do
        )
    if mechanism not in mechanisms:
        what = (
            f"sasl_mechanism {mechanism} is not one of its own: {', '.join(mechanisms)}"
            if mechanism
            else "sasl_mechanism is not set"
        )
        raise Refused(Reason.CONFIG, what, f"Set sasl_mechanism to one of {', '.join(mechanisms)}.")
    if mechanism not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        return  # what it needs comes from elsewhere: a ticket, a token
    for name in ("sasl_plain_username", "sasl_plain_password"):
        if not settings.get(name):
            raise Refused(
                Reason.CONFIG, f"{name} is not set, which SASL {mechanism} needs", f"Set {name} of these brokers in `kafka`."
            )
    talk = get_sasl_mechanism(mechanism)(host="", **{"security_protocol": "SASL_SSL", **settings})
    refused = Refused(
        Reason.KEYS_REFUSED,
        f"the password of {_user(settings)} is refused (SASL {mechanism})",
        "Correct sasl_plain_username or sasl_plain_password.",
    )
    while not talk.is_done():
        token = talk.auth_bytes()
        answer = _ask(connection, _SASL_AUTHENTICATE, struct.pack(">i", len(token)) + token)
        (code,) = struct.unpack_from(">h", answer)
        if code:
            raise refused
        (length,) = struct.unpack_from(">h", answer, 2)
        at = 4 + max(0, length)
        (length,) = struct.unpack_from(">i", answer, at)
        try:
            talk.receive(answer[at + 4 : at + 4 + max(0, length)])
        except (ValueError, KeyError):
            raise refused from None
    if not talk.is_authenticated():
        raise refused


def _user(settings: Settings) -> str:
    name = settings.get("sasl_plain_username")
    return f"user {show(name)}" if name else "who reads"


def _mechanisms(connection: socket.socket, mechanism: str) -> tuple[int, list[str]]:
    """The error of a SASL handshake, 0 for none, and what mechanisms the broker has."""
    answer = _ask(connection, _SASL_HANDSHAKE, _text(mechanism))
    error, count = struct.unpack_from(">hi", answer)
    found, at = [], 6
    for _ in range(count):
        (length,) = struct.unpack_from(">h", answer, at)
        found.append(answer[at + 2 : at + 2 + length].decode())
        at += 2 + length
    return error, found


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _ask(connection: socket.socket, request: tuple[int, int], body: bytes) -> bytes:
    """The answer to a request, without its header. Raises EOFError if the broker hangs up."""
    sent = struct.pack(">hhi", *request, 1) + _text("delta-geo") + body
    connection.sendall(struct.pack(">i", len(sent)) + sent)
    head = _receive(connection, 4)
    (length,) = struct.unpack(">i", head)
    if head.startswith(_TLS_ALERT):
        raise Refused(
            Reason.CONFIG,
            "this port speaks TLS, and security_protocol does not say so",
            "Set security_protocol: SSL or SASL_SSL.",
        )
    if not 4 <= length <= _MOST_BYTES:
        raise Refused(Reason.CONFIG, "what answers there is no Kafka broker", "Correct host and port.")
    return _receive(connection, length)[4:]


def _receive(connection: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        if not (more := connection.recv(count - len(got))):
            raise EOFError("hung up without an answer")
        got += more
    return got
