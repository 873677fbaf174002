"""Keys, folds, filters, search and time on the page of a trace, in a real browser."""

import pytest
from playwright.sync_api import Page, expect

from .page_kit import NAMES, TRACE, Show, box, names, press, selected

# -- keys, folds, filters, search --------------------------------------------------------------


def test_arrows_move_and_fold_as_in_any_tree(show: Show) -> None:
    page = show(TRACE)

    press(page, "ArrowDown", "ArrowDown")
    assert selected(page) == "tool ask_expert"
    press(page, "ArrowLeft")
    assert names(page) == [*NAMES[:3], *NAMES[5:]]
    assert page.locator("#row-2").get_attribute("aria-expanded") == "false"
    assert page.locator("#row-2 .below").inner_text() == "+2"
    press(page, "ArrowRight", "ArrowRight")
    assert (names(page), selected(page)) == (NAMES, "agent expert")
    press(page, "ArrowRight", "ArrowLeft")
    assert selected(page) == "agent expert"
    press(page, "End")
    assert selected(page) == "approval pay"
    press(page, "ArrowLeft")
    assert selected(page) == "agent support"
    press(page, "End", "Home")
    assert selected(page) == "agent support"
    active = page.locator("#grid").get_attribute("aria-activedescendant")
    assert active == "row-0"


def test_rows_are_folded_by_hand_one_or_all(show: Show) -> None:
    page = show(TRACE)

    page.locator("#row-3 button.twist").click()
    assert "chat model-2" not in names(page)
    page.locator("#collapse").click()
    assert names(page) == [*NAMES[:3], *NAMES[5:]]
    page.locator("#expand").click()
    assert names(page) == NAMES


def test_filters_keep_what_is_above_a_span_that_passes(show: Show) -> None:
    page = show(TRACE)
    page.locator("#row-1").click()

    page.locator('#kinds [data-word="llm"]').click(modifiers=["Alt"])
    assert names(page) == NAMES[:5]
    above = page.locator(".row.context .what").all_inner_texts()
    assert above == ["agent support", "tool ask_expert", "agent expert"]
    page.locator('#kinds [data-word="llm"]').click(modifiers=["Alt"])
    assert names(page) == NAMES

    page.locator('#states [data-word="ok"]').click()
    assert page.locator('#states [data-word="ok"]').get_attribute("aria-pressed") == "false"
    assert names(page) == ["agent support", "tool refund", "approval pay"]
    page.locator('#states [data-word="error"]').click()
    page.locator('#states [data-word="open"]').click()
    expect(page.locator("#nothing")).to_be_visible()
    assert names(page) == []
    page.locator("#grid").focus()
    press(page, "ArrowDown", "Enter", "z")
    page.locator('#states [data-word="error"]').click()
    assert names(page) == ["agent support", "tool refund"]
    expect(page.locator("#nothing")).to_be_hidden()
    assert page.locator("#details h2").inner_text() == selected(page) == "agent support"


def test_search_marks_and_jumps_and_opens_what_is_folded(show: Show) -> None:
    page = show(TRACE)
    page.locator("#collapse").click()

    press(page, "/")
    page.keyboard.type("MODEL")
    assert page.locator("#found").inner_text() == "1 of 2"
    assert selected(page) == "chat model-1"
    assert page.locator("mark").all_inner_texts() == ["model"]
    press(page, "Enter")
    assert selected(page) == "chat model-2"
    assert page.locator("mark").all_inner_texts() == ["model", "model"]
    assert page.locator("#found").inner_text() == "2 of 2"
    press(page, "Enter")
    assert selected(page) == "chat model-1"
    press(page, "Shift+Enter")
    assert selected(page) == "chat model-2"

    press(page, "ArrowDown", "n")
    assert selected(page) == "chat model-1"
    press(page, "N")
    assert selected(page) == "chat model-2"
    press(page, "Escape")
    assert page.locator("#found").inner_text() == ""
    assert page.locator("mark").count() == 0


def test_search_looks_into_content_attributes_events_and_scores(show: Show) -> None:
    page = show(TRACE)

    for query, found in (
        ("order 77", "chat model-1"),
        ("503", "tool refund"),
        ("timeout", "tool refund"),
        ("run.resumed", "agent support"),
        ("well done", "agent support"),
    ):
        page.locator("#search").fill(query)
        assert (selected(page), page.locator("#found").inner_text()) == (found, "1 of 1")
    page.locator("#search").fill("nowhere to be found")
    assert page.locator("#found").inner_text() == "none"
    press(page, "Enter")
    page.locator("#search").fill("timeout")
    page.locator('#states [data-word="error"]').click()
    assert page.locator("#found").inner_text() == "none"


def test_the_keys_are_explained(show: Show) -> None:
    page = show(TRACE)

    press(page, "?")
    expect(page.locator("#keys")).to_be_visible()
    press(page, "Escape")
    expect(page.locator("#keys")).to_be_hidden()
    page.locator("#help").click()
    expect(page.locator("#keys")).to_be_visible()


# -- time --------------------------------------------------------------------------------------


def ticks(page: Page) -> list[str]:
    return page.locator("#ticks span").all_inner_texts()


def test_time_is_zoomed_by_key_and_by_button_and_fitted_again(show: Show) -> None:
    page = show(TRACE)
    whole = ticks(page)
    expect(page.locator("#brush")).to_be_hidden()

    press(page, "ArrowDown", "z")
    assert ticks(page) != whole
    expect(page.locator("#brush")).to_be_visible()
    lane, bar = box(page, "#row-1 .lane"), box(page, "#row-1 .fill")
    assert bar["width"] / lane["width"] == pytest.approx(1 / 1.1, abs=0.02)
    press(page, "0")
    assert ticks(page) == whole
    press(page, "+")
    assert ticks(page) != whole
    press(page, "-")
    assert ticks(page) == whole
    page.locator("#in").click()
    assert ticks(page) != whole
    page.locator("#out").click()
    assert ticks(page) == whole
    page.locator("#in").click()
    page.locator("#fit").click()
    assert ticks(page) == whole


@pytest.mark.parametrize("height", [12, 52])
def test_a_stretch_of_time_is_chosen_by_dragging_on_the_overview_and_on_the_ticks(
    show: Show, height: int
) -> None:
    page = show(TRACE)
    whole = ticks(page)
    axis = box(page, "#axis")

    page.mouse.move(axis["x"] + axis["width"] * 0.5, axis["y"] + height)
    page.mouse.down()
    page.mouse.move(axis["x"] + axis["width"] * 0.75, axis["y"] + height)
    page.mouse.up()

    brush = box(page, "#brush")
    assert (brush["x"] - axis["x"]) / axis["width"] == pytest.approx(0.5, abs=0.01)
    assert brush["width"] / axis["width"] == pytest.approx(0.25, abs=0.01)
    press(page, "Escape")
    assert ticks(page) == whole
    page.mouse.click(axis["x"] + 50, axis["y"] + height)
    assert ticks(page) == whole
    press(page, "+")
    page.mouse.dblclick(axis["x"] + 50, axis["y"] + height)
    assert ticks(page) == whole


def test_the_wheel_zooms_with_ctrl_and_moves_in_time_with_shift(show: Show) -> None:
    page = show(TRACE)
    axis, brush = box(page, "#axis"), page.locator("#brush")
    page.mouse.move(axis["x"] + axis["width"] * 0.5, axis["y"] + 150)

    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    expect(brush).to_be_visible()
    zoomed = brush.get_attribute("style")
    page.keyboard.down("Shift")
    page.mouse.wheel(0, 100)
    page.keyboard.up("Shift")

    expect(brush).not_to_have_attribute("style", zoomed or "")


def test_the_names_can_have_more_or_less_room(show: Show) -> None:
    page = show(TRACE)
    splitter = page.locator("#splitter")

    splitter.focus()
    press(page, "ArrowRight", "ArrowRight")
    assert splitter.get_attribute("aria-valuenow") == "34"
    place = box(page, "#splitter")
    page.mouse.move(place["x"] + 4, place["y"] + 300)
    page.mouse.down()
    page.mouse.move(600, place["y"] + 300)
    page.mouse.up()
    assert splitter.get_attribute("aria-valuenow") == "50"
