"""Options of a command follow from the fields of its params: words, help, bounds, defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import Field, ValidationError
from typer.testing import CliRunner

from relive.cli.params_options import from_params
from relive.model.branch import Clock
from relive.operations.operation import Params


class Order(Params):
    what: str = Field(description="What is ordered")
    extras: list[str] = Field(default=[], description="What comes with it")
    times: int = Field(default=1, ge=1, le=9, description="How often")
    share: float | None = Field(default=None, ge=0, description="How much")
    hot: bool = Field(default=True, description="Not cold")
    gift: bool = Field(default=False, description="Wrapped")
    clock: Clock = Field(default=Clock.NOW, description="When")
    paper: Path | None = Field(default=None, description="In what")
    name: str = Field(default="", max_length=4, description="For whom")


@pytest.fixture
def ask() -> Any:
    asked: list[tuple[Order, bool]] = []

    @from_params(Order, arguments=("what", "extras"), words={"gift": ("--as-a-gift", "-g")})
    def order(params: Order, loud: bool = False) -> None:
        """Order something"""
        asked.append((params, loud))

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command("order")(order)

    def run(*words: str) -> Any:
        asked.clear()
        result = CliRunner().invoke(app, list(words))
        assert len(asked) <= 1
        return asked[0] if asked else result

    return run


def test_without_options_the_params_have_their_defaults(ask):
    assert ask("tea") == (Order(what="tea"), False)


def test_each_option_fills_its_field(ask):
    words = "tea milk sugar --times 3 --share 0.5 --no-hot -g --clock recorded --paper a/b --name ann --loud"
    wanted = Order(
        what="tea",
        extras=["milk", "sugar"],
        times=3,
        share=0.5,
        hot=False,
        gift=True,
        clock=Clock.RECORDED,
        paper=Path("a/b"),
        name="ann",
    )
    assert ask(*words.split()) == (wanted, True)


@pytest.mark.parametrize(
    "words", [["tea", "--times", "0"], ["tea", "--times", "10"], ["tea", "--share", "-1"], []]
)
def test_what_is_out_of_bounds_or_missing_is_refused_by_its_option(ask, words):
    result = ask(*words)
    assert result.exit_code == 2
    assert (words[1] if words else "what") in result.output


def test_a_switch_that_is_off_has_one_way_to_be_said(ask):
    assert ask("tea", "--no-gift").exit_code == 2
    assert ask("tea", "--gift").exit_code == 2  # it has other words


def test_what_typer_cannot_check_the_params_refuse(ask):
    assert isinstance(ask("tea", "--name", "Annette").exception, ValidationError)


def test_help_says_what_the_fields_say(ask):
    said = " ".join(ask("--help").output.split())
    assert "Order something" in said
    assert all(field.description in said for field in Order.model_fields.values())


def test_an_option_of_no_field_is_a_mistake_of_ours():
    with pytest.raises(AssertionError, match="colour"):
        from_params(Order, words={"colour": ("--color",)})
