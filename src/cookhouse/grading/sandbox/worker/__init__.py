"""The half of the local sandbox that runs in a process of its own, where nothing but the standard library is loaded.

    frames       messages between the pool and a worker
    kernel       the system calls that Python does not wrap
    namespaces   a worker's own users, processes, network and file system
    confinement  what a forked child gives up before it runs a program, system calls among it
    program      a program as the main module of a forked child
    modules      modules made from texts
    execution    one run: fork, watch, kill, collect
    zygote       the process that forks, and its life

It is imported as a package of its own (`worker`), so it must not import cookhouse.
"""
