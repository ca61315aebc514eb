"""The live page: the runs of a folder in a browser, while they learn. It reads their files and disturbs none.

Served on the loopback of this machine, to whoever has the token of its address. Only this package of the client half
imports a web framework.
"""
