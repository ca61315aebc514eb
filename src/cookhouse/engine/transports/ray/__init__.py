"""Workers as actors of Ray, on this machine or on others. The server's process never imports Ray.

    server ── a socket a worker ──► driver: a process next to the server, in the cluster ── frames ──► actor: a worker
              `workers.py`          `driver.py`, `relay.py`, `cluster.py`, `shipping.py`              `actor.py`

Our own messages cross as bytes: frames of `transports.messages`, and parts of files. The rest Ray pickles: the
functions `load` and `make` on their way out, and exceptions of an actor's methods, which the driver unpickles. So
whoever is in the cluster can run programs in the driver, as on any node.
"""
