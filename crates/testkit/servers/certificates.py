"""Makes what TLS needs in tests: an authority, a certificate that it signed, and one that has expired.

usage: certificates.py FOLDER. In the folder are then ca.pem, and server.pem and expired.pem for localhost and 127.0.0.1, each with its
key in the file before its certificate (which is how Kafka wants it) and alone in server.key and expired.key.
"""
import datetime, ipaddress, pathlib, sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

FOLDER = pathlib.Path(sys.argv[1])
NOW, DAY = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(days=1)
HERE = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])


def name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def certificate(subject, key, signer, end, *extensions):
    builder = x509.CertificateBuilder(issuer_name=name("Authority of a test"), subject_name=name(subject))
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(end - 30 * DAY).not_valid_after(end)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=not isinstance(extension, x509.SubjectAlternativeName))
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def key_text(key):
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


authority = ec.generate_private_key(ec.SECP256R1())
ca = certificate("Authority of a test", authority, authority, NOW + 29 * DAY, x509.BasicConstraints(True, None))
(FOLDER / "ca.pem").write_bytes(ca)
for file, end in ("server", NOW + 29 * DAY), ("expired", NOW - DAY):
    key = ec.generate_private_key(ec.SECP256R1())
    text = certificate("localhost", key, authority, end, HERE, x509.BasicConstraints(False, None))
    (FOLDER / f"{file}.key").write_bytes(key_text(key))
    (FOLDER / f"{file}.pem").write_bytes(key_text(key) + text)
