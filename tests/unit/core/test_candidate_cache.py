"""What is derived from a candidate stays with it, and goes with it."""

from dataclasses import replace

from pointsman.core.candidate import Candidate
from pointsman.core.candidate_cache import CandidateCache
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.secret import Secret


def candidate(key: str = "key") -> Candidate:
    return Candidate("r", parse_endpoint("http://127.0.0.1:1"), "m", ("openai_responses",), api_key=Secret(key))


def test_it_is_derived_once_for_each_object_though_they_be_equal() -> None:
    made: list[str] = []

    def make(each: Candidate) -> str:
        made.append(each.model)
        return each.model

    cache, first, second = CandidateCache(make), candidate(), candidate()
    assert [cache.get(first), cache.get(first), cache.get(second)] == ["m", "m", "m"]
    assert made == ["m", "m"]


def test_an_entry_goes_with_its_candidate() -> None:
    cache = CandidateCache(lambda each: each.model)
    kept = candidate()
    cache.get(kept)
    for number in range(1000):
        cache.get(candidate(f"key-{number}"))
    assert len(cache) == 1


def test_another_candidate_in_the_same_place_gets_its_own() -> None:
    cache = CandidateCache(lambda each: each.model)
    for number in range(100):  # the memory of the one that is gone is given to the next
        assert cache.get(replace(candidate(), model=f"m{number}")) == f"m{number}"
