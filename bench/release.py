"""Make what a tag publishes in dist/, and check it: wheel, sdist, chart, documentation site, image.

Exit code 1 if something cannot be made that this machine has the tools for, or is not what it should be. What
needs a tool that is not here is named in one line.

Needs the environment that `make verify` makes: make release
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from helm_chart import CHART, helm, program, rendered

ROOT = Path(__file__).resolve().parents[1]
DIST, DOCS = ROOT / "dist", ROOT / "build" / "docs"
KUBERNETES = "1.34.0"
BUILDERS = ("podman", "buildah", "docker")


def main() -> None:
    """Make and check everything, and list it with its size."""
    shutil.rmtree(DIST, ignore_errors=True)
    version = packages()
    site(version)
    left_out = [*chart(version), *image(version)]
    artefacts = sorted(DIST.iterdir())
    sums = "".join(
        f"{hashlib.sha256(artefact.read_bytes()).hexdigest()}  {artefact.name}\n" for artefact in artefacts
    )
    (DIST / "SHA256SUMS").write_text(sums)
    for artefact in artefacts:
        print(f"{artefact.stat().st_size / 1e6:8.1f} MB  {artefact.relative_to(ROOT)}")
    if left_out:
        print(f"not made here: {'; '.join(left_out)}")


def packages() -> str:
    """Wheel and sdist; a wheel from the sdist is the same as one from the checkout. Returns the version."""
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)  # the wheel is made from the sdist
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (facts,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        facts_text = archive.read(facts).decode()
        held = {name: archive.read(name) for name in names if ".dist-info/" not in name}
    version = HeaderParser().parsestr(facts_text)["Version"]
    check(f"cachecast-{version}" in wheel.name and f"cachecast-{version}" in sdist.name, f"{wheel}, {sdist}")
    check(
        f"## {version}" in (ROOT / "CHANGELOG.md").read_text(), f"CHANGELOG.md does not say what {version} is"
    )
    listed = run("git", "ls-files", "--", *sorted({name.partition("/")[0] for name in held}), cwd=ROOT)
    ours = {name for name in listed.splitlines() if not name.startswith("conf/constraints/")}
    differ = {name for name in ours | set(held) if held.get(name) != (ROOT / name).read_bytes()}
    check(not differ, f"the wheel and the checkout differ: {sorted(differ)[:5]}")
    return version


def site(version: str) -> None:
    """The documentation as `make docs` left it in build/docs."""
    check((DOCS / "api").is_dir(), "build/docs is not there: make docs")
    with tarfile.open(DIST / f"cachecast-docs-{version}.tar.gz", "w:gz") as archive:
        archive.add(DOCS, f"cachecast-docs-{version}")


def chart(version: str) -> list[str]:
    """The chart as Helm packs it, of the same version as the wheel; why not, if there is no Helm."""
    versions = re.findall(
        r"^(?:version|appVersion): (\S+)$", (CHART / "Chart.yaml").read_text(), re.MULTILINE
    )
    check(versions == [version, version], f"the chart is of another version: {versions}")
    if program() is None:
        return ["the chart: no Helm, which conf/deploy/helm.sh builds"]
    helm("package", str(CHART), "--destination", str(DIST))
    packed = rendered(DIST / f"cachecast-{version}.tgz", KUBERNETES)
    check(packed == rendered(CHART, KUBERNETES), "the packed chart renders otherwise")
    return []


def image(version: str) -> list[str]:
    """The image, as an archive that podman and docker load; why not, if nothing here builds one."""
    able = [builder for builder in BUILDERS if shutil.which(builder) and not failed(builder, "info")]
    if not able:
        return [f"the image: none of {', '.join(BUILDERS)} works here"]
    tag, archive = f"cachecast:{version}", DIST / f"cachecast-image-{version}.tar"
    words = ["bud"] if able[0] == "buildah" else ["build"]
    run(able[0], *words, "-f", ROOT / "conf" / "deploy" / "Containerfile", "-t", tag, ROOT)
    if able[0] == "buildah":
        run("buildah", "push", tag, f"docker-archive:{archive}:{tag}")
    else:
        run(able[0], "save", "-o", archive, tag)
        checks = run(able[0], "run", "--rm", tag, "doctor", "--json", fails=True)
        check(bool(json.loads(checks)), f"the image does not run: {checks}")
    return []


def run(*words: str | Path, cwd: Path = ROOT, fails: bool = False) -> str:
    """What a command prints; it must succeed, unless it `fails`."""
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)
    check(
        fails or not done.returncode,
        f"{' '.join(map(str, words))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}",
    )
    return done.stdout


def failed(*words: str) -> bool:
    """Whether a command fails."""
    return subprocess.run(words, capture_output=True, check=False).returncode != 0


def check(holds: bool, why: str) -> None:
    """End with exit code 1 unless something holds."""
    if not holds:
        sys.exit(why)


if __name__ == "__main__":
    main()
