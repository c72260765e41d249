"""How commands are listed, helped with, completed and corrected; how they were called."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from typing import Any, TypeVar

import typer
from typer.completion import install_callback, show_callback
from typer.core import TyperCommand, TyperGroup

F = TypeVar("F", bound=Callable[..., Any])

# Commands as one comes to need them; those that are not named follow.
ORDER = (
    "demo",
    "estimate",
    "bound",
    "score",
    "evaluate",
    "report",
    "sweep",
    "cluster",
    "distances",
    "import",
    "export",
    "info",
    "verify",
)
# Headings of a command's options, in this order: those of its own come first.
WHERE = "Where to compute"
SAID = "What is said"
HEADINGS = ("Options", WHERE, SAID)

# Exit codes, after sysexits.h where it has one; 2 is Typer's.
DONE = 0
USAGE = 2
BAD_INPUT = 65
OVER_BUDGET = 69
FAILED = 70
CANNOT_WRITE = 73
DAMAGED = 74
PAUSED = 75
STOPPED = 130

MEANINGS = {
    DONE: "done",
    USAGE: "the command line is wrong: an unknown option or command, a value that is missing",
    BAD_INPUT: "the input, or what an option says, is wrong",
    OVER_BUDGET: "it does not fit in the memory that it may use",
    FAILED: "the system, the cluster or silchunk itself failed",
    CANNOT_WRITE: "an output cannot be written: it exists already, or the disk is full",
    DAMAGED: "a stored matrix is damaged",
    PAUSED: "stopped by a signal or --time-limit; what was recorded is kept",
    STOPPED: "stopped by Ctrl-C before anything was written",
}

# What a wrong use of the command line raises. Typer has a copy of click's in some versions and
# click's own in others, and gives the class no name of its own.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]

_typed: ContextVar[tuple[str, ...]] = ContextVar("typed", default=("silchunk",))


def typed(*more: str) -> str:
    """The command as it was given, with ``more`` at its end, to be given again."""
    return shlex.join([*_typed.get(), *more])


def command_name() -> str:
    """Which command was given."""
    return " ".join(_typed.get()[1:2])


class Application(typer.Typer):
    """Commands that are `Command` all."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[F], F]:
        """As Typer's, with another class."""
        return super().command(name, **{"cls": Command, **options})


class Command(TyperCommand):
    """A command with its options under headings, which remembers how it was called."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember the arguments; name the option that a wrong one was meant to be."""
        _typed.set((*ctx.command_path.split(), *args))
        with _corrected(self.get_params(ctx)):
            return super().parse_args(ctx, args)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Examples stay on lines of their own, as they are to be typed."""
        text = (self.help or "").partition("\f")[0].strip()
        about, _, example = text.partition("\n\nExample: ")
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(about)
        if example:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write(f"{' ' * formatter.current_indent}Example: {example}\n")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments first, then options heading by heading."""
        under: dict[str, list[tuple[str, str]]] = {"Arguments": [], **{h: [] for h in HEADINGS}}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                under.setdefault(_heading(parameter), []).append(record)
        for heading, records in under.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class Group(TyperGroup):
    """All commands, in order, with the exit codes below."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take a shell's name after the options of completion, which else go by the shell that is
        running."""
        for option, act in (
            ("--show-completion", show_callback),
            ("--install-completion", install_callback),
        ):
            if len(args) == 2 and args[0] == option:
                act(ctx, self.params[0], args[1])
        of_commands = {name for one in self.commands.values() for name in _names(one.params)}
        with _corrected(self.get_params(ctx), of_commands):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Name the nearest command, as later versions of Typer do by themselves."""
        try:
            return super().resolve_command(ctx, args)
        except USAGE_ERROR as error:
            near = get_close_matches(args[0], list(self.commands), 1)
            message = getattr(error, "message", "")
            if near and "Did you mean" not in message:
                error.message = f"{message} Did you mean {near[0]!r}?"  # type: ignore[attr-defined]
            raise

    def list_commands(self, ctx: Any) -> list[str]:
        """In `ORDER`."""
        names = list(self.commands)
        return sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Each with the whole of its first sentence."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, self.commands[name].get_short_help_str(1000))
                    for name in self.list_commands(ctx)
                ]
            )

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Exit codes."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in MEANINGS.items()])


def _heading(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return "Arguments"
    if "--help" in parameter.opts:
        return SAID
    return getattr(parameter, "rich_help_panel", None) or HEADINGS[0]


def _names(parameters: Sequence[Any]) -> list[str]:
    """All ways to write options."""
    return [name for one in parameters for name in (*one.opts, *one.secondary_opts)]


@contextmanager
def _corrected(parameters: Sequence[Any], of_commands: Collection[str] = ()) -> Iterator[None]:
    """Let the error of an unknown option name the nearest one that there is, or its place."""
    try:
        yield
    except USAGE_ERROR as error:
        given = getattr(error, "option_name", None)
        if given is None or not hasattr(error, "possibilities"):
            raise
        known = _names(parameters)
        begun = sorted((name for name in known if name.startswith(given)), key=len)
        near = get_close_matches(given, known, 1) or begun
        message = f"No such option: {given}."
        if given in of_commands:
            message = f"{given} is an option of commands: it follows the name of one."
        elif near:
            message += f" Did you mean {near[0]}?"
        error.possibilities = None
        error.message = message  # type: ignore[attr-defined]
        raise
