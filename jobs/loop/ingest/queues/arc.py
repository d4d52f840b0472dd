"""Jobs of ARC: descriptions in xRSL and ADL, and those of an A-REX control folder that have not ended.

Names: the xRSL manual; `ADLParser.cpp` and `ControlFileHandling.cpp` of nordugrid/arc.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from xml.parsers import expat

from features.common.errors import InputError
from jobs.loop.ingest.queues.place import Place, Refused, folded, moment_of, named, texts

FORM = "description"  # the field of a job's record that says in which language it was described
MOST_CHARS = 256 * 2**20  # of all descriptions together
_COMMENT = r"\(\*[^*]*+(?:\*(?!\))[^*]*+)*+(?:\*\)|$)"
_XRSL = re.compile(rf"\s*(?:{_COMMENT}\s*)*[&+]\s*\(")
_ADL = re.compile(r"\s*<(?:[^>]{0,1000}>\s*<){0,3}(?:[A-Za-z-]+:)?ActivityDescriptions?\b")
_TOKEN = re.compile(rf"""{_COMMENT}|"(?:[^"]|"")*(?:"|$)|'(?:[^']|'')*(?:'|$)|[()&+|=]|[^\s()"'&+|=]+""")
"""What is not closed ends with the text, so that none is looked through twice."""
_DEEPEST = 20
_LONGEST = 2**20
_MOST_FILES = 10_000
_STATES = ("ACCEPTED", "PREPARING", "SUBMIT", "INLRMS")
_FOLDERS = ("accepting", "processing", "restarting")
_ID = re.compile(r"(?:job\.)?([A-Za-z0-9]{1,128})\.status")
_SUBJECT = re.compile(r"(?m)(?<!\\\n)^subject=(.+)$")
"""The first, unless it is in an argument, whose ends of lines older A-REX only escape."""
_UNREAD = "not a description that can be read"
_Tree = list["str | _Tree"]


def is_description(text: str) -> bool:
    return bool(_XRSL.match(text) or _ADL.match(text))


def jobs(text: str, job_id: str = "", owner: str | None = None) -> list[object]:
    """The jobs of `owner` that `text` describes as objects; what cannot be read stays a text."""
    of_language = _of_adl if text.lstrip().startswith("<") else _of_xrsl
    described = enumerate(of_language(text) if len(text) <= _LONGEST else [])
    name = job_id or hashlib.sha256(text.encode()).hexdigest()[:12]
    return [{**job, "id": f"{name}.{n}" if n else name, "owner": owner} for n, job in described] or [_UNREAD]


def waiting(folder: Path, read: Callable[[Path], str]) -> list[object]:
    """The jobs of an A-REX control folder that have not ended; `read`: of one file, or InputError.

    Those beyond `MOST_CHARS` are not read. Raises OSError.
    """
    descriptions: list[object] = []
    n_chars = 0
    # Not `glob`: to that, a folder that may not be read is empty.
    folders = [folder / name for name in _FOLDERS if (folder / name).is_dir()]
    for status in sorted(path for place in folders for path in place.iterdir()):
        job = _ID.fullmatch(status.name)
        try:
            if job is not None and read(status).strip().removeprefix("PENDING:") in _STATES:
                text = _of(folder, job[1], "description", read)
                n_chars += len(text)
                subject = _SUBJECT.search(_of(folder, job[1], "local", read))
                owner = subject[1] if subject else None
                descriptions += jobs(text, job[1], owner) if n_chars <= MOST_CHARS else [_UNREAD]
        except InputError:
            descriptions.append(_UNREAD)  # also of a job that ends at this moment
    return descriptions


def _of(folder: Path, job: str, what: str, read: Callable[[Path], str]) -> str:
    """What A-REX keeps of a job, in the way of ARC 7 or before; `local` has not been there always."""
    old = folder / f"job.{job}.{what}"
    new = folder.joinpath("jobs", *re.findall(".{1,3}", job), what)
    path = old if old.exists() else new
    return "" if what == "local" and not path.exists() else read(path)


def is_control(folder: Path) -> bool:
    return any((folder / name).is_dir() for name in _FOLDERS)


def entries(raw: Iterable[object], place: Place) -> Iterator[object]:
    """An entry per job, of the files that it stages in or names in its arguments."""
    for record in raw:
        job = folded(record)
        if job is None or FORM not in job:
            yield Refused("not a job's description", record)
            continue
        files = named(texts(job.get("inputs")) + texts(job.get("arguments")))
        if not files or len(files) > _MOST_FILES:
            many = f"names more than {_MOST_FILES} files" if files else "names no dataset or file"
            yield Refused(many, record)
            continue
        work = f"arc:{job.get('id')}"
        entry = dict[str, object](job_id=work, work=work, files=list(files), owner=job.get("owner"))
        entry |= place.starting(moment_of(job.get("starttime")))
        yield from place.spread(entry, [], record, needs_site=False)


def _of_xrsl(text: str) -> list[dict[str, object]]:
    tree = _tree(text)
    if not tree:
        return []
    several = [part for part in tree[1:] if isinstance(part, list)] if tree[0] == "+" else [tree]
    return [_attributes(job) for job in several if job and job[0] == "&"]


def _tree(text: str) -> _Tree:
    """The brackets of a text as lists; empty if they do not match or are too deep."""
    stack: list[_Tree] = [[]]
    for word in _TOKEN.findall(text):
        if word.startswith("(*"):
            continue
        if word == "(" and len(stack) <= _DEEPEST:
            stack.append([])
        elif word == ")" and len(stack) > 1:
            inner = stack.pop()
            stack[-1].append(inner)
        elif word in ("(", ")"):
            return []
        else:
            quote = word[0] if word[0] in "\"'" else ""
            stack[-1].append(word[1:-1].replace(2 * quote, quote) if quote else word)
    return stack[0] if len(stack) == 1 else []


def _attributes(job: _Tree) -> dict[str, object]:
    stated: dict[str, list[object]] = {}
    for part in job[1:]:
        if isinstance(part, list) and len(part) > 2 and part[1] == "=":
            # As A-REX reads them, without regard to case and underscores.
            stated.setdefault(str(part[0]).lower().replace("_", ""), []).extend(part[2:])
    sources = [file[1] for file in stated.get("inputfiles", ()) if isinstance(file, list) and len(file) > 1]
    record: dict[str, object] = {FORM: "xRSL", "inputs": sources, "arguments": stated.get("arguments", [])}
    return record | ({"starttime": stated["starttime"][0]} if "starttime" in stated else {})


class _Adl:
    def __init__(self) -> None:
        self.jobs: list[dict[str, list[str]]] = []
        self._path: list[str] = []
        self._text = ""

    def begin(self, name: str, _: Mapping[str, str]) -> None:
        self._path.append(name.rpartition(":")[2])
        self._text = ""
        if self._path[-1] == "ActivityDescription":
            self.jobs.append({"inputs": [], "arguments": []})

    def take(self, text: str) -> None:
        self._text += text

    def end(self, _: str) -> None:
        place, name = self._path[-3:], self._path.pop()
        if self.jobs and place == ["InputFile", "Source", "URI"]:
            self.jobs[-1]["inputs"].append(self._text.strip())
        elif self.jobs and name == "Argument":
            self.jobs[-1]["arguments"].append(self._text.strip())


def _of_adl(text: str) -> list[dict[str, object]]:
    reader, parser = _Adl(), expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = reader.begin, reader.end
    parser.CharacterDataHandler = reader.take

    def refuse(*_: object) -> None:
        raise ValueError("a document type, which may define text without end")

    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except (expat.ExpatError, ValueError):
        return []
    return [{FORM: "ADL", **job} for job in reader.jobs]
