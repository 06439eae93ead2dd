"""Proxy runs: the same losses however they are batched or cut short, and those of a plain torch loop."""

# ruff: noqa: TID253
from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from cuvee.errors import MixtureError
from cuvee.search.domains import SyntheticDomain, TextDomain
from cuvee.search.proxy import Proxy, proxy_run_score, proxy_run_scores
from cuvee.search.proxy_model import EPSILON, Models, Shape
from cuvee.search.proxy_reads import Stream

LADDER = [SyntheticDomain(f"p{p}", 20, p, noise) for p, noise in ((2, 0.0), (3, 0.1), (4, 0.2), (6, 0.35))]
SHAPE = Shape(vocab=20, block=8, d_model=16, n_layer=2, n_head=2)
MIXTURES = np.random.default_rng(0).dirichlet(np.ones(4), 5)


def plain_loss(weights: dict[str, torch.Tensor], windows: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of one model, written for autograd."""
    inputs, targets = windows[:, :-1], windows[:, 1:]
    x = weights["tokens"][inputs] + weights["places"]
    for layer in range(SHAPE.n_layer):
        qkv = functional.layer_norm(x, x.shape[-1:], eps=EPSILON) @ weights[f"{layer}.qkv"]
        q, k, v = qkv.view(len(x), SHAPE.block, 3, SHAPE.n_head, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + mixed @ weights[f"{layer}.out"]
        middle = torch.relu(functional.layer_norm(x, x.shape[-1:], eps=EPSILON) @ weights[f"{layer}.up"])
        x = x + middle @ weights[f"{layer}.down"]
    logits = functional.layer_norm(x, x.shape[-1:], eps=EPSILON) @ weights["head"]
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def by_name(flat: torch.Tensor) -> dict[str, torch.Tensor]:
    parts = torch.split(flat, [rows * columns for rows, columns in SHAPE.parts.values()])
    return {name: part.view(size).clone() for part, (name, size) in zip(parts, SHAPE.parts.items(), strict=True)}


def windows_for(models: int, steps: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(7)
    return torch.randint(20, (steps, models, 6, SHAPE.block + 1), generator=random)


def test_gradients_are_those_of_autograd() -> None:
    start = SHAPE.start(1)
    random = torch.Generator().manual_seed(3)
    states = [start._replace(weights=start.weights + 0.3 * torch.randn(SHAPE.size, generator=random)) for _ in "abc"]
    windows = windows_for(3, 1)[0]
    found = Models(SHAPE, states).gradients(windows)
    for model, state in enumerate(states):
        weights = {name: part.requires_grad_() for name, part in by_name(state.weights).items()}
        plain_loss(weights, windows[model]).backward()
        for name, part in weights.items():
            assert torch.allclose(found[name][model], part.grad, atol=1e-6), name


def test_training_is_that_of_a_plain_loop() -> None:
    windows = windows_for(2, 25)
    models = Models(SHAPE, [SHAPE.start(5)] * 2)
    for step in windows:
        models.train(step, lr=3e-3)
    held_out = windows_for(1, 1)[0, 0]
    for model in range(2):
        weights = {name: part.requires_grad_() for name, part in by_name(SHAPE.start(5).weights).items()}
        optimizer = torch.optim.Adam(weights.values(), lr=3e-3)
        for step in windows:
            optimizer.zero_grad()
            plain_loss(weights, step[model]).backward()
            optimizer.step()
        expected = plain_loss(weights, held_out).item()
        assert models.losses(held_out)[model].mean().item() == pytest.approx(expected, abs=1e-5)


def test_untrained_model_knows_nothing() -> None:
    losses = Models(SHAPE, [SHAPE.start(0)]).losses(windows_for(1, 1)[0, 0])
    assert torch.allclose(losses, torch.tensor(math.log(20)))


def test_runs_side_by_side_have_the_losses_of_runs_alone() -> None:
    together = proxy_run_scores(MIXTURES, LADDER, 12)
    assert together.shape == (5, 4)
    for mixture, losses in zip(MIXTURES, together, strict=True):
        loss, detail = proxy_run_score(mixture, LADDER, 12, return_detail=True)
        assert list(detail.values()) == pytest.approx(losses.tolist(), abs=1e-5)
        assert loss == pytest.approx(losses.mean(), abs=1e-5)


def test_losses_do_not_depend_on_threads_which_are_given_back() -> None:
    before, losses = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            losses.append(Proxy(LADDER, 5, d_model=64, block=64, batch_size=32).evaluate(MIXTURES))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(*losses)


def test_losses_do_not_depend_on_what_torch_does_by_default() -> None:
    plain = proxy_run_scores(MIXTURES, LADDER, 5)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"), torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
            assert np.array_equal(proxy_run_scores(MIXTURES, LADDER, 5), plain)
            assert torch.get_default_dtype() == torch.float64
            assert torch.empty(1).device.type == "meta"
            assert torch.is_autocast_enabled("cpu")
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_score_is_asked_by_name() -> None:
    with pytest.raises(MixtureError, match=r"weights must be a mapping of domains to shares, but got \[0.25"):
        Proxy(LADDER, 2)([0.25] * 4)  # type: ignore[arg-type]


def test_run_cut_short_goes_on_where_it_was() -> None:
    whole = Proxy(LADDER, 20).evaluate(MIXTURES)
    proxy = Proxy(LADDER, 20)
    early = proxy.evaluate(MIXTURES, fidelity=0.3)
    assert proxy.trained_steps == 5 * 6
    assert np.array_equal(proxy.evaluate(MIXTURES), whole)
    assert proxy.trained_steps == 5 * 20
    assert np.array_equal(proxy.evaluate(MIXTURES, fidelity=0.3), early)
    assert early.mean() > whole.mean()


def test_training_follows_one_seed_and_evaluation_the_other() -> None:
    base = proxy_run_score([1, 1, 1, 1], LADDER, 5)
    assert proxy_run_score([2, 2, 2, 2], LADDER, 5) == base
    assert proxy_run_score([1, 1, 1, 1], LADDER, 5, seed=1) != base
    assert proxy_run_score([1, 1, 1, 1], LADDER, 5, eval_seed=1) != base
    proxy = Proxy(LADDER, 5)
    proxy.evaluate([[1, 1, 1, 1]], evaluation_seed=1)
    assert proxy.evaluate([[1, 1, 1, 1]]).mean() == base
    assert proxy.trained_steps == 5  # evaluated twice, trained once


def test_noise_is_never_learnt_and_patterns_are() -> None:
    domains = [SyntheticDomain("pattern", 16, 4), SyntheticDomain("noise", 16, None)]
    before = proxy_run_score([1, 1], domains, 2, return_detail=True)[1]
    after = proxy_run_score([1, 1], domains, 60, return_detail=True)[1]
    assert after["pattern"] < before["pattern"] - 0.5
    assert after["noise"] > math.log(16) - 0.01


def test_random_states_of_the_process_are_left_alone() -> None:
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    torch.manual_seed(1)
    one = proxy_run_score([1, 1, 1, 1], LADDER, 2)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert proxy_run_score([1, 1, 1, 1], LADDER, 2) == one
    assert torch.equal(state, torch.get_rng_state())
    assert np.array_equal(numpy_before, np.random.get_state()[1])  # noqa: NPY002
    torch.set_rng_state(before)


def test_proxy_is_a_score() -> None:
    proxy = Proxy(LADDER, 4, eval_tokens=64)
    weights = dict(zip(proxy.names, [0.1, 0.2, 0.3, 0.4], strict=True))
    assert proxy(weights, 0.5, 3) == proxy.many([list(weights.values())], 0.5, 3)[0]
    assert list(proxy(weights)) == [domain.name for domain in LADDER]
    with pytest.raises(MixtureError, match="weights must name the domains"):
        proxy({"p2": 1.0})


# --- what is read
class Counting:
    """Token i of this domain is `first + i`."""

    def __init__(self, name: str, first: int) -> None:
        self.name, self.first, self.vocab = name, first, 10**6

    def sample(self, n_tokens: int, *, seed: int = 0) -> np.ndarray:
        return self.first + np.arange(n_tokens)


def test_stream_interleaves_tokens_by_weight_and_reads_each_domain_on() -> None:
    domains = [Counting("a", 0), Counting("b", 500_000)]
    stream = Stream.of(domains, 40, batch_size=16, block=8, unit="tokens", seed=0)
    mixtures = np.array([[0.3, 0.7], [0.31, 0.69], [1, 0]])
    steps = np.stack(list(stream.batches(mixtures, 0, 40)))  # (steps, M, B, T + 1)
    assert steps.shape == (40, 3, 16, 9)
    of_a = steps < 500_000
    shares = of_a.mean(axis=(0, 2, 3))
    assert shares == pytest.approx([0.3, 0.31, 1], abs=1e-3)
    assert abs(of_a[:, 0].sum(axis=(1, 2)) - 0.3 * 144).max() <= 1  # within one token in every step
    assert (of_a[:, 0] != of_a[:, 1]).mean() < 0.012  # mixtures differ only where their weights do
    first = steps[:, 0].ravel()
    switches = np.diff(of_a[:, 0].ravel().astype(int)) != 0
    assert switches.mean() > 0.35  # 2 * .3 * .7 of token pairs, not whole windows of one domain
    for tokens in (first[first < 500_000], first[first >= 500_000]):
        assert (np.diff(tokens) >= 1).all()
    within = steps[:, 2].reshape(-1, 9)
    assert (np.diff(within, axis=1) == 1).all()  # nothing is skipped inside a window


def test_stream_goes_on_at_any_step() -> None:
    stream = Stream.of(LADDER, 70, batch_size=4, block=8, unit="tokens", seed=2)
    whole = list(stream.batches(MIXTURES, 0, 70))
    rest = list(stream.batches(MIXTURES, 37, 70))
    assert all(np.array_equal(one, other) for one, other in zip(whole[37:], rest, strict=True))


def test_texts_are_mixed_by_windows() -> None:
    domains = [TextDomain("low", "ab" * 4000), TextDomain("high", "xyz" * 4000)]
    proxy = Proxy(domains, 15, block=16)
    (windows,) = list(proxy._stream(0).batches(np.array([[0.5, 0.5]]), 0, 1))
    kinds = (windows[0] >= ord("x")) & (windows[0] < 256)
    assert set(kinds[:, :-1].mean(axis=1).round(2)) <= {0.0, 1.0}
    assert kinds[:, 0].sum() == 8
    assert proxy.evaluate([[1, 1]]).mean() < math.log(257)
    with pytest.raises(MixtureError, match="unit must be 'windows' for texts"):
        Proxy(domains, 15, unit="tokens").evaluate([[1, 1]])


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ([1, 1, 1], "mixture_weights must be 4 numbers"),
        ([[1, 1, 1, 1]], "mixture_weights must be 4 numbers"),
        ([True, 1, 1, 1], "mixture_weights must be 4 numbers"),
        ([1 + 1j, 1, 1, 1], "mixture_weights must be 4 numbers"),
        (None, "mixture_weights must be 4 numbers"),
        ([1, 1, 1, float("nan")], "mixture_weights must be finite"),
        ([1, 1, 1, -1], "at least 0"),
        ([0, 0, 0, 0], "not all 0"),
        (["a", 1, 1, 1], "mixture_weights must be 4 numbers"),
        (["1", 1, 1, 1], "mixture_weights must be 4 numbers"),
    ],
)
def test_weights_are_checked(weights: list[object], told: str) -> None:
    with pytest.raises(MixtureError, match=told):
        proxy_run_score(weights, LADDER, 2)


def test_domains_and_flags_of_a_run_are_checked() -> None:
    for domains in (None, LADDER[0]):
        with pytest.raises(MixtureError, match="domains must be a sequence of domains, but got"):
            proxy_run_score([1, 1], domains, 2)  # type: ignore[arg-type]
    with pytest.raises(MixtureError, match="return_detail must be True or False, but got 'x'"):
        proxy_run_score([1] * 4, LADDER, 2, return_detail="x")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"n_head": 3}, "d_model must be divisible by n_head"),
        ({"lr": 0}, "lr must be above 0"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"eval_tokens": True}, "eval_tokens must be"),
        ({"eval_seed": -1}, "eval_seed must be"),
        ({"unit": "token"}, "did you mean 'tokens'"),
        ({"d_modle": 4}, "did you mean 'd_model'"),
    ],
)
def test_settings_are_checked(settings: dict[str, object], told: str) -> None:
    with pytest.raises(MixtureError, match=told):
        proxy_run_scores(MIXTURES, LADDER, 2, **settings)


def test_budget_is_a_part_of_the_run() -> None:
    for budget in (0, 1.5, float("nan")):
        with pytest.raises(MixtureError, match="budget must be"):
            Proxy(LADDER, 2).evaluate(MIXTURES, fidelity=budget)
