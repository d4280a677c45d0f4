from relive.incidents.report.masking import MASK, Mask
from relive.inspection.masking import masked_lines, masked_names, masked_parts, masked_text


def test_a_value_is_masked_by_the_last_name_of_its_path():
    mask = Mask()
    assert masked_text(mask, "settings.db['password']", "'x1'") == MASK
    assert masked_text(mask, "settings.password", "None") == "None"
    assert masked_text(mask, "users['ann'].role", "'admin'") == "'admin'"


def test_a_known_secret_is_masked_wherever_it_stands():
    mask = Mask()
    mask.learn_environment({"API_TOKEN": "correct-horse-battery"})
    assert masked_names(mask, {"headers": "{'x': 'correct-horse-battery'}"}) == {
        "headers": f"{{'x': '{MASK}'}}"
    }
    (part,) = masked_parts(mask, [("['correct-horse-battery']", "1")])
    assert part.path == f"['{MASK}']"


def test_what_a_debugger_says_is_masked_by_the_name_that_was_asked_for_and_by_those_in_it():
    mask = Mask()
    mask.learn_environment({"API_TOKEN": "correct-horse-battery"})
    assert masked_lines(mask, "p account.password", "'x1'") == MASK
    assert (
        masked_lines(mask, "args", "password = 'x1'\nrole = 'admin'") == f"password = {MASK}\nrole = 'admin'"
    )
    assert masked_lines(mask, "p vars()", "{'a': 'correct-horse-battery'}") == f"{{'a': '{MASK}'}}"
    assert "not defined" in masked_lines(mask, "p password", "*** NameError: name 'password' is not defined")
