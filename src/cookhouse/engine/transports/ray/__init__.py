"""Workers as actors of Ray, on this machine or on others. The server's process never imports Ray.

    server ── a socket a worker ──► driver: a process beside the server, in the cluster ── frames ──► actor: a worker
              `workers.py`          `driver.py`, `relay.py`, `cluster.py`, `shipping.py`              `actor.py`

All that Ray carries is numbers, texts, and bytes: frames of `transports.messages`, and parts of files.
"""
