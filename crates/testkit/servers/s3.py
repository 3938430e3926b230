"""An S3-compatible server for tests: moto with one access key, and with a journal by which it has its objects again after a kill.

usage: s3.py PORT FOLDER [CERTIFICATE KEY]. It accepts the access key `weir` and looks at no signature. An access key that is the name of
an error gets that error; nobody may put into a bucket whose name begins with `denied`. Like some stores, it has no conditions for a put.
"""
import base64, io, json, os, pathlib, re, sys, threading, types

import moto.s3.models
from moto.moto_api._internal import mock_random
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple
from werkzeug.test import Client
from werkzeug.wrappers import Request, Response

PORT, FOLDER = int(sys.argv[1]), pathlib.Path(sys.argv[2])
ACCESS_KEY = "weir"
FOLDER.mkdir(parents=True, exist_ok=True)
JOURNAL = FOLDER / "journal"
MOTO = DomainDispatcherApplication(create_backend_app)
CHANGES, IN_ORDER = ("PUT", "POST", "DELETE"), threading.Lock()
changes = 0
# The names of uploads come from here, and from nowhere else.
moto.s3.models.os = types.SimpleNamespace(**{**vars(os), "urandom": mock_random.randbytes})


# What Amazon answers with, besides 403.
STATUS = {"AuthorizationHeaderMalformed": 400, "NotImplemented": 501}
CODES = ("AuthorizationHeaderMalformed", "InvalidToken", "RequestTimeTooSkewed", "SignatureDoesNotMatch")


def refusal(request, code):
    # It repeats what it was sent, as Amazon does.
    sent = request.headers.get("X-Amz-Security-Token", "")
    body = f"<Error><Code>{code}</Code><Message>as planned</Message><Token-0>{sent}</Token-0></Error>"
    return Response(body, status=STATUS.get(code, 403), content_type="application/xml")


def answer(environ, start_response):
    request = Request(environ)
    key = re.search("Credential=([^/]*)/", request.headers.get("Authorization", ""))
    if key and key[1] != ACCESS_KEY:
        code = key[1] if key[1] in CODES else "InvalidAccessKeyId"
        return refusal(request, code)(environ, start_response)
    is_denied = request.path.startswith("/denied") and request.path.count("/") > 1
    if is_denied or (not key and request.path != "/"):
        return refusal(request, "AccessDenied")(environ, start_response)
    if request.method == "PUT" and "If-None-Match" in request.headers:
        return refusal(request, "NotImplemented")(environ, start_response)
    if request.method not in CHANGES:
        return MOTO(environ, start_response)

    body = request.get_data()
    environ["wsgi.input"] = io.BytesIO(body)
    environ["CONTENT_LENGTH"] = str(len(body))
    with IN_ORDER:
        response = change(lambda: Response.from_app(MOTO, environ))
        # On disk before it is answered: what was acknowledged outlives a kill.
        with JOURNAL.open("a") as journal:
            target = environ.get("RAW_URI") or request.full_path
            line = [request.method, target, list(request.headers), base64.b64encode(body).decode()]
            journal.write(json.dumps(line) + "\n")
    return response(environ, start_response)


def change(make):
    """Names that moto invents, such as those of uploads, come out equal when the journal is replayed."""
    global changes
    changes += 1
    mock_random.seed(changes)
    return make()


def replay():
    for line in JOURNAL.read_text().splitlines() if JOURNAL.exists() else []:
        try:
            method, target, headers, body = json.loads(line)
        except ValueError:
            continue  # Cut off by the kill, and not answered.
        change(lambda: Client(MOTO).open(target, method=method, headers=headers, data=base64.b64decode(body)))


replay()
run_simple("127.0.0.1", PORT, answer, threaded=True, request_handler=MotoRequestHandler, ssl_context=tuple(sys.argv[3:]) or None)
