#!/bin/sh
# Install the checkout, editable, into .venv with the pinned versions of its Python: `pip-install.sh .[extras]`.
set -eu
version=$(.venv/bin/python -c 'import sys; print("py%d%d" % sys.version_info[:2])')
echo "installing $1 for $version (a few minutes the first time)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable "$1" \
    --constraint "conf/constraints/$version.txt"
.venv/bin/python -m pip check --disable-pip-version-check
