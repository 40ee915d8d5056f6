"""Every number that bounds something, in one frozen object.

Sizes are bytes, durations seconds. The object is passed in, so that a test of a bound can shrink it instead of
waiting for it. The source of each number is DESIGN section 7 unless another is named.
"""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the data plane; the comment behind each names what happens beyond it."""

    # The client's side
    connect_head_bytes: int = 8 * KIB  # 431, close
    connect_head_seconds: float = 10.0  # close
    tls_handshake_seconds: float = 10.0  # close
    request_line_bytes: int = 8 * KIB  # 414, close
    head_bytes: int = 64 * KIB  # 431, close
    head_fields: int = 100  # 431, close
    head_seconds: float = 30.0  # 408, close
    body_progress_seconds: float = 30.0  # without a byte of the body: 408, close
    keep_alive_seconds: float = 75.0  # close
    body_bytes: int = 10 * MIB  # 413, close
    chunks: int = 4096  # in one request: 400, close
    chunk_extension_bytes: int = 8 * KIB  # in one request, together: 400, close
    trailer_fields: int = 32  # 400, close
    trailer_bytes: int = 8 * KIB  # the empty line behind them included: 400, close
    json_keys: int = 10_000  # at the top level: 400
    json_key_characters: int = 256 * KIB  # of the top level's keys, together, in bodies beyond 32 KiB: 400
    connections: int = 1024  # through the door at once: 503, close
    held_body_bytes: int = 256 * MIB  # of all requests beyond 16 KiB and held answers, together: 503, close
    pipelined_bytes: int = 64 * KIB  # held while a request runs: close

    # The upstream's side
    connect_seconds: float = 30.0  # 503
    response_header_seconds: float = 120.0  # when the route sets no timeout: 503
    response_head_bytes: int = 64 * KIB  # interim responses included: 502; framing between pieces of a body: truncation
    response_head_fields: int = 256  # 502
    interim_responses: int = 100  # 1xx before the final head: 502
    chunk_idle_seconds: float = 120.0  # between two pieces of a response body: truncation
    response_body_bytes: int = 32 * MIB  # exactly this much passes, more is truncated
    first_event_bytes: int = 16 * KIB  # of a chain's event stream, before its first event has ended: it is committed to
    error_body_bytes: int = 64 * KIB  # of a mapped error (ours): its code is not looked for, the status speaks alone
    error_body_seconds: float = 5.0  # for the body of a mapped error (ours): what has come by then is all of it
    buffered_seconds: float = 60.0  # whole call of system_inference when the route sets no timeout: 503
    client_stall_seconds: float = 120.0  # client takes no byte: connection aborted
    event_tail_bytes: int = 64 * KIB  # an incomplete event held back; beyond it the event is relayed raw
    idle_clear_seconds: float = 4.0  # pooled connection without TLS; many servers close at 5
    idle_tls_seconds: float = 20.0  # pooled connection with TLS

    # The gateway's side
    bundle_bytes: int = 4 * MIB  # of one answer: the routes in force stay (gRPC's own default)
    bundle_routes: int = 256  # in one answer, of all names: the routes in force stay
    bundle_fetch_seconds: float = 4.0  # for one answer: the routes in force stay; below the time between two polls

    models_seconds: float = 5.0  # for a provider's list of models (InferRouter): what the records say is listed
    models_bytes: int = MIB  # of such a list (ours): as above
    models_kept_seconds: float = 30.0  # such a list is kept so long for whoever asks (ours)

    sweep_seconds: float = 1.0  # resolution of all of the deadlines above


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class RunnerLimits:
    """Bounds of what passes between a gateway and a runner (the runner-proxied models' design)."""

    models: int = 64  # of one runner, registered: 400
    active_requests: int = 4  # of one runner at once: 429 runner_busy
    request_bytes: int = 1 * MIB  # of a request's JSON body, as it is sent: 413 runner_request_too_large
    data_bytes: int = 64 * KIB  # of one line of an event stream, or of a whole completion: 502 runner_frame_too_large
    response_bytes: int = 16 * MIB  # of all data of one answer: 502 runner_response_limit
    frame_bytes: int = 72 * KIB  # from a runner: its data as UTF-8, and all around it as it was sent: close 1009
    escaped_frame_bytes: int = 6 * 64 * KIB + 8 * KIB  # of the same as it was sent (ours; an escape is 6): close 1009
    start_frame_bytes: int = 1 * MIB + 8 * KIB  # to a runner, envelope included: close 1009
    connect_seconds: float = 5.0  # to the model's server: 502 runner_upstream_unavailable
    idle_seconds: float = 60.0  # for the first frame, and between two: 504 runner_proxy_timeout
    lifetime_seconds: float = 600.0  # of one exchange: 504 runner_proxy_timeout
    unasked_seconds: float = 15.0  # (ours) without a sign of whoever asks, whose process died: its slot is freed
    heartbeat_seconds: float = 15.0  # between two signs of life of a runner
    silence_seconds: float = 45.0  # without one: offline, close


DEFAULT_RUNNER_LIMITS = RunnerLimits()
