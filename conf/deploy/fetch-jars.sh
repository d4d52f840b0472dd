#!/bin/sh
# Fetch jars of Maven Central into a folder: `fetch-jars.sh FOLDER`, with lines `SHA-256 PATH` on stdin.
# What is there and right is not fetched again. MAVEN_CENTRAL names a mirror.
set -eu
central=${MAVEN_CENTRAL:-https://repo1.maven.org/maven2}
folder=$1
mkdir -p "$folder"

wrong() { ! echo "$1  $2" | sha256sum --check --status 2>/dev/null; }

while read -r sum path; do
    jar=$folder/$(basename "$path")
    wrong "$sum" "$jar" || continue
    echo "fetching $(basename "$path")"
    draft=$jar.$$
    curl --fail --silent --show-error --location --retry 3 --output "$draft" "$central/$path"
    ! wrong "$sum" "$draft" || { rm -f "$draft"; echo "$central/$path is not the file it should be" >&2; exit 1; }
    mv "$draft" "$jar"
done
