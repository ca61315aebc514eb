"""The training service: the protocol of the `tinker` SDK over HTTP, in front of an engine.

    HTTP ──► routes ──► requests: training, saves, samples ──► Sequencer (one thread) ──► engine
                                                                   │
                        clients wait on Futures ◄──────────────────┘    Store: what outlives the process

Names are imported from their modules, so that a port in use can be reported before torch is loaded.
"""
