"""ClickHouse's HTTP interface around its engine as a Python extension, for tests: no registry has a server of these years.

usage: clickhouse.py PORT FOLDER SCHEMAS [CERTIFICATE KEY]. Tables are kept in FOLDER; `format_schema` names files of SCHEMAS. There are two users:
`default` without a password and `weir` with the password `right`. Not in it: the native protocol, replicas, queries at the same time.
"""
import base64, gzip, http.server, io, json, os, re, ssl, sys, threading, urllib.parse

import chdb, pyarrow
from chdb import session

PORT, FOLDER, SCHEMAS = int(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3]
USERS = {"default": "", "weir": "right"}
# Arguments of a request that are no settings of its query.
ABOUT_THE_REQUEST = {
    "query", "database", "default_format", "user", "password", "query_id", "session_id", "session_timeout", "session_check",
    "compress", "decompress", "wait_end_of_query", "buffer_size", "quota_key", "role",
}
# In front of rows that may be no text.
INSERT_IN_BODY = re.compile(rb"\s*INSERT\s+INTO\s[^;]*?\sFORMAT\s+\w+\n", re.I)
INSERT = re.compile(r"\s*(INSERT\s+INTO\s+.*?)\s+FORMAT\s+(\w+)\s*(.*)", re.S | re.I)
# What ClickHouse's HTTPHandler makes of the codes of its errors; 500 for others.
STATUS = {
    **dict.fromkeys((192, 193, 497, 516), 403),
    **dict.fromkeys((46, 47, 50, 60, 81, 115), 404),
    **dict.fromkeys((6, 26, 27, 33, 36, 38, 41, 43, 53, 62, 72, 117), 400),
    48: 501, 159: 408,
}

os.chdir(SCHEMAS)
ENGINE, ONE_AT_A_TIME = session.Session(FOLDER), threading.Lock()


class Refused(Exception):
    """An error in the words of the server."""

    def __init__(self, code, name, text):
        super().__init__(f"Code: {code}. DB::Exception: {text}. ({name})")


def decoded(body, coding):
    if coding in ("", "identity"):
        return body
    if coding == "gzip":
        return gzip.decompress(body)
    return pyarrow.input_stream(io.BytesIO(body), compression=coding).read()


def quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def read_only_answer_of(query, settings, database, form):
    """The answer's body. It has a connection of its own, because nobody takes `readonly` back."""
    connection = chdb.connect(FOLDER)
    try:
        connection.query(f"USE `{database}`")
        for name, value in sorted(settings.items(), key=lambda setting: setting[0] == "readonly"):
            connection.query(f"SET {name} = {quoted(value)}")
        return connection.query(query.rstrip(" ;\n"), form).bytes(), 0
    finally:
        connection.close()


def answer_of(query, body, arguments, form):
    """The answer's body and how many rows were written."""
    if insertion := INSERT.fullmatch(query):
        into, form, start = insertion.groups()
        with ENGINE.send_insert(into, form) as insert:
            if data := start.encode() + body:
                insert.append(data)
            return b"", insert.finish().rows_written
    parameters = {name[6:]: value for name, value in arguments.items() if name.startswith("param_")}
    return ENGINE.query(query.rstrip(" ;\n"), form, params=parameters or None).bytes(), 0


class Request(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer is two writes; without this the second waits for the first one's acknowledgement.
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.handle_query(b"")

    def do_POST(self):
        self.handle_query(self.body())

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def check_user(self, arguments):
        user = arguments.get("user", self.headers.get("X-ClickHouse-User", "default"))
        password = arguments.get("password", self.headers.get("X-ClickHouse-Key", ""))
        kind, _, credentials = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "basic":
            user, _, password = base64.b64decode(credentials).decode().partition(":")
        if USERS.get(user) != password:
            why = f"{user}: Authentication failed: password is incorrect, or there is no user with such name"
            raise Refused(516, "AUTHENTICATION_FAILED", why)

    def handle_query(self, body):
        url = urllib.parse.urlsplit(self.path)
        arguments = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        if url.path == "/ping":
            return self.reply(200, b"Ok.\n")
        try:
            self.check_user(arguments)
            body = decoded(body, self.headers.get("Content-Encoding", ""))
            answer, written = self.run(body, arguments)
        except Exception as error:
            # The engine's own words: the extension puts others in front of them.
            said = re.search(r"Code: (\d+).*", str(error), re.S)
            code, text = (int(said[1]), said[0]) if said else (1002, repr(error))
            return self.reply(STATUS.get(code, 500), f"{text}\n".encode(), ("X-ClickHouse-Exception-Code", str(code)))
        self.reply(200, answer, ("X-ClickHouse-Summary", json.dumps({"written_rows": str(written)})))

    def run(self, body, arguments):
        query = arguments.get("query", "")
        # A query may stand in the body, or end there.
        if not INSERT.fullmatch(query):
            head = INSERT_IN_BODY.match(body)
            end = head.end() if head else len(body)
            query, body = f"{query} {body[:end].decode()}".strip(), body[end:]
        about = lambda name: name in ABOUT_THE_REQUEST or name.startswith("param_")
        settings = {name: value for name, value in arguments.items() if not about(name)}
        database = arguments.get("database", self.headers.get("X-ClickHouse-Database", "default"))
        form = arguments.get("default_format", self.headers.get("X-ClickHouse-Format", "TabSeparated"))

        with ONE_AT_A_TIME:
            if settings.get("readonly", "0") != "0":
                return read_only_answer_of(query, settings, database, form)
            try:
                ENGINE.query(f"USE `{database}`")
                for name, value in settings.items():
                    ENGINE.query(f"SET {name} = {quoted(value)}")
                return answer_of(query, body, arguments, form)
            finally:
                for name in settings:
                    try:
                        ENGINE.query(f"SET {name} = DEFAULT")
                    except Exception:
                        pass  # It is the setting that the request was refused for.

    def reply(self, status, body, *headers):
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Request)
if certificate := sys.argv[4:]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    # The handshake is made by the connection's own thread, at its first read.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
