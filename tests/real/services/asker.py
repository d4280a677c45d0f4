"""A service that asks another one for each request, on a connection that it keeps: ``asker.py PORT OTHER_PORT``.

The other one answers each line with the same line. A request is one line, the answer what the other one said.
"""

import socket
import sys

port, other = int(sys.argv[1]), int(sys.argv[2])
kept = socket.create_connection(("127.0.0.1", other))
answers = kept.makefile("rb")
listener = socket.create_server(("127.0.0.1", port))
print("ready", flush=True)
while True:
    client, _ = listener.accept()
    with client:
        lines = client.makefile("rb")
        while line := lines.readline():
            kept.sendall(line)
            client.sendall(answers.readline())
