"""Heads of chains, and what a verification found, to protobuf messages and back."""

from pointsman.core.chain import NO_HEAD, ChainHead
from pointsman.core.chain_check import Verification
from pointsman.core.control_errors import InvalidRequest
from pointsman.rpc.gen import hash_chain_pb2 as pb

_DIGEST_BYTES = len(NO_HEAD.digest)


def head_message(head: ChainHead) -> pb.ChainHead:
    """A head."""
    return pb.ChainHead(sequence=head.sequence, digest=head.digest)


def head_of(message: pb.ChainHead) -> ChainHead:
    """A head; of an empty message, no row's. Raises InvalidRequest."""
    if message == pb.ChainHead():
        return NO_HEAD
    if message.sequence < 0 or len(message.digest) != _DIGEST_BYTES:
        raise InvalidRequest(f"a head is a number and a digest of {_DIGEST_BYTES} bytes")
    return ChainHead(message.sequence, message.digest)


def kept_head(request: pb.VerifyChainRequest) -> ChainHead | None:
    """The head that a client kept, if it gives one. Raises InvalidRequest."""
    return head_of(request.head) if request.HasField("head") else None


def verification_message(found: Verification) -> pb.ChainVerification:
    """What was found."""
    return pb.ChainVerification(
        problems=found.problems,
        problem_count=found.problem_count,
        checked=found.checked,
        head=head_message(found.head),
        complete=found.is_complete,
    )


def verification_of(message: pb.ChainVerification) -> Verification:
    """The same back."""
    counts = (message.problem_count, message.checked)
    return Verification(tuple(message.problems), *counts, head_of(message.head), message.complete)
