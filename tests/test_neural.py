"""The neural CRF: the slides' gradients in numpy, and the estimator's behaviour."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import crfkit  # noqa: E402
from crfkit import NeuralCRF, chain  # noqa: E402
from crfkit.torch import CRF  # noqa: E402
from crfkit.torch.network import PairFactors, WindowFactors  # noqa: E402


def slide_gradients(x: Any, y: Any, w: Any, b: Any, v: Any) -> dict[str, Any]:
    """Larochelle's gradients for linear log-factors with a window of one; w: {-1, 0, 1} -> [L, D]."""
    n = len(x)
    u = np.stack(
        [b + w[0] @ x[k] + (w[-1] @ x[k - 1] if k > 0 else 0) + (w[1] @ x[k + 1] if k < n - 1 else 0) for k in range(n)]
    )
    found = chain.marginals(chain.Potentials(u, v))
    delta = found.nodes.copy()
    delta[np.arange(n), y] -= 1
    gold = np.zeros_like(found.edges)
    for k in range(n - 1):
        gold[k, y[k], y[k + 1]] = 1
    return {
        "b": delta.sum(0),
        "w0": sum(np.outer(delta[k], x[k]) for k in range(n)),
        "w-1": sum((np.outer(delta[k], x[k - 1]) for k in range(1, n)), np.zeros_like(w[0])),
        "w+1": sum((np.outer(delta[k], x[k + 1]) for k in range(n - 1)), np.zeros_like(w[0])),
        "v": (found.edges - gold).sum(0),
        "delta": delta,
    }


@pytest.mark.parametrize("length", [1, 2, 3, 6])
def test_the_slides_gradients_of_linear_factors(length: int) -> None:
    rng = np.random.default_rng(length)
    x, y = rng.normal(size=(length, 5)), rng.integers(3, size=length)
    net, crf = WindowFactors(5, 3, window=1).double(), CRF(3, batch_first=True).double()
    for p in [*net.parameters(), *crf.parameters()]:
        torch.nn.init.normal_(p)
    for p in (crf.start_transitions, crf.end_transitions):
        torch.nn.init.zeros_(p)
    nets: Any = net.nets
    layers = {d: layer[0] for d, layer in zip((-1, 0, 1), nets, strict=True)}
    (-crf(net(torch.tensor(x)[None]), torch.tensor(y)[None])).backward()
    want = slide_gradients(
        x,
        y,
        {d: layer.weight.detach().numpy() for d, layer in layers.items()},
        layers[0].bias.detach().numpy(),
        crf.transitions.detach().numpy(),
    )
    assert layers[-1].bias is None
    assert layers[1].bias is None
    for name, got in (("w-1", layers[-1].weight), ("w0", layers[0].weight), ("w+1", layers[1].weight)):
        np.testing.assert_allclose(got.grad, want[name], atol=1e-12)
    np.testing.assert_allclose(layers[0].bias.grad, want["b"], atol=1e-12)
    assert crf.transitions.grad is not None
    np.testing.assert_allclose(crf.transitions.grad, want["v"], atol=1e-12)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_the_slides_gradients_of_hidden_layers(length: int) -> None:
    """Backpropagation by hand: the error goes through each offset's output weights to the neighbour's hidden units."""
    rng = np.random.default_rng(length)
    x, y = rng.normal(size=(length, 5)), rng.integers(3, size=length)
    net, crf = WindowFactors(5, 3, window=1, hidden=(4,)).double(), CRF(3, batch_first=True).double()
    for p in net.parameters():
        torch.nn.init.normal_(p)
    emissions = net(torch.tensor(x)[None])
    (-crf(emissions, torch.tensor(y)[None])).backward()
    a, s, e = (p.detach().numpy() for p in (crf.transitions, crf.start_transitions, crf.end_transitions))
    delta = chain.marginals(chain.Potentials(emissions[0].detach().numpy(), a, s, e)).nodes.copy()
    delta[np.arange(length), y] -= 1
    nets: Any = net.nets
    for d, layers in zip((-1, 0, 1), nets, strict=True):
        first, out = layers[0], layers[2]
        h = np.tanh(x @ first.weight.detach().numpy().T + first.bias.detach().numpy())
        d_out, d_first, d_bias = (np.zeros(w.shape) for w in (out.weight, first.weight, first.bias))
        for k in range(length):
            if 0 <= k + d < length:
                d_out += np.outer(delta[k], h[k + d])
                back = out.weight.detach().numpy().T @ delta[k] * (1 - h[k + d] ** 2)
                d_first += np.outer(back, x[k + d])
                d_bias += back
        for got, want in ((out.weight, d_out), (first.weight, d_first), (first.bias, d_bias)):
            np.testing.assert_allclose(got.grad, want, atol=1e-12)


def test_masked_steps_are_no_neighbours() -> None:
    net = WindowFactors(3, 2, window=2, hidden=(4,))
    x = torch.randn(1, 6, 3)
    mask = torch.tensor([[True, True, True, False, False, False]])
    torch.testing.assert_close(net(x, mask)[:, :3], net(x[:, :3]))
    assert PairFactors(3, 2)(x[:, :1]).shape == (1, 0, 2, 2)


def vectors(n: int, seed: int = 0) -> tuple[list[Any], list[Any]]:
    """Labels that only a neighbour's vector tells: y_k is the sign of x_{k-1}."""
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(int(rng.integers(3, 9)), 2)) for _ in range(n)]
    y = [["up" if (x[k - 1, 0] > 0) == (x[k - 1, 1] > 0) else "down" for k in range(len(x))] for x in X]
    return X, y


def test_windows_and_hidden_layers_matter() -> None:
    X, y = vectors(300)
    X_test, y_test = vectors(100, 1)
    settings: dict[str, Any] = {"max_iter": 40, "learning_rate": 0.01, "random_state": 0}
    linear = crfkit.NeuralCRF(hidden=(), window=0, **settings).fit(X, y)
    neural = crfkit.NeuralCRF(hidden=(20,), window=1, **settings).fit(X, y)
    assert neural.score(X_test, y_test) > linear.score(X_test, y_test) + 0.15
    assert [len(p) for p in neural.predict_marginals(X_test)] == [len(x) for x in X_test]
    for p in neural.predict_marginals(X_test):
        np.testing.assert_allclose(p.sum(1), 1, atol=1e-5)


SENTENCES = [["the", "dog", "runs"], ["a", "cat", "sleeps", "well"], ["dogs", "sleep"], ["the", "cat"]] * 8
TAGS = [["D", "N", "V"], ["D", "N", "V", "A"], ["N", "V"], ["D", "N"]] * 8


@pytest.mark.parametrize(
    "settings",
    [
        {"affixes": (2, -2), "character_size": 6, "window": 1},
        {"encoder": "lstm", "encoder_size": 10, "hidden": (), "word_dropout": 0.1, "dropout": 0.1},
        {"encoder": "conv", "encoder_size": 10, "encoder_layers": 2, "pairwise": "input"},
        {
            "inputs": "features",
            "features": crfkit.TokenFeatures(),
            "algorithm": "sgd",
            "learning_rate": 0.2,
            "c1": 1e-5,
        },
    ],
    ids=["affixes", "lstm", "conv", "features"],
)
def test_every_input_and_encoder_learns(settings: dict[str, Any], tmp_path: Path) -> None:
    params: dict[str, Any] = {"max_iter": 40, "learning_rate": 0.02, "batch_size": 8, "random_state": 0, **settings}
    crf = crfkit.NeuralCRF(**params).fit(SENTENCES, TAGS)
    assert crf.score(SENTENCES, TAGS) > 0.95
    assert crf.predict([[], ["the", "dog"]]) == [[], ["D", "N"]]
    crf.save(tmp_path / "model")
    again = crfkit.load(tmp_path / "model")
    for other in (again, pickle.loads(pickle.dumps(crf))):
        for p, q in zip(other.predict_marginals(SENTENCES), crf.predict_marginals(SENTENCES), strict=True):
            np.testing.assert_allclose(p, q, atol=1e-6)
    same = crfkit.NeuralCRF(**params).fit(SENTENCES, TAGS)
    np.testing.assert_array_equal(same.predict_marginals(SENTENCES)[0], crf.predict_marginals(SENTENCES)[0])


def test_partial_labels_and_entropy() -> None:
    y: list[Any] = [list(row) for row in TAGS]
    y[0][1] = None
    y[1][0] = {"D", "N"}
    y[2] = None
    crf = crfkit.NeuralCRF(max_iter=20, learning_rate=0.02, entropy_weight=0.1, random_state=0).fit(SENTENCES, y)
    assert crf.score(SENTENCES, TAGS) > 0.9
    found = crf.log_likelihood(SENTENCES[:3], [TAGS[0], [{"D", "N", "V", "A"}, "N", None, "A"], None])
    assert found[2] == 0
    assert (found <= 1e-6).all()
    whole = crf.log_likelihood(SENTENCES[:1], TAGS[:1])
    assert found[0] == pytest.approx(whole[0])


def test_early_stopping_keeps_the_best() -> None:
    crf = crfkit.NeuralCRF(max_iter=200, early_stopping=3, validation_fraction=0.2, learning_rate=0.02, random_state=0)
    crf.fit(SENTENCES, TAGS)
    assert crf.n_iter_ < 200
    assert len(crf.history_) == crf.n_iter_
    stopped = crfkit.NeuralCRF(max_iter=50, callback=lambda progress, _: progress.iteration == 2).fit(SENTENCES, TAGS)
    assert stopped.n_iter_ == 2


def test_c1_and_c2_shrink() -> None:
    sizes = []
    for penalty in ({}, {"c2": 0.1}, {"c1": 0.05}):
        settings: Any = {"hidden": (), "max_iter": 20, "learning_rate": 0.05, "random_state": 0, **penalty}
        crf = crfkit.NeuralCRF(**settings).fit(SENTENCES, TAGS)
        sizes.append(sum(float(p.detach().abs().sum()) for p in crf.network_.factors.parameters()))
    assert sizes[1] < sizes[0] / 2
    assert sizes[2] < sizes[0] / 2


def test_constraints_survive_saving(tmp_path: Path) -> None:
    X, y = [["a", "b", "c"]] * 4, [["B-X", "I-X", "O"]] * 4
    crf = crfkit.NeuralCRF(max_iter=1, constraints="bio", random_state=0).fit(X, y)
    crf.save(tmp_path / "m")
    again = crfkit.load(tmp_path / "m", kind=NeuralCRF)
    assert again.crf_.constraints is not None
    assert crf.crf_.constraints is not None
    np.testing.assert_array_equal(again.crf_.constraints.transitions, crf.crf_.constraints.transitions)
    (tmp_path / "n").write_bytes((tmp_path / "m").read_bytes()[:200])
    with pytest.raises(crfkit.ModelError):
        crfkit.load(tmp_path / "n")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"window": -1}, "'window' of NeuralCRF"),
        ({"hidden": (0,)}, "'hidden' of NeuralCRF"),
        ({"hidden": 8}, "'hidden' of NeuralCRF"),
        ({"affixes": (2, 0)}, "'affixes' of NeuralCRF"),
        ({"activation": "step"}, "'activation' of NeuralCRF"),
        ({"dropout": 1.0}, "'dropout' of NeuralCRF"),
        ({"kernel_size": 2}, "'kernel_size' of NeuralCRF"),
        ({"learning_rate": 0.0}, "'learning_rate' of NeuralCRF"),
    ],
)
def test_errors_name_the_parameter(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        crfkit.NeuralCRF(**settings).fit(SENTENCES, TAGS)


def test_errors_name_the_sequence() -> None:
    with pytest.raises(ValueError, match="sequence 1 has 4 tokens, but 3 labels"):
        crfkit.NeuralCRF().fit(SENTENCES[:2], [TAGS[0], TAGS[0]])
    with pytest.raises(ValueError, match="sequence 1 must be an array"):
        crfkit.NeuralCRF().fit([np.zeros((2, 3)), np.zeros((2, 4))], [["a", "b"]] * 2)


def test_labels_are_needed() -> None:
    with pytest.raises(ValueError, match="'y' of fit must hold the labels of the sequences, got None"):
        NeuralCRF().fit([["a"]], None)


def test_errors_of_labels_and_weights() -> None:
    crf = crfkit.NeuralCRF(max_iter=1, random_state=0)
    with pytest.raises(ValueError, match="'sample_weight' must hold finite numbers"):
        crf.fit(SENTENCES, TAGS, sample_weight=-np.ones(len(TAGS)))
    with pytest.raises(ValueError, match="label 'Q' is not one of the model's labels"):
        crf.fit(SENTENCES, TAGS).log_likelihood([["the"]], [["Q"]])
    with pytest.raises(ValueError, match="labels break 'constraints'"):
        crfkit.NeuralCRF(constraints="bio").fit([["a", "b"]], [["O", "I-X"]])


def test_validation_takes_known_labels_only() -> None:
    partial: list[Any] = [[None, *row[1:]] for row in TAGS]
    crf = crfkit.NeuralCRF(max_iter=1, validation_fraction=0.5, random_state=0)
    with pytest.raises(ValueError, match="'validation_fraction' of NeuralCRF"):
        crf.fit(SENTENCES, partial)
    mixed = [np.array(row) for row in TAGS[:4]] + partial[4:]
    assert "accuracy" in crf.fit(SENTENCES, mixed).history_[0].scores


def test_scikit_learn_takes_it() -> None:
    from sklearn.base import clone
    from sklearn.model_selection import cross_val_score

    crf = crfkit.NeuralCRF(hidden=(), max_iter=2, random_state=0)
    assert clone(crf).get_params() == crf.get_params()
    assert len(cross_val_score(crf, np.array(SENTENCES, object), np.array(TAGS, object), cv=2)) == 2


def test_load_knows_a_neural_crf(tmp_path: Path) -> None:
    X, y = [["the", "dog"], ["a", "cat"]] * 5, [["D", "N"]] * 10
    crf = NeuralCRF(hidden=(4,), max_iter=2, random_state=0).fit(X, y)
    crf.save(tmp_path / "model")
    again = crfkit.load(tmp_path / "model")
    assert type(again) is NeuralCRF
    assert again.predict(X) == crf.predict(X)
    data = (tmp_path / "model").read_bytes()
    (tmp_path / "model").write_bytes(data[:-10])
    with pytest.raises(crfkit.ModelError, match="cut short"):
        crfkit.load(tmp_path / "model")


def test_load_without_torch_says_what_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    NeuralCRF(hidden=(), max_iter=1, random_state=0).fit([["a", "b"]], [["A", "B"]]).save(tmp_path / "model")
    monkeypatch.setitem(sys.modules, "crfkit.torch.estimator", None)
    with pytest.raises(ImportError, match="needs torch"):
        crfkit.load(tmp_path / "model")


def test_dropout_of_the_inputs_alone() -> None:
    X = [np.ones((3, 2), np.float32)]
    crf = NeuralCRF(hidden=(), input_dropout=0.5, max_iter=1, random_state=0).fit(X, [["A", "B", "A"]])
    assert (crf.network_.input_dropout.p, crf.network_.dropout.p) == (0.5, 0.0)
    with pytest.raises(ValueError, match="input_dropout"):
        NeuralCRF(input_dropout=1.0).fit(X, [["A", "B", "A"]])


def test_what_is_given_holds_and_beams_are_followed() -> None:
    X = [["the", "dog", "runs"], [], ["a", "cat"]] * 10
    y = [["D", "N", "V"], [], ["D", "N"]] * 10
    crf = NeuralCRF(hidden=(), max_iter=10, learning_rate=0.05, random_state=0).fit(X, y)
    assert crf.predict(X, beam="fixed:3") == crf.predict(X) == y
    assert crf.predict(X[:3], beam="fixed:1") != []
    assert crf.predict(X[:3], given=y[:3]) == y[:3]
    given = [[None, {"V", "D"}, None], [], None]
    found, p = crf.predict(X[:3], given=given), crf.predict_marginals(X[:3], given=given)
    assert found[0][1] in ("V", "D")
    assert found[2] == y[2]
    np.testing.assert_allclose(p[0].sum(1), 1, rtol=1e-5)
    assert p[0][1][crf.classes_.tolist().index("N")] == 0
    with pytest.raises(ValueError, match="label 'X' is not one of the model's labels"):
        crf.predict(X[:1], given=[["X", None, None]])
    with pytest.raises(ValueError, match="labels"):
        crf.predict(X[:2], given=[None])
    ruled = NeuralCRF(hidden=(), max_iter=1, constraints="bio", random_state=0).fit([["a", "b"]], [["B-X", "O"]])
    assert ruled.predict([["b"], ["a", "b"]], given=[None, ["O", "B-X"]])[1] == ["O", "B-X"]
    ruled = NeuralCRF(hidden=(), max_iter=1, constraints="bio", random_state=0).fit([["a", "b"]], [["B-X", "I-X"]])
    with pytest.raises(ValueError, match="sequence 1: no labelling fits both 'given' and"):
        ruled.predict([["b"], ["a", "b"]], given=[None, ["I-X", "B-X"]])


def test_a_word_twice_in_a_file_is_one_word() -> None:
    from crfkit.torch.inputs import Tokens

    reader = Tokens(characters=True, tables=[["a", "a", "b"]], alphabet=["a", "b", "a"])
    assert reader.tables == [{"a": 2, "b": 3}]
    assert reader.alphabet == {"a": 2, "b": 3}


def test_history_has_the_mean_loss_of_a_sequence() -> None:
    """Also where a batch begins with its attributes, of which there are more than sequences."""
    X, y = [[["a", "b", "c", "d"]] * 3] * 4, [["A", "B", "A"]] * 4
    crf = NeuralCRF(inputs="features", max_iter=1, learning_rate=1e-9, random_state=0).fit(X, y)
    assert 1.0 < crf.history_[0].value < 4.0  # about 3 log 2
