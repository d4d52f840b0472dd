"""A certificate authority and a VO of the tests, and a real XCache that admits members of the VO alone."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from daemons import open_folder

from jobs.local_site.local.daemon import hand_over
from jobs.local_site.local.xrootd import Loopback, loopback

_CA, _VOMS = "/DC=test/CN=testca", "/DC=test/CN=voms.test"
_POLICY = f"access_id_CA X509 '{_CA}'\npos_rights globus CA:sign\ncond_subjects globus '\"*\"'\n"
_USAGE = "keyUsage=critical,digitalSignature,keyEncipherment\nextendedKeyUsage=clientAuth,serverAuth\n"


class Authority:
    """Makes certificates and proxies in `folder`, which also has `certs` and `vomsdir`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"X509_CERT_DIR": f"{folder}/certs", "X509_VOMS_DIR": f"{folder}/vomsdir"}
        (folder / "certs").mkdir()
        (folder / "vomsdir" / "test").mkdir(parents=True)
        (folder / "vomsdir" / "test" / "voms.test.lsc").write_text(f"{_VOMS}\n{_CA}\n")
        more = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign"]
        words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", _CA]
        words += [word for extension in more for word in ("-addext", extension)]
        self._openssl(*words, "-keyout", "ca.key", "-out", "certs/ca.pem")
        self._openssl("rehash", "certs")
        known = self._openssl("x509", "-in", "certs/ca.pem", "-noout", "-hash").strip()
        (folder / "certs" / f"{known}.signing_policy").write_text(_POLICY)

    def certify(self, name: str, subject: str, more: str = "") -> None:
        """Make `name`.pem and `name`.key."""
        (self.folder / "extensions").write_text(_USAGE + more)
        words = ["req", "-newkey", "rsa:2048", "-nodes", "-subj", subject]
        self._openssl(*words, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signer = ["-CA", "certs/ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
        words = ["x509", "-req", "-in", f"{name}.csr", *signer, "-extfile", "extensions"]
        self._openssl(*words, "-out", f"{name}.pem")
        (self.folder / f"{name}.key").chmod(0o600)

    def proxy(self, path: Path, *, is_member: bool) -> None:
        """A proxy of the pusher, with or without the VO's word for it."""
        words = ["voms-proxy-fake", "-rfc", "-bits", "2048", "-cert", "user.pem", "-key", "user.key"]
        words += ["-certdir", "certs", "-hours", "1", "-out", str(path)]
        if is_member:
            words += ["-voms", "test", "-hostcert", "voms.pem", "-hostkey", "voms.key"]
            words += ["-fqan", "/test/Role=NULL/Capability=NULL", "-uri", "voms.test:15000"]
        subprocess.run(words, check=True, capture_output=True, cwd=self.folder, env=os.environ | self.env)

    def _openssl(self, *words: str) -> str:
        command = ["openssl", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=self.folder).stdout


@contextlib.contextmanager
def running() -> Iterator[tuple[Loopback, Authority]]:
    """The cache and its authority."""
    with open_folder() as folder:
        authority = Authority(folder)
        authority.certify("host", "/DC=test/CN=localhost", "subjectAltName=DNS:localhost\n")
        authority.certify("user", "/DC=test/CN=pusher")
        authority.certify("voms", _VOMS)
        (folder / "authdb").write_text("o test /store rl /xrdpfc_command rl\n")
        hand_over(folder)
        for file in ("user.pem", "user.key", "voms.key"):
            os.chown(folder / file, os.geteuid(), os.getegid())
        more = (
            f"xrootd.seclib libXrdSec.so\nsec.protocol gsi -certdir:{folder}/certs -cert:{folder}/host.pem "
            f"-key:{folder}/host.key -crl:0 -gmapopt:10 -vomsat:1 -vomsfun:libXrdVoms.so\n"
            f"sec.protbind * only gsi\nofs.authorize 1\nacc.authdb {folder}/authdb\n"
        )
        with contextlib.ExitStack() as stack:
            with mock.patch.dict(os.environ, authority.env):
                site = stack.enter_context(loopback(folder / "lb", more=more))
            yield site, authority
