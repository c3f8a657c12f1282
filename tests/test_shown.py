"""What a terminal and a notebook show: a few lines, no contents of arrays, valid HTML."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from crfkit import CRF, HMM, Template, TokenFeatures, calibration, chain, metrics
from crfkit.calibration import Coverage
from crfkit.data import Columns, Items
from crfkit.estimators.hmm_tables import Monitor
from crfkit.graph import SkipChainCRF

X = [["two", "<cups>", "flour"], ["one", "egg"], ["salt"]] * 20
Y = [["B-Q", "B-U", "B-N"], ["B-Q", "B-N"], ["B-N"]] * 20


def things() -> dict[str, Any]:
    crf = CRF(TokenFeatures(window=1), beam=chain.FixedSize(2), max_iter=3, constraints="bio").fit(X, Y)
    p = crf.potentials(X)
    sets = calibration.PredictionSets(crf, "labellings")
    fitted = calibration.PredictionSets(crf).fit(X, Y)
    return {
        "sets": sets,
        "fitted sets": fitted,
        "coverage": fitted.measure(X, Y),
        "curve": calibration.calibration_curve(crf, X, Y),
        "monitor": Monitor([-1.5] * 200),
        "model": crf,
        "chain model": crf.model_,
        "not fitted": CRF(c2=0.1),
        "hmm": HMM().fit(X, Y),
        "graph": SkipChainCRF(max_iter=2).fit(X, Y),
        "result": crf.result_,
        "beams": crf.beams_,
        "explanation": crf.explain(X[0] * 20),
        "decision": crf.explain(X[0])[0],
        "report": metrics.evaluate(Y, crf.predict(X)),
        "potentials": p,
        "marginals": chain.marginals(p),
        "nbest": chain.nbest(p, 2)[0],
        "layout": crf.model_.layout,
        "dataset": crf.model_.encoder.encode(X, False, 1),
        "columns": Columns.from_sequences(X),
        "wide columns": Columns.from_sequences([[("a", "b")] * 100]),
        "items": Items.from_sequences([[{"a": 1}]] * 9),
        "constraints": crf.model_.constraints,
        "plan": TokenFeatures().plan(),
    }


class Checker(HTMLParser):
    """Tags must be closed in their order; text is collected."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("name", [*things()])
def test_short_and_whole(name: str) -> None:
    thing = things()[name]
    text = repr(thing)
    assert text.count("\n") < 4
    assert len(text) < 400
    assert "array(" not in text
    assert " object at 0x" not in text
    page = Checker()
    page.feed(thing._repr_html_())
    assert not page.open
    assert page.text.strip()


def test_what_is_said() -> None:
    crf = CRF(c2=0.5, max_iter=3).fit(X, Y)
    assert repr(chain.marginals(crf.potentials(X[:1]))).endswith("nodes=<float64 [3, 3]>)")
    curve = calibration.calibration_curve(crf, X, Y, bins=5)
    assert repr(curve) == f"CalibrationCurve(bins=5, predictions={curve.counts.sum()}, ece={curve.ece:.4f})"
    assert repr(calibration.PredictionSets(crf, "labellings")) == (
        "PredictionSets(crf=CRF(c2=0.5, max_iter=3), unit='labellings', coverage=0.9, max_size=1000)"
    )
    assert repr(Monitor([-3.0, -2.5], True)) == "Monitor(iter=2, converged=True, log_likelihood=-2.5)"
    assert repr(Coverage(0.9, 2.125, 0.0)) == "Coverage(coverage=0.9, size=2.125, empty=0)"
    assert repr(crf.potentials(X[:1])).startswith("Potentials(unary=<float64 [3, 3]>, pairwise=<float64 [3, 3]>")
    assert repr(crf.explain(X[0])) == "<Explanation: two/B-Q <cups>/B-U flour/B-N>"
    assert "reason='max_iter'" in repr(crf.result_)
    view = crf._repr_html_()
    assert "CRF, fitted" in view
    assert '<th style="text-align:left">c2</th>' in view
    assert "&lt;cups&gt;" in Columns.from_sequences(X)._repr_html_()
    assert repr(crf.objective(X, Y)) == f"<LikelihoodObjective: {len(crf.weights_)} weights>"
    assert repr(Template("U:%x[0,0]")) == "Template(1 lines from <template>)"
