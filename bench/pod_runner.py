"""Runs the containers of rendered pods on this machine, with what of a kubelet their specifications ask for.

Each container gets its mounts, its account, no capability and a read-only root by bubblewrap, and its pod's
or its own namespace of processes. In place of images there is this machine's /usr with this environment; all
pods share the caller's network, in which every service has the address 127.0.0.1. Needs root.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from helm_chart import Object, Pod, of_kind, pods

from features.common.errors import ServiceError

ROOT = Path(__file__).resolve().parents[3]
_ETC = ("alternatives", "ld.so.cache", "localtime", "nsswitch.conf", "ssl", "java-17-openjdk")
Processes = dict[str, subprocess.Popen[bytes]]
_APART = ("--unshare-ipc", "--unshare-uts", "--hostname")
_WRAPPERS = ("bwrap", "nsenter", "unshare")
_NO_RIGHTS = ("--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all")


class Kubelet:
    """Containers of `objects`, with `secrets` (name: variables or files) and volumes in `folder`.

    `programs`: a folder that comes first in PATH; `accounts`: names that images give to uids.
    """

    def __init__(
        self,
        folder: Path,
        objects: list[Object],
        secrets: Mapping[str, Mapping[str, str]],
        *,
        accounts: Mapping[int, str],
        programs: Path | None = None,
    ) -> None:
        self.folder, self._maps, self._secrets = folder, of_kind(objects, "ConfigMap"), secrets
        self._programs = [] if programs is None else [programs]
        names = ["localhost", *of_kind(objects, "Service"), *map(_host, pods(objects))]
        (folder / "hosts").write_text("".join(f"127.0.0.1 {name}\n" for name in names))
        lines = [f"{name}:x:{uid}:10001::/var/lib/cachecast:/bin/false\n" for uid, name in accounts.items()]
        (folder / "passwd").write_text("".join(lines))
        (folder / "group").write_text("cachecast:x:10001:\n")

    def volume(self, pod: Pod, volume: Object) -> Path:
        """Where a volume of a pod is; made as a kubelet makes it, for the group 10001."""
        name = volume["name"]
        if "persistentVolumeClaim" in volume:
            return _writable(self.folder / "claims" / volume["persistentVolumeClaim"]["claimName"])
        path = self.folder / "pods" / pod.owner.replace(" ", "-") / name
        if "emptyDir" in volume:
            return _writable(path)
        if "configMap" in volume:
            data = self._maps[volume["configMap"]["name"]]["data"]
            items = volume["configMap"].get("items", [{"key": key, "path": key} for key in data])
            return _published(path, {item["path"]: data[item["key"]] for item in items}, 0o644)
        return _published(path, self._secrets[volume["secret"]["secretName"]], 0o440)

    def command(self, pod: Pod, container: Object, *, words: list[str] | None = None) -> list[str]:
        """The command that is the container; `words`: another one in it, for example a probe's."""
        volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
        root: list[str | Path] = ["--tmpfs", "/", "--ro-bind", "/usr", "/usr"]
        root += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm"]
        for name in ("bin", "sbin", "lib", "lib64"):
            root += ["--symlink", f"usr/{name}", f"/{name}"]
        root += [*_entered(Path("/etc/hosts")), *_entered(Path("/var/lib/cachecast/home"))]
        for name in _ETC:
            root += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        for name in ("hosts", "passwd", "group"):
            root += ["--ro-bind", self.folder / name, f"/etc/{name}"]
        for path in (ROOT, Path(sys.base_prefix), *self._programs):
            root += [*_entered(path), "--ro-bind", path, path]
        for mount in sorted(container["volumeMounts"], key=lambda mount: mount["mountPath"]):
            source = self.volume(pod, volumes.get(mount["name"]) or _claimed(pod, mount["name"]))
            if "subPath" in mount:
                source = _writable(source / mount["subPath"])
            root += [*_entered(Path(mount["mountPath"])), "--ro-bind" if mount.get("readOnly") else "--bind"]
            root += [source, mount["mountPath"]]
        own = [] if pod.spec.get("shareProcessNamespace") else ["--unshare-pid"]
        rights = pod.spec["securityContext"]
        identity = ["--reuid", str(rights["runAsUser"]), "--regid", str(rights["runAsGroup"]), *_NO_RIGHTS]
        sandbox = [
            "bwrap",
            "--die-with-parent",
            *_APART,
            _host(pod),
            *own,
            *map(str, root),
            "--remount-ro",
            "/",
        ]
        folder = container.get("workingDir", "/var/lib/cachecast")
        return [*sandbox, "--chdir", folder, "--", "setpriv", *identity, *(words or container["command"])]

    def environment(self, container: Object, fields: Mapping[str, str]) -> dict[str, str]:
        """A container's variables; `fields`: values that Kubernetes gives a pod about itself."""
        env = {"PATH": ":".join([*map(str, self._programs), f"{sys.prefix}/bin", "/usr/sbin:/usr/bin"])}
        for source in container.get("envFrom", ()):
            if "configMapRef" in source:
                env |= self._maps[source["configMapRef"]["name"]]["data"]
            elif source["secretRef"]["name"] in self._secrets or not source["secretRef"].get("optional"):
                env |= self._secrets[source["secretRef"]["name"]]
        for var in container.get("env", ()):
            value = var["value"] if "value" in var else fields[var["valueFrom"]["fieldRef"]["fieldPath"]]
            env[var["name"]] = re.sub(r"\$\((\w+)\)", lambda match: env[match[1]], value)
        return env

    @contextmanager
    def running(self, pod: Pod, fields: Mapping[str, str] | None = None) -> Iterator[Processes]:
        """The pod's containers by name, after those that start before; all end with the block."""
        started: Processes = {}
        holder = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "sleep", "inf"])
        try:
            enter = []
            if pod.spec.get("shareProcessNamespace"):
                enter = ["nsenter", "--target", _child(holder.pid), "--pid", "--"]
                enter += ["unshare", "--mount-proc", "--"]  # bubblewrap looks itself up there
            for container in pod.containers:
                with self.log(container).open("ab") as log:
                    process = subprocess.Popen(
                        [*enter, *self.command(pod, container)],
                        env=self.environment(container, fields or {}),
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                    )
                if container in pod.spec.get("initContainers", ()):
                    if process.wait(60):
                        raise ServiceError(f"{container['name']} failed: {self.log_end(container)}")
                else:
                    started[container["name"]] = process
            yield started
        finally:
            for process in started.values():
                _ask_to_end(process.pid)
            for process in started.values():
                _await_end(process)
            holder.terminate()
            _await_end(holder)

    def log(self, container: Object) -> Path:
        """What a container writes."""
        return self.folder / f"{container['name']}.log"

    def log_end(self, container: Object) -> str:
        """The end of what a container wrote."""
        return self.log(container).read_text(errors="replace")[-1500:] if self.log(container).exists() else ""

    def probed(self, pod: Pod, container: Object, kind: str, *, within_s: float = 180) -> None:
        """Wait until a probe holds. Raises ServiceError with the container's log."""
        deadline = time.monotonic() + within_s
        while not self._holds(pod, container, container[kind]):
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"{container['name']}: its {kind} does not hold: {self.log_end(container)}"
                )
            time.sleep(1)

    def _holds(self, pod: Pod, container: Object, probe: Object) -> bool:
        if "exec" in probe:
            words = self.command(pod, container, words=probe["exec"]["command"])
            done = subprocess.run(
                words, env=self.environment(container, {}), capture_output=True, check=False
            )
            return done.returncode == 0
        target = probe.get("httpGet") or probe["tcpSocket"]
        (port,) = [port["containerPort"] for port in container["ports"] if port["name"] == target["port"]]
        status = answer(f"http://127.0.0.1:{port}{target.get('path', '/')}")
        return 200 <= status < 400 if "httpGet" in probe else status > 0


def answer(url: str, host: str | None = None) -> int:
    """The status of what a server answers by the name `host`; 1 if it speaks no HTTP, 0 if there is none."""
    request = urllib.request.Request(url, headers={"host": host} if host else {})
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except urllib.error.URLError as error:
        return 0 if isinstance(error.reason, ConnectionRefusedError | TimeoutError) else 1
    except OSError:
        return 1


def _entered(path: Path) -> list[str | Path]:
    """Make the folders above `path`, which everybody may enter."""
    return [word for folder in reversed(path.parents[:-1]) for word in ("--perms", "0755", "--dir", folder)]


def _host(pod: Pod) -> str:
    """The name of a pod's machine."""
    return f"{pod.owner.split()[1]}-0"


def _claimed(pod: Pod, name: str) -> Object:
    """A volume of a StatefulSet's own claim."""
    return {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod.owner.split()[1]}-0"}}


def _writable(path: Path) -> Path:
    for folder in [*reversed(path.parents), path]:
        if not folder.exists():
            folder.mkdir()
            os.chown(folder, 0, 10001)
            folder.chmod(0o2775)
    return path


def _published(path: Path, files: Mapping[str, str], mode: int) -> Path:
    """Files as a kubelet publishes them: links through `..data` to a folder that it replaces."""
    if path.exists():
        return path
    for name, text in files.items():
        file = path / "..2026" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
        os.chown(file, 0, 10001)
    (path / "..data").symlink_to("..2026")
    for name in {Path(name).parts[0] for name in files}:
        (path / name).symlink_to(f"..data/{name}")
    return path


def _child(pid: int) -> str:
    """The only child of a process, once it is there."""
    for _ in range(100):
        if children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            return children[0]
        time.sleep(0.05)
    raise ServiceError("no namespace of processes came up")


def _ask_to_end(pid: int) -> None:
    """Send SIGTERM to the command of a container, as a kubelet does: bubblewrap would not pass it on."""
    try:
        while Path(f"/proc/{pid}/comm").read_text().strip() in _WRAPPERS:
            (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            pid = int(child)
        os.kill(pid, signal.SIGTERM)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return  # it has ended, or is about to


def _await_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
