#!/bin/sh
# Print the path of a Python 3.11-3.13 that runs and can make environments; 3.12 first. Exit 1 if there is none.
# A name on PATH is not enough: version managers leave names there that fail when called.
works() { "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

for candidate in python3.12 "$HOME"/.pyenv/versions/3.12*/bin/python3.12 python3.13 python3.11 python3; do
    path=$(command -v "$candidate" 2>/dev/null) && works "$path" && { echo "$path"; exit 0; }
done
exit 1
