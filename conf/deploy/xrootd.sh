#!/bin/sh
# Build a newer XRootD server than the system's for the tests: `xrootd.sh VERSION [FOLDER]`, 5.9.9 or 6.2.1.
# It has what an XCache and its origin need (server, Pss, Pfc with its purge and decision plugins, HTTP, sss), and
# the clients. Source: the source distribution of the Python client, checked by its SHA-256.
# It goes to ${XDG_CACHE_HOME:-~/.cache}/cachecast/xrootd/VERSION (8 MB); what is there is not built again.
# A build takes about 6 CPU minutes; JOBS compilers run at once. PYTHON names the interpreter whose pip downloads.
set -eu
here=$(dirname "$0")
version=${1:-}
case $version in
5.9.9) sum=706d95ba13b216032e807ee391a51ba39d4ec3108fd72cf4a964d2020e778ef2 ;;
6.2.1) sum=b959c8c41e948f89272625f2a0a6994008465272027bffec71b01d0c7e278cba ;;
*) echo "usage: xrootd.sh 5.9.9|6.2.1 [FOLDER]" >&2; exit 2 ;;
esac
folder=${2:-${XDG_CACHE_HOME:-$HOME/.cache}/cachecast/xrootd/$version}
[ "$("$folder/bin/xrootd" -v 2>&1 || true)" != "v$version" ] || exit 0

"$here/system.sh" xrootd-build
python=${PYTHON:-$("$here/find-python.sh")}
mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
echo "building XRootD $version (about 6 CPU minutes)"
stage() { # WHAT COMMAND...: run it; if it fails, say which stage, and why by the end of what it wrote
    what=$1; shift
    "$@" > "$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; echo "XRootD $version: cannot $what" >&2; exit 1; }
}

echo "xrootd==$version --hash=sha256:$sum" > "$work/requirements.txt"
stage "download the source" "$python" -m pip download --quiet --disable-pip-version-check --no-deps \
    --no-binary xrootd --require-hashes --requirement "$work/requirements.txt" --dest "$work"
stage "unpack the source" tar xzf "$work/xrootd-$version.tar.gz" -C "$work"
# Programs and libraries find each other by their own place, so that the folder can be copied.
stage "configure the build" cmake -S "$work/xrootd-$version" -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON "-DCMAKE_INSTALL_RPATH=\$ORIGIN;\$ORIGIN/../lib" \
    -DENABLE_CEPH=OFF -DENABLE_FUSE=OFF -DENABLE_KRB5=OFF -DENABLE_MACAROONS=OFF -DENABLE_PYTHON=OFF \
    -DENABLE_READLINE=OFF -DENABLE_SCITOKENS=OFF -DENABLE_TESTS=OFF -DENABLE_VOMS=OFF -DENABLE_XRDCLHTTP=OFF \
    -DENABLE_XRDEC=OFF
n=${version%%.*}
stage "compile it" cmake --build "$work/build" --parallel "${JOBS:-$(nproc)}" --target \
    xrootd "XrdXrootd-$n" "XrdPss-$n" "XrdPfc-$n" "XrdPfcPurgeQuota-$n" "XrdBlacklistDecision-$n" "XrdHttp-$n" \
    "XrdSec-$n" "XrdSecProt-$n" "XrdSecsss-$n" xrdcp xrdfs xrdsssadmin
mkdir "$work/made"
cp -R "$work/build/bin" "$work/build/lib" "$work/made/"
chmod -R a+rX "$work/made"
[ "$("$work/made/bin/xrootd" -v 2>&1)" = "v$version" ] || { echo "XRootD $version does not run" >&2; exit 1; }
rm -rf "$folder"
mv "$work/made" "$folder"
