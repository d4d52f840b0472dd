#!/bin/sh
# Build Helm, which renders and checks the chart in conf/deploy/helm, from its Go module: `helm.sh`.
# It goes to ${XDG_CACHE_HOME:-~/.cache}/cachecast/helm/VERSION/helm (80 MB); what is there is not built again.
# A build takes about 6 CPU minutes and needs Go 1.26, or one from 1.21 on that may fetch it.
set -eu
version=3.22.0
sum=h1:n1if5iQgHYsujPAcO5oonH/KiSNUmqmUF0iGVjSF3AU=
folder=${XDG_CACHE_HOME:-$HOME/.cache}/cachecast/helm/$version
case $("$folder/helm" version --short 2>/dev/null || true) in v$version*) exit 0 ;; esac

command -v go >/dev/null || { echo "missing: Go 1.26 (https://go.dev/dl), which builds Helm" >&2; exit 1; }
mkdir -p "$folder"
work=$(mktemp -d "$folder/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
export GOPATH="$work/path" GOBIN="$work/bin" GOFLAGS=-modcacherw
found=$(cd "$work" && go mod download -json "helm.sh/helm/v3@v$version" | sed -n 's/^\t"Sum": "\(.*\)",$/\1/p')
[ "$found" = "$sum" ] || { echo "Helm $version is not the source it should be: $found" >&2; exit 1; }
echo "building Helm $version (about 6 CPU minutes)"
(cd "$work" && go install -trimpath -ldflags "-X helm.sh/helm/v3/internal/version.version=v$version" \
    "helm.sh/helm/v3/cmd/helm@v$version")
mv "$work/bin/helm" "$folder/helm"
