"""Answers verl's requests to a rollout server by the in-process sampler of this package."""

from collections.abc import Mapping, Sequence
from typing import Any

from cdpr.llm.sampler import InProcessSampler
from cdpr.llm.types import Sampling


async def answer_request(
    sampler: InProcessSampler, prompt_ids: Sequence[int], request: Mapping[str, Any], version: int
) -> dict[str, Any]:
    """Answer one request of verl by ``sampler``; returns the fields of verl's ``TokenOutput``: token ids and
    log-probabilities of the reply, and ``extra_fields``.

    A reply is sampled with the request's ``seed`` and number ``sample``, so a run has the same replies as in the torch
    engine. If the request has the key ``prompt_logprobs``, nothing is sampled. ``extra_fields`` then has the
    log-probability of each token of the prompt but the first, and a last row with 0, as in verl. ``version`` is the
    version of the weights, which every answer reports.
    """
    extra_fields: dict[str, Any] = {"global_steps": version}
    if "prompt_logprobs" in request:
        [scored] = await sampler.score(prompt_ids[:1], [prompt_ids[1:]])
        extra_fields["prompt_ids"] = [[token] for token in (*prompt_ids[1:], 0)]
        extra_fields["prompt_logprobs"] = [[logprob] for logprob in (*scored, 0.0)]
        ids, logprobs = [sampler.tokenizer.end_of_turn], [0.0]  # verl expects a reply of at least one token
    else:
        # verl writes a top_k of -1 where it restricts nothing; here that is 0.
        sampling = Sampling(request["max_tokens"], request["temperature"], request["top_p"], max(0, request["top_k"]))
        [completion] = await sampler.sample(prompt_ids, [request["sample"]], sampling, request["seed"])
        ids, logprobs = list(completion.token_ids), list(completion.logprobs)
    return {"token_ids": ids, "log_probs": logprobs, "stop_reason": "completed", "extra_fields": extra_fields}
