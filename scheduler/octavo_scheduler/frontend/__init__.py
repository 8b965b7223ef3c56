"""Front processes: `--frontends N` of them share the port that clients dial, each with an event loop of its own.

    clients ──TCP, SO_REUSEPORT──► front process 0 … N-1 ──ZeroMQ──► scheduler: hub, loop, core
                                      └──── gRPC, relayed ─────────────► inner address: what asks the core

In a front process: `config` (its command line), `server` (gRPC, and all that is done for a stream), `uplink` and `link`
(towards the scheduler), `relay` and `names` (calls that others answer). In the scheduler: `hub` (between its loop and the
fronts), `fleet` (starts, watches and ends them), `port` (holds the address that they share). `wire` is what both say.
"""
