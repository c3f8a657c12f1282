#!/bin/sh
# Builds the cp312-abi3 wheel without a network and tries it: tools/try_abi3.sh WHEELHOUSE [PYTHON]
# WHEELHOUSE is a folder of wheels: nanobind, scikit-build-core, pathspec, packaging, the dependencies that the Python
# (3.12 or later) does not have itself, pytest, hypothesis and safetensors. CMake, ninja and a C++20 compiler are
# needed too.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
wheelhouse=$(realpath "$1")
python=${2:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH PIP_CONSTRAINT

"$python" -m venv --system-site-packages "$work/venv"
inside=$work/venv/bin/python
offline="--disable-pip-version-check -q --no-index --find-links $wheelhouse"
"$inside" -m pip install $offline nanobind scikit-build-core
"$inside" -m pip wheel $offline --no-deps --no-build-isolation --wheel-dir "$work" -C build-dir="$work/build" "$root"
wheel=$(ls "$work"/crfkit-*-cp312-abi3-*.whl)
ls -l "$wheel"
"$inside" -m zipfile -l "$wheel" | grep _core.abi3
"$inside" -m pip install $offline "$wheel[sklearn]" pytest hypothesis safetensors

cd "$work"
"$inside" -W ignore - <<'EOF'
import sys

import crfkit
from crfkit import _core
from crfkit.data import load_corpus

print(sys.version, crfkit.__version__, _core.__file__, sep="\n")
crf = crfkit.CRF(max_iter=20).fit(*load_corpus("ingredients", "train"))
crf.save("model.crfkit")
again = crfkit.load("model.crfkit")
X, y = load_corpus("ingredients", "test")
assert again.predict(X) == crf.predict(X)
print("token accuracy", again.score(X, y))
EOF
printf '2\ncups\nflour\n\n' | "$inside" -m crfkit tag -m model.crfkit -
"$inside" -m crfkit --version
"$inside" "$root/tools/release.py" test
