#!/usr/bin/env bash
# Build wheel and source archive in dist/, and try the wheel in an empty environment: packaging/release.sh v0.2.0
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
[ "${1-}" = "v$version" ] || { echo "the tag is '${1-}', the version in pyproject.toml is $version: tag v$version" >&2; exit 1; }
rm -rf dist
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
python3 -m venv "$trial"
pip="$trial/bin/python -m pip install --quiet --disable-pip-version-check --no-deps"
$pip --only-binary :all: --require-hashes --requirement packaging/lock-core.txt
"$trial/bin/hatchling" build
$pip "dist/bristle-$version-py3-none-any.whl"
test "$(cd "$trial" && bin/bristle --version)" = "bristle $version"
(cd "$trial" && bin/bristle demo --quick --iterations 5 --out out)
