"""A receiver of streams that is not ours: what arrives over TLS, plain TCP or a unix socket, a new file for each connection.

usage: stream_receiver.py FOLDER ADDRESS [KEY_AND_CERTIFICATE]. ADDRESS is HOST:PORT or a path. It says `ready` on standard error once it
listens. SIGTERM has it say to its peers that it ends, and read what is on its way still.
"""
import signal, socket, ssl, sys, threading, time


def listen(address):
    host, _, port = address.rpartition(":")
    if not host:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen()
        return listener
    return socket.create_server((host, int(port)))


def say(word):
    print(word, file=sys.stderr, flush=True)


def receive(connection, tls, path):
    with open(path, "xb", buffering=0) as file:
        try:
            connection = tls.wrap_socket(connection, server_side=True) if tls else connection
            OPEN.append(connection)
            while data := connection.recv(1 << 16):
                file.write(data)
        except OSError as error:
            say(f"error: {error}")
        connection.close()


OPEN = []


def main(folder, address, certificate=None):
    tls = None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
    listener, threads = listen(address), []

    def end(*_):
        listener.close()
        for connection in OPEN:
            try:
                socket.socket.shutdown(connection, socket.SHUT_WR)
            except OSError:
                pass

    signal.signal(signal.SIGTERM, end)
    say("ready")
    while True:
        try:
            connection = listener.accept()[0]
        except OSError:
            break
        path = f"{folder}/{time.time_ns()}"
        threads.append(threading.Thread(target=receive, args=(connection, tls, path)))
        threads[-1].start()
    for thread in threads:
        thread.join()


main(*sys.argv[1:])
