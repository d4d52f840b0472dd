"""What a page of ours holds, read from its HTML."""

from html.parser import HTMLParser

_BLOCKS = {"td", "dt", "dd", "li", "tr", "p", "h3", "h4"}


class Page(HTMLParser):
    """Headings, answers and cells of tables; tags that were `seen` and left `open`; names of `attributes`.

    `text`: all words, apart where a block ends.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.seen, self.attributes = list[str](), list[str](), set[str]()
        self.headings, self.answers, self.cells = list[str](), list[str](), list[str]()
        self._now, self._words = "", list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in ("meta", "link", "br", "input"):
            self.open.append(tag)
        self._now = "answer" if dict(attrs).get("class") == "answer" else tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes.update(key for key, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self._now = ""
        if tag in _BLOCKS:
            self._words.append(" ")

    def handle_data(self, data: str) -> None:
        self._words.append(data)
        lists = {"h2": self.headings, "answer": self.answers, "td": self.cells}
        if self._now in lists:
            lists[self._now].append(data.replace("\u00a0", " "))

    @property
    def text(self) -> str:
        return " ".join("".join(self._words).split())
