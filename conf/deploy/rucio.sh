#!/bin/sh
# Make what the tests start a real Rucio from, in ${XDG_CACHE_HOME:-~/.cache}/cachecast:
# rucio-server, a Python environment with the Rucio server (pinned in rucio-server.txt, 210 MB), and
# activemq, the message broker of sites (ten jars of Maven Central, 5 MB, checked by their SHA-256).
# What is there and right is left alone. PYTHON names the interpreter; it is 3.11-3.13.
set -eu
here=$(dirname "$0")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/cachecast
"$here/system.sh" jars
"$here/system.sh" core

pins=$(sha256sum < "$here/rucio-server.txt" | cut -d' ' -f1)
if [ "$(cat "$cache/rucio-server/.installed" 2>/dev/null)" != "$pins" ]; then
    python=${PYTHON:-$("$here/find-python.sh")}
    echo "installing the Rucio server for the tests (half a minute)"
    rm -rf "$cache/rucio-server"
    mkdir -p "$cache"
    "$python" -m venv "$cache/rucio-server"
    "$cache/rucio-server/bin/python" -m pip install --quiet --disable-pip-version-check \
        --requirement "$here/rucio-server.txt"
    echo "$pins" > "$cache/rucio-server/.installed"
fi

# SHA-256, then the path below Maven Central.
"$here/fetch-jars.sh" "$cache/activemq" <<'JARS'
4f21c8d4db44455b45dd63a94d106675cea45b6c7686d3ac521d782b0789cd39 org/apache/activemq/activemq-broker/6.1.8/activemq-broker-6.1.8.jar
c2b496d155bee296eaeed753403767d1fdae95068ec2632acc383bb42672474f org/apache/activemq/activemq-client/6.1.8/activemq-client-6.1.8.jar
64cea1f4eca66f247fe73585b7993dad6553cdf9c27cc5d35aa39b889675a3f2 org/apache/activemq/activemq-console/6.1.8/activemq-console-6.1.8.jar
f5378ae40f76c2dd290ea8b24bfbea16ad4f008c4c26a07e43b7dc3b4632e02e org/apache/activemq/activemq-kahadb-store/6.1.8/activemq-kahadb-store-6.1.8.jar
366438911c0257fa21982758497cced3d4289795c4b69aa7dba9add5e247666b org/apache/activemq/activemq-stomp/6.1.8/activemq-stomp-6.1.8.jar
8323444e48a1920afe37b5f24b6dc139f35793e8a87fa178f6d9c8f92a6f39d1 org/apache/activemq/protobuf/activemq-protobuf/1.1/activemq-protobuf-1.1.jar
c6b45db967f3b2b3e28fd2f0724b1730a89d3f5aa9eef3664de29caba219593e org/fusesource/hawtbuf/hawtbuf/1.11/hawtbuf-1.11.jar
6605e08075ab389c359451c7854808cf4b1575e1ea6317e534e9d4df088096df jakarta/jms/jakarta.jms-api/3.1.0/jakarta.jms-api-3.1.0.jar
a12578dde1ba00bd9b816d388a0b879928d00bab3c83c240f7013bf4196c579a org/slf4j/slf4j-api/2.0.16/slf4j-api-2.0.16.jar
effc32018658bea09d1e08c7d1060ccad46c086960f583d07dd7ffe9c1172a47 org/slf4j/slf4j-simple/2.0.16/slf4j-simple-2.0.16.jar
JARS
