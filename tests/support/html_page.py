"""What a page of ours holds, read from its HTML."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """Headings, answers and cells of tables; tags that were `seen` and left `open`; names of `attributes`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.seen, self.attributes = list[str](), list[str](), set[str]()
        self.headings, self.answers, self.cells = list[str](), list[str](), list[str]()
        self._now = ""
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

    def handle_data(self, data: str) -> None:
        lists = {"h2": self.headings, "answer": self.answers, "td": self.cells}
        if self._now in lists:
            lists[self._now].append(data.replace("\u00a0", " "))
