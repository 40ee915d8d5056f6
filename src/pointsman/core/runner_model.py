"""A model that lives beside a runner, as the data plane sees it."""

from dataclasses import dataclass

from pointsman.core.candidate import Candidate
from pointsman.core.protocols import InferenceProtocol


@dataclass(frozen=True, slots=True)
class RunnerModel:
    """One model of one runner. It is asked through that runner or not at all."""

    account: str
    runner_id: str
    model_id: str
    """The record's, which the runner's allowlist names."""
    base_url: str
    """Canonical; never fetched by a gateway."""
    candidate: Candidate
    """What is told of it: route, and the model's name beside the runner. Its endpoint's scheme is `runner`."""

    @property
    def route(self) -> str:
        """The name that it is reached by."""
        return self.candidate.route

    def speaks(self, protocol: str) -> bool:
        """Whether it can be asked in a dialect: chat completions alone."""
        return protocol == InferenceProtocol.CHAT_COMPLETIONS
