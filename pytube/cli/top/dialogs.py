"""What `pytube top` lays over its table: a question, a text, a list of what is parked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Input, Label, Static

from pytube.cli.top.operate import ParkEntry


class Question(ModalScreen[bool]):
    """Asks before something is done; nothing but y does it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "yes"),
        Binding("n,escape,q,enter", "dismiss(False)", "no"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """The question."""
        with Vertical(classes="dialog"):
            yield Static(Text(self._question))
            yield Label("[b]y[/b] yes   [b]n[/b] no")


class Ask(ModalScreen[str | None]):
    """Asks for a text."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "cancel")]

    def __init__(self, question: str, value: str = "") -> None:
        super().__init__()
        self._question = question
        self._value = value

    def compose(self) -> ComposeResult:
        """The question and a line."""
        with Vertical(classes="dialog"):
            yield Static(Text(self._question))
            yield Input(self._value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """It is answered."""
        self.dismiss(event.value.strip())


class Reading(ModalScreen[bool]):
    """A text to read."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "dismiss(False)", "back")]
    HINT: ClassVar[str] = "esc back"

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        """The text."""
        with VerticalScroll(classes="dialog reading") as scroll:
            scroll.border_title = Text(self._title).markup
            scroll.border_subtitle = self.HINT
            yield Static(Text(self._text))


class ParkReading(Reading):
    """All that is known of something parked; r asks to have it tried again."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "dismiss(True)", "retry")]
    HINT: ClassVar[str] = "r retry   esc back"


class ParkList(ModalScreen[tuple[ParkEntry, bool] | None]):
    """What is parked, the latest first; enter opens an entry, r asks to have it tried again (True)."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss(None)", "back"),
        Binding("r", "retry", "retry"),
    ]

    def __init__(self, title: str, entries: Sequence[ParkEntry]) -> None:
        super().__init__()
        self._title = title
        self._entries = entries

    def compose(self) -> ComposeResult:
        """The list."""
        with Vertical(classes="dialog reading") as box:
            box.border_title = Text(self._title).markup
            box.border_subtitle = "enter open   r retry   esc back"
            yield DataTable(cursor_type="row", zebra_stripes=True)

    def on_mount(self) -> None:
        """Fill it."""
        table = self.query_one(DataTable)
        table.add_columns("key", "attempts", "since", "error")
        for number, entry in enumerate(self._entries):
            cells = (entry.key, str(entry.attempts), f"{entry.parked_at:%m-%d %H:%M:%S}", entry.error)
            table.add_row(*map(Text, cells), key=str(number))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """One is opened."""
        self.dismiss((self._entries[int(str(event.row_key.value))], False))

    def action_retry(self) -> None:
        """One is to be tried again."""
        self.dismiss((self._entries[self.query_one(DataTable).cursor_row], True))
