"""The program that becomes an isolated command. Executed, never imported: standard library and itself only.

`isolation` starts it, in an interpreter that knows no other packages, with one end of a socket pair; it turns into:

    supervisor (pointsman)      serves the listener, sends signals, waits for the keeper
    └─ keeper                   host side: owns the private HOME, ends everything when the supervisor dies
       └─ init                  process 1 of the sandbox's namespaces: reaps, passes signals on
          └─ CMD                the command

A PID namespace, and not a subreaper, is what lets nothing survive: when its process 1 ends, for whatever reason,
the kernel kills every other member, daemonised or not, even when the supervisor and the keeper were killed too.
With isolation `none` keeper and init are one process, a subreaper, and that promise is only a best effort.

Conversation, one JSON object a line: orders in, `ready` out (with the listeners' descriptors), `environment` in,
`started` or `error` out, later `stopped` out each time CMD suspends itself. Signals to pass on arrive as real-time
signals, SIGRTMIN + n for signal n, because those are queued and cannot be mistaken for what the terminal sends.

It does not decide anything: what to hide, who to become and what to run comes with the orders.
"""
